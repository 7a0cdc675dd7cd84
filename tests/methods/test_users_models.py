"""What users do with a model before, beside and after a method: every method copes, or says what is wrong."""

import copy
import warnings

import pytest
import torch
from networks import CLASSES, images, make, network
from torch import nn

import note_tta as tta

NAMES = list(tta.METHODS)
LEARNING = [name for name in NAMES if name not in ("source", "lame", "bn_stats")]


class Viewing(nn.Module):
    """A classifier that flattens by `view(len, -1)`, which no empty batch survives."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.head = inner[:7], nn.Linear(8, CLASSES)

    def forward(self, x):
        features = self.inner(x)
        return self.head(features.view(features.size(0), -1))


class Video(nn.Module):
    """A classifier of clips `[B, T, 3, 8, 8]` that folds time into the batch, time first or last."""

    def __init__(self, inner, time_first):
        super().__init__()
        self.inner, self.time_first = inner, time_first

    def forward(self, x):
        batch, time = x.shape[:2]
        frames = x.transpose(0, 1) if self.time_first else x
        logits = self.inner(frames.reshape(batch * time, *x.shape[2:]))
        return (
            logits.view(time, batch, -1).mean(0) if self.time_first else logits.view(batch, time, -1).mean(1)
        )


class Activated(nn.BatchNorm2d):
    """A norm layer with its activation inside."""

    def forward(self, x):
        return torch.relu(super().forward(x))


def activated():
    """The network, each norm layer and its ReLU in one."""
    model = network()
    for i in (1, 4):
        own = Activated(8).eval()
        own.load_state_dict(model[i].state_dict())
        model[i], model[i + 1] = own, nn.Identity()
    return model


@pytest.mark.parametrize("name", NAMES)
def test_a_single_bad_sample_is_answered_by_a_model_that_takes_no_empty_batch(name):
    method = tta.METHODS[name](Viewing(network()).eval())
    assert method(torch.full((1, 3, 8, 8), torch.nan)).isnan().all()
    assert method(torch.rand(0, 3, 8, 8)).shape == (0, CLASSES)
    assert method.counters["rejected_samples"] == 1


@pytest.mark.parametrize("time_first", [True, False])
@pytest.mark.parametrize("name", ["note", "onda"])
def test_clips_folded_into_the_batch_are_told_apart(name, time_first):
    method = tta.METHODS[name](Video(network(), time_first), interval=4)
    clips = images(12).view(4, 3, 3, 8, 8)
    for size in (1, 3):
        assert method(clips[:size]).shape == (size, CLASSES)
    assert method.counters["updates"] == 1
    loud = clips.clone()
    loud[2, 1] *= 1000
    assert torch.isfinite(method(loud)).all()
    assert method.counters["rejected_samples"] == 1


@pytest.mark.parametrize("name", ["bn_stats", "tent", "pl", "cotta"])
def test_a_norm_layer_with_its_own_forward_keeps_it(name):
    x = images(64)
    plain, inside = tta.METHODS[name](network()), tta.METHODS[name](activated())
    for _ in range(2):
        torch.testing.assert_close(inside(x), plain(x), atol=1e-5, rtol=1e-4)


def test_a_norm_layer_with_its_own_forward_is_not_converted_silently():
    with pytest.raises(ValueError, match="Activated has a forward of its own, which would be lost"):
        tta.convert_iabn(activated())


@pytest.mark.parametrize("name", NAMES)
def test_inference_mode_makes_no_difference(name):
    torch.manual_seed(0)
    expected = make(name)
    method = make(name)
    for start in range(0, 256, 64):
        x = images(256)[start : start + 64]
        answers = expected(x)
        with torch.inference_mode():
            torch.testing.assert_close(method(x.clone()), answers)
    assert method.counters == expected.counters
    with torch.inference_mode():
        seen = images(64, seed=5)
        state = method.state_dict()
        method.reset()
        method.load_state_dict(state)
    torch.testing.assert_close(method(seen), expected(images(64, seed=5)))


@pytest.mark.parametrize("name", LEARNING)
def test_an_update_that_raises_leaves_no_trace_in_the_model(name, monkeypatch):
    method = make(name)
    method(images(64))
    before = copy.deepcopy(method.state_dict())

    def fail(*args, **keywords):
        for tensor in method._adapted.values():
            tensor.data.add_(1)
        raise KeyboardInterrupt

    target = method if hasattr(method, "learn") else method._optimizer
    monkeypatch.setattr(target, "learn" if target is method else "step", fail)
    with pytest.raises(KeyboardInterrupt):
        method(images(64, seed=2))
    after = method.state_dict()
    assert all(torch.equal(after["model"][key], before["model"][key]) for key in before["model"])


@pytest.mark.parametrize("name", ["note", "onda"])
def test_a_model_of_mixed_precision_is_updated_in_the_precision_of_its_input(name):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1, dtype=torch.float64))
            self.inner = network()

        def forward(self, x):
            assert x.dtype == torch.float64
            return self.inner((x * self.scale).float())

    method = tta.METHODS[name](Mixed(), interval=4)
    method(images(8))
    assert method.counters["updates"] == 2


@pytest.mark.parametrize("name", ["note", "onda"])
def test_a_method_made_over_an_adapted_model_resumes_exactly(name):
    method = make(name, interval=4)
    for seed in range(20):
        method(images(64, seed=seed) * 4)
    again = tta.METHODS[name](copy.deepcopy(method.model), interval=4)
    again.load_state_dict(method.state_dict())
    x = torch.cat([images(32, seed=50), images(32, seed=51) * 9])
    assert torch.equal(again(x), method(x))
    assert again.counters == method.counters


@pytest.mark.parametrize("name", LEARNING)
def test_buffers_that_a_conversion_replaced_are_followed(name):
    method = make(name)
    start = copy.deepcopy(method.model.state_dict())
    method.model.double()
    for seed in range(2):
        method(images(64, seed=seed))
    assert method.counters["updates"] > 0
    live = method.model.state_dict()
    assert all(torch.equal(tensor, live[key]) for key, tensor in method.state_dict()["model"].items())
    method.reset()
    for key, tensor in method.model.state_dict().items():
        assert torch.equal(tensor, start[key].to(tensor.dtype))


@pytest.mark.parametrize("name", [name for name in LEARNING if name != "onda"])
def test_a_model_whose_parts_were_replaced_is_refused(name):
    method = make(name)
    method.model.load_state_dict(network(seed=1).state_dict(), assign=True)
    with pytest.raises(RuntimeError, match="was replaced after the method was made"):
        method(images(64))


@pytest.mark.parametrize("name", ["onda", "pbrs"])
def test_a_model_converted_too_late_is_refused(name):
    method = tta.ONDA(network()) if name == "onda" else tta.NOTE(network())
    tta.convert_iabn(method.model)
    with pytest.raises(RuntimeError, match=r"layer '1' was replaced .* convert the model first"):
        method(images(64))


def test_a_state_of_other_norm_layers_is_refused():
    saved = tta.NOTE(tta.convert_iabn(network())).state_dict()
    for other, told in (
        (network(), "here it is BatchNorm2d"),
        (tta.convert_iabn(network(), alpha=2), r"here it is IABN2d\(alpha=2"),
    ):
        with pytest.raises(ValueError, match=rf"1 is IABN2d\(alpha=4, correction=0\), {told}"):
            tta.NOTE(other).load_state_dict(saved)


@pytest.mark.parametrize("name", ["note", "tent"])
def test_a_setting_that_an_older_torch_did_not_save_is_the_optimizers_own(name):
    method = make(name)
    method(images(64))
    state = method.state_dict()
    del state["parts"]["optimizer"]["param_groups"][0]["maximize"]
    again = make(name)
    again.load_state_dict(state)
    assert torch.equal(again(images(64, seed=2)), method(images(64, seed=2)))


def test_a_mask_of_a_model_may_be_infinite():
    model = network()
    model.register_parameter("mask", nn.Parameter(torch.tensor([0.0, -torch.inf])))
    method = tta.CoTTA(model)
    method.load_state_dict(method.state_dict())
    state = method.state_dict()
    state["model"]["0.weight"][0] = torch.inf
    with pytest.raises(ValueError, match="not finite"):
        method.load_state_dict(state)


def test_a_models_own_complaint_about_a_shape_is_a_value_error():
    class Strict(nn.Sequential):
        def forward(self, x):
            torch._assert(x.shape[-1] == 8, "Wrong size")
            return super().forward(x)

    with pytest.raises(ValueError, match=r"does not take samples of shape \(3, 9, 9\): Wrong size"):
        tta.Source(Strict(*network()))(torch.rand(2, 3, 9, 9))


@pytest.mark.parametrize("name", ["note", "onda", "bn_stats", "lame"])
def test_a_forward_of_the_callers_own_is_run_and_kept(name):
    model = network()
    layer = model[9] if name == "lame" else model[1]
    calls = []
    own = layer.forward

    def counting(x):
        calls.append(len(x))
        return own(x)

    layer.forward = counting
    expected = tta.METHODS[name](network())(images(8))
    assert torch.equal(tta.METHODS[name](model)(images(8)), expected)
    assert calls == [8]
    assert layer.forward is counting


def test_a_swapped_forward_is_the_same_object_every_time():
    layer = nn.Linear(2, 2)
    swap = SwappedForward({"a": layer}, lambda name, own, x: own(x) + 1)
    seen = []
    for _ in range(2):
        with swap:
            seen.append(layer.__dict__["forward"])
            assert torch.equal(layer(torch.zeros(1, 2)), layer.bias.detach()[None] + 1)
    assert seen[0] is seen[1]
    assert "forward" not in layer.__dict__


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_model_is_compiled_a_few_times_only(name):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    keywords = {"interval": 16} if name in ("note", "onda") else {}
    keywords |= {"augmentations": 2} if name == "cotta" else {}
    plain = tta.METHODS[name](network(), **keywords)
    compiled = tta.METHODS[name](torch.compile(network(), backend=counter), **keywords)
    for seed in range(12):
        x = images(16, seed=seed)
        torch.testing.assert_close(compiled(x), plain(x), atol=1e-4, rtol=1e-3)
    assert counter.frame_count <= 6


def test_a_parameter_that_two_layers_share_is_stepped_once():
    model = network()
    model[4].weight, model[4].bias = model[1].weight, model[1].bias
    method = tta.NOTE(model, interval=4, lr=0.01)
    before = model[1].weight.detach().clone()
    method(images(4))
    assert (model[1].weight.detach() - before).abs().max() <= 0.0101


def test_a_memory_that_is_none_is_refused():
    with pytest.raises(TypeError, match=r"memory must be a Memory such as PBRS\(64\), got int"):
        tta.NOTE(network(), 64)
    with pytest.raises(TypeError, match="interval must be an int, got float"):
        tta.NOTE(network(), interval=4.0)


def test_a_sample_without_its_batch_is_told_apart_from_another_shape():
    method = make("note")
    method(images(2))
    with pytest.raises(ValueError, match=r"got \(8, 8\): x\[None\] is a batch of one"):
        method(images(1)[0])


def test_a_stream_of_another_scale_is_warned_of_once():
    method = make("note", interval=16)
    method(images(20))
    with pytest.warns(RuntimeWarning, match="the last 16 samples were answered but not learned from"):
        method(torch.rand(16, 3, 8, 8) * 255)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method(torch.rand(16, 3, 8, 8) * 255)


@pytest.mark.parametrize("layer", [tta.IABN2d(3), tta.IABN2d(1)])
@pytest.mark.parametrize("training", [True, False])
def test_iabn_refuses_another_number_of_channels(layer, training):
    layer.train(training)
    before = copy.deepcopy(layer.state_dict())
    with pytest.raises(ValueError, match=f"expected {layer.num_features} channels, got 2"):
        layer(torch.rand(4, 2, 4, 4))
    assert all(torch.equal(value, before[key]) for key, value in layer.state_dict().items())
