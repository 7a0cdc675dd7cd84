"""What every method must keep to; a new one in METHODS is tested the day it is written."""

import copy
import io
import pickle
import subprocess
import sys
import threading

import pytest
import torch
from networks import CLASSES, images, make, network
from torch import nn

import note_tta as tta
INPUT_BOUND = 1e6

NAMES = sorted(tta.METHODS)
pytestmark = pytest.mark.parametrize("name", NAMES)


def snapshot(model):
    return {key: tensor.clone() for key, tensor in model.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def equal(a, b):
    """Two nested states are the same to the last bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


@pytest.mark.parametrize("batch", [1, 2, 64, 130])
def test_answers_every_sample(name, batch):
    method = make(name)
    logits = method(images(batch))
    assert logits.shape == (batch, CLASSES)
    assert torch.isfinite(logits).all() and not logits.requires_grad
    assert method.counters["samples"] == batch and method.counters["rejected_samples"] == 0


def test_an_empty_batch_is_answered_and_changes_nothing(name):
    method = make(name)
    method(images(20))
    before = method.state_dict()
    assert method(images(0)).shape == (0, CLASSES)
    assert equal(method.state_dict(), before)


def test_logits_are_of_before_the_batch_was_learned_from(name):
    """A method that is asked once answers as a twin whose learning is switched off would."""
    x = images(8)
    method, untouched = make(name), make(name)
    first = method(x)
    assert torch.equal(first, untouched(x))
    untouched.reset()
    assert torch.equal(untouched(x), first)


def test_sees_no_labels(name):
    x = images(64)
    results = [tta.evaluate(make(name), [(x, torch.full((64,), label))]) for label in (0, 1)]
    assert torch.equal(results[0].predictions, results[1].predictions)


def test_reset_returns_to_the_exact_start(name):
    method = make(name)
    start, weights = method.state_dict(), snapshot(method.model)
    first = [method(x).clone() for x in images(200).split(50)]
    method.reset()
    assert equal(method.state_dict(), start) and same(snapshot(method.model), weights)
    again = [method(x) for x in images(200).split(50)]
    assert all(map(torch.equal, first, again))


@pytest.mark.parametrize("cut", [1, 37, 64, 130])
def test_a_saved_state_goes_on_as_if_never_stopped(name, cut):
    x = images(200)
    method = make(name)
    method(x[:cut])
    file = io.BytesIO()
    torch.save(method.state_dict(), file)
    file.seek(0)
    twin = make(name)
    twin.load_state_dict(torch.load(file, weights_only=True))
    for part in x[cut:].split(29):
        assert torch.equal(method(part), twin(part))
    assert equal(method.state_dict(), twin.state_dict())
    twin.reset()
    assert equal(twin.state_dict(), make(name).state_dict())


def test_a_state_resumes_in_a_new_process(name, tmp_path):
    x = images(150)
    method = make(name)
    method(x[:70])
    torch.save({"state": method.state_dict(), "x": x[70:]}, tmp_path / "state.pt")
    script = (
        "import sys, torch; sys.path.insert(0, sys.argv[2]); torch.set_num_threads(1)\n"
        "from networks import make\n"
        "saved = torch.load(sys.argv[1] + '/state.pt', weights_only=True)\n"
        f"method = make({name!r}); method.load_state_dict(saved['state'])\n"
        "torch.save(method(saved['x']), sys.argv[1] + '/answer.pt')\n"
    )
    here = __file__.rpartition("/")[0]
    subprocess.run([sys.executable, "-c", script, str(tmp_path), here], check=True, timeout=120)
    assert torch.equal(torch.load(tmp_path / "answer.pt", weights_only=True), method(x[70:]))


def test_pickles_and_copies(name):
    method = make(name)
    method(images(70))
    for twin in (pickle.loads(pickle.dumps(method)), copy.deepcopy(method)):
        assert equal(twin.state_dict(), method.state_dict())
        x = images(70, seed=5)
        saved = method.state_dict()
        assert torch.equal(twin(x), method(x))
        method.load_state_dict(saved)


@pytest.mark.parametrize("training", [True, False])
def test_the_callers_flags_and_gradients_survive(name, training):
    method = make(name)
    method.model.train(training)
    method.model[4].train(not training)
    for i, p in enumerate(method.model.parameters()):
        p.requires_grad_(i % 2 == 0)
        p.grad = torch.full_like(p, float(i)) if i % 2 == 0 else None
    modes = [m.training for m in method.model.modules()]
    settings = [(m.momentum, m.track_running_stats) for m in method.model.modules() if hasattr(m, "momentum")]
    method(images(130))
    assert [m.training for m in method.model.modules()] == modes
    assert [
        (m.momentum, m.track_running_stats) for m in method.model.modules() if hasattr(m, "momentum")
    ] == settings
    for i, p in enumerate(method.model.parameters()):
        assert p.requires_grad == (i % 2 == 0)
        assert p.grad is None if i % 2 else torch.equal(p.grad, torch.full_like(p, float(i)))
    assert all("forward" not in vars(m) for m in method.model.modules())


def test_works_under_the_callers_no_grad_and_inference_threads(name):
    method, twin = make(name), make(name)
    with torch.no_grad():
        answer = method(images(130))
    assert torch.equal(answer, twin(images(130)))


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf, 2 * INPUT_BOUND, 1e30])
def test_a_bad_sample_is_answered_with_nan_and_leaves_no_trace(name, poison):
    x = images(100)
    clean = torch.cat([x[:10], x[11:70], x[72:]])
    x[10, 0, 0, 0] = x[70:72, 1] = poison
    method, twin = make(name), make(name)
    logits = torch.cat([method(part) for part in x.split(50)])
    bad = torch.zeros(100, dtype=torch.bool)
    bad[[10, 70, 71]] = True
    expected = torch.cat([twin(clean[:49]), twin(clean[49:])])
    assert logits[bad].isnan().all()
    assert torch.equal(logits[~bad], expected)
    assert method.counters == twin.counters | {"samples": 100, "rejected_samples": 3}
    ours, theirs = method.state_dict(), twin.state_dict()
    assert equal(ours | {"counters": None}, theirs | {"counters": None})


def test_a_batch_of_bad_samples_changes_nothing(name):
    method = make(name)
    method(images(20))
    before = method.state_dict()
    assert method(torch.full((3, 3, 8, 8), torch.nan)).isnan().all()
    after = method.state_dict()
    assert after["counters"].pop("rejected_samples") == 3 and before["counters"].pop("rejected_samples") == 0
    assert after["counters"].pop("samples") == 23 and before["counters"].pop("samples") == 20
    assert equal(after, before)


class Overflowing(nn.Module):
    """Its logits overflow for samples whose first pixel is above 100."""

    def __init__(self):
        super().__init__()
        self.body = network("iabn")

    def forward(self, x):
        wild = (x[:, 0, 0, 0] > 100).view(-1, 1)
        return self.body(x.clamp(-5, 5)) + torch.where(wild, torch.inf, 0.0)


def test_a_sample_whose_logits_are_not_finite_counts_as_bad(name):
    x = images(60)
    clean = torch.cat([x[:7], x[8:]])
    x[7, 0, 0, 0] = 1000
    method, twin = tta.METHODS[name](Overflowing()), tta.METHODS[name](Overflowing())
    logits, expected = method(x), twin(clean)
    assert logits[7].isnan().all() and method.counters["rejected_samples"] == 1
    torch.testing.assert_close(torch.cat([logits[:7], logits[8:]]), expected)
    assert equal(method.state_dict()["parts"], twin.state_dict()["parts"])


@pytest.mark.parametrize("shape", [(4, 5, 8, 8), (4, 3, 8), (3, 8), (4, 3, 8, 8, 8)])
def test_a_wrong_shape_is_refused_before_anything_changes(name, shape):
    method = make(name)
    method(images(20))
    before, weights = method.state_dict(), snapshot(method.model)
    with pytest.raises(ValueError, match="shape"):
        method(torch.rand(shape))
    assert equal(method.state_dict(), before) and same(snapshot(method.model), weights)
    assert all(m.training is False for m in method.model.modules())


@pytest.mark.parametrize(
    "x", [torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [[1.0]], torch.zeros(2, 3, 8, 8).long()]
)
def test_what_is_not_a_floating_point_tensor_is_refused(name, x):
    with pytest.raises(TypeError, match="x must be"):
        make(name)(x)


def test_double_precision_input_is_taken(name):
    assert torch.equal(make(name)(images(9).double()), make(name)(images(9)))


def test_half_precision_models_run(name):
    model = network("iabn" if name.startswith("note") else "bn").bfloat16()
    with torch.backends.mkldnn.flags(enabled=False):  # its bfloat16 convolutions crash on some CPUs
        assert tta.METHODS[name](model)(images(70)).dtype == torch.bfloat16


def test_a_foreign_state_is_refused_and_changes_nothing(name):
    method = make(name)
    method(images(70))
    before = method.state_dict()
    other = make("onda" if name != "onda" else "source").state_dict()
    for state, message in [
        (other, "the state is of"),
        ({}, "expected a dict"),
        (before | {"parts": {"stranger": {}}}, "parts does not fit"),
        (before | {"counters": {}}, "counters does not fit"),
        (before | {"model": {"stranger": torch.zeros(1)}}, "model does not fit"),
    ]:
        with pytest.raises(ValueError, match=message):
            method.load_state_dict(state)
        assert equal(method.state_dict(), before)


def test_saved_states_hold_tensors_and_plain_values_only(name):
    def check(value):
        if isinstance(value, dict):
            for key, item in value.items():
                assert isinstance(key, str | int)
                check(item)
        elif isinstance(value, list | tuple):
            for item in value:
                check(item)
        else:
            assert value is None or isinstance(value, torch.Tensor | str | int | float | bool)

    method = make(name)
    method(images(70))
    check(method.state_dict())


def test_two_threads_on_one_method_take_turns(name):
    x = images(96)
    method = make(name)
    failures = []

    def work():
        try:
            for part in x.split(8):
                assert torch.isfinite(method(part)).all()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures and method.counters["samples"] == 192


def test_repr_tells_what_it_is_doing(name):
    method = make(name)
    method(images(70))
    text = repr(method)
    total = sum(p.numel() for p in method.model.parameters())
    assert type(method).__name__ in text and f"% of the model's {total}" in text and "samples 70" in text


def test_a_model_that_is_no_module_is_refused(name):
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got str"):
        tta.METHODS[name]("model")
