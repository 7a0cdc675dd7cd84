"""What users do with a model before, during and after adaptation: every method works, or says what is wrong."""

import copy
import threading
import warnings
from collections import OrderedDict
from functools import partial

import pytest
import torch
from networks import CLASSES, EAGER, images, make, network
from torch import nn

import note_tta as tta
from note_tta.checks import equal
from note_tta.methods.draft import Draft

NAMES = list(tta.METHODS)
SEEN = ("memory", "random", "schedule", "prototypes")
"""Parts that follow what was seen, whether it was learned from or not."""
LEARNING = [name for name in NAMES if name not in ("source", "lame", "bn_stats")]


class Viewing(nn.Module):
    """A classifier that flattens by `view(len, -1)`, which fails for an empty batch."""

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
    """The network, with each norm layer and its ReLU in one module."""
    model = network()
    for i in (1, 4):
        own = Activated(8).eval()
        own.load_state_dict(model[i].state_dict())
        model[i], model[i + 1] = own, nn.Identity()
    return model


@pytest.mark.parametrize("name", NAMES)
def test_a_single_bad_sample_is_answered_by_a_model_that_takes_no_empty_batch(name):
    method = make(name, model=Viewing(network("iabn")).eval())
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
    assert method.counters["unlearned_samples"] == 1


@pytest.mark.parametrize("name", ["bn_stats", "tent", "pl", "cotta"])
def test_a_norm_layer_with_its_own_forward_keeps_it(name):
    x = images(64)
    plain, inside = tta.METHODS[name](network()), tta.METHODS[name](activated())
    for _ in range(2):
        torch.testing.assert_close(inside(x), plain(x), atol=1e-5, rtol=1e-4)


def test_a_norm_layer_with_its_own_forward_is_not_converted_silently():
    with pytest.raises(ValueError, match="Activated has its own forward, which would be lost"):
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
def test_an_update_that_raises_leaves_no_trace(name, monkeypatch):
    method = make(name, **EAGER.get(name, {}))
    method(images(64))
    before = copy.deepcopy(method.state_dict())

    def fail(draft, *args, **keywords):
        for tensor in draft.tensors.values():
            tensor.data.add_(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(Draft, "value" if name in ("onda", "unmix_tns") else "step", fail)
    with pytest.raises(KeyboardInterrupt):
        method(images(64, seed=2))
    after = method.state_dict()
    for key in ("model", "parts"):
        stored = {k: v for k, v in after[key].items() if k not in SEEN}
        assert equal(stored, {k: before[key][k] for k in stored})


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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", ["fine-tuned", "cast", "loaded"])
def test_a_model_that_changed_under_a_live_method_is_an_error_at_the_next_call(name, change):
    model = network("iabn")
    method = make(name, model=model)
    method(images(4))
    if change == "fine-tuned":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(images(4)).sum().backward()
        optimizer.step()
    elif change == "cast":
        model.double()
    else:
        model.load_state_dict(network("iabn", seed=1).state_dict())
    if name == "cotta" and change != "loaded":  # every parameter is its own, the statistics are shared
        method(images(4))
        return
    with pytest.raises(
        ValueError, match=r"was (changed|moved or cast) after the method was made: make a new method"
    ):
        method(images(4))


def test_what_the_caller_does_to_norm_layers_does_not_reach_the_method():
    model = network("iabn")
    method, twin = tta.NOTE(model), tta.NOTE(network("iabn"))
    with torch.no_grad():
        model[1].weight.mul_(3)
    tta.convert_bn(model)
    model.train()
    assert torch.equal(method(images(130)), twin(images(130)))


def test_a_state_of_other_norm_layers_is_refused():
    saved = tta.NOTE(tta.convert_iabn(network())).state_dict()
    for other, told in (
        (network(), "but here it is BatchNorm2d"),
        (tta.convert_iabn(network(), alpha=2), r"but here it is IABN2d\(alpha=2"),
    ):
        with pytest.raises(ValueError, match=rf"1 is IABN2d\(alpha=4, correction=0\), {told}"):
            tta.NOTE(other).load_state_dict(saved)


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

    with pytest.raises(ValueError, match=r"does not accept samples of shape \(3, 9, 9\): Wrong size"):
        tta.Source(Strict(*network()))(torch.rand(2, 3, 9, 9))


@pytest.mark.parametrize("name", ["note", "bn_stats"])
def test_a_function_in_the_place_of_a_forward_is_refused_where_it_would_run_the_callers_layer(name):
    model = network("iabn")
    own = model[1].forward
    model[1].forward = lambda x: own(x)
    with pytest.raises(ValueError, match="write a subclass with that forward"):
        make(name, model=model)(images(8))
    assert torch.isfinite(tta.Source(model)(images(8))).all()


class Closing(nn.Module):
    """Runs one of its layers through a function that was made in its constructor, or in a hook."""

    def __init__(self, hooked):
        super().__init__()
        self.body, self.norm = network("iabn"), tta.IABN2d(3)
        if hooked:
            self.body[0].register_forward_pre_hook(lambda module, x: self.norm(x[0]))
        else:
            self.before = lambda x, norm=self.norm: norm(x)

    def forward(self, x):
        return self.body(x if "before" not in vars(self) else self.before(x))


@pytest.mark.parametrize("hooked", [False, True])
def test_a_function_that_holds_the_callers_layer_is_refused_where_that_layer_adapts(hooked):
    model = Closing(hooked).eval()
    hook = "body.0 has a function in _forward_pre_hooks, .* use the module that it is called with"
    with pytest.raises(
        ValueError, match=hook if hooked else "the model has a function in before, .* as a method"
    ):
        tta.NOTE(model)
    assert torch.isfinite(tta.Source(model)(images(8))).all()


def test_a_lock_or_an_open_file_of_a_model_is_shared(tmp_path):
    model = network("iabn")
    model.lock, model[3].log = threading.Lock(), (tmp_path / "log").open("w")
    with model[3].log:
        method, plain = tta.NOTE(model, interval=16), tta.NOTE(network("iabn"), interval=16)
        assert torch.equal(method(images(70)), plain(images(70)))
        assert method.model.lock is model.lock and method.fork().counters["updates"] == 4
    model.locks = [threading.Lock()]
    with pytest.raises(TypeError, match="Sequential holds something that cannot be copied"):
        tta.NOTE(model)


def test_hooks_run_on_the_methods_own_layers_too():
    model = network("iabn")
    seen = []

    class Recorder:
        def hook(self, module, inputs, output):
            seen.append(module)

    recorder = Recorder()
    model[1].register_forward_hook(recorder.hook)
    method = tta.NOTE(model)
    method(images(3))
    assert len(seen) == 1 and seen[0] is not model[1]
    assert method.model[1]._forward_hooks and len(model[1]._forward_hooks) == 1


def test_a_model_that_refers_to_its_own_layers_is_copied_whole():
    class Listing(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = network("iabn")
            self.order = list(self.body)  # a plain list of layers

        def forward(self, x):
            for layer in self.order:
                x = layer(x)
            return x

    model = Listing().eval()
    before = copy.deepcopy(model.state_dict())
    method, plain = tta.NOTE(model, interval=16), tta.NOTE(network("iabn"), interval=16)
    assert torch.equal(method(images(70)), plain(images(70)))
    assert equal(model.state_dict(), before)


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.jit.script], ids=["DataParallel", "script"])
def test_models_that_cannot_be_shared_are_refused_by_name(wrap):
    model = wrap(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    with pytest.raises(
        TypeError, match=r"give the method (model\.module|the model that it was scripted from)"
    ):
        tta.TENT(model)


def test_replicas_inside_a_model_are_refused_by_their_name():
    with pytest.raises(TypeError, match=r"replace body by body\.module"):
        tta.TENT(nn.Sequential(OrderedDict(body=nn.DataParallel(network("iabn")))))


def test_a_state_of_other_quantised_weights_is_refused():
    body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    other = copy.deepcopy(body)
    with torch.no_grad():
        other[2].weight.mul_(-1)
    ours, theirs = (tta.TENT(torch.ao.quantization.quantize_dynamic(m, {nn.Linear})) for m in (body, other))
    with pytest.raises(ValueError, match="the state belongs to another model"):
        ours.load_state_dict(theirs.state_dict())
    same = tta.TENT(torch.ao.quantization.quantize_dynamic(body, {nn.Linear}))
    same.load_state_dict(ours.state_dict())


def test_a_model_without_shapes_yet_is_refused():
    with pytest.raises(ValueError, match="has no shape yet: run the model once before wrapping it"):
        tta.TENT(nn.Sequential(nn.LazyLinear(4), nn.BatchNorm1d(4)))


def test_a_quantised_part_is_shared():
    body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    model = torch.ao.quantization.quantize_dynamic(body, {nn.Linear})
    method = tta.TENT(model)
    assert method(torch.rand(16, 8)).shape == (16, 3)
    assert method.counters["updates"] + method.counters["rejected_updates"] == 1


class Detecting(nn.Module):
    """Returns a dict, or a tuple."""

    def __init__(self, keyed):
        super().__init__()
        self.body, self.keyed = network("iabn"), keyed

    def forward(self, x):
        logits = self.body(x)
        return {"logits": logits, "features": x} if self.keyed else (x, logits)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("keyed", "output"), [(True, "logits"), (False, 1), (True, lambda out: out["logits"])]
)
def test_logits_are_taken_out_of_what_the_model_returns(name, keyed, output):
    plain = make(name, model=network("iabn"))
    method = make(name, model=Detecting(keyed), output=output)
    assert torch.equal(method(images(70)), plain(images(70)))
    assert isinstance(method.model(images(2)), dict if keyed else tuple)


def test_an_output_that_is_not_there_says_what_is():
    with pytest.raises(
        ValueError,
        match=r"^output='scores' is not in what the model returned, the keys \['features', 'logits'\]",
    ):
        tta.Source(Detecting(True), output="scores")(images(2))
    with pytest.raises(ValueError, match=r"gave dict; say with output=… where the logits are"):
        tta.Source(Detecting(True))(images(2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", LEARNING)
def test_a_model_of_half_precision_adapts_in_float32(name, dtype):
    model = network("iabn").to(dtype)
    method = make(name, model=model, **EAGER.get(name, {}))
    start = method.state_dict()["model"]
    with torch.backends.mkldnn.flags(enabled=False):  # its 16-bit convolutions crash on some CPUs
        for seed in range(3):
            answers = method(images(64, seed=seed))
    assert answers.dtype == dtype and torch.isfinite(answers).all()
    assert method.counters["updates"] >= 3 and method.counters["rejected_updates"] == 0
    state = method.state_dict()["model"]
    assert all(tensor.dtype in (torch.float32, torch.int64) for tensor in state.values())
    changed = {key: not torch.equal(tensor, start[key]) for key, tensor in state.items()}
    assert all(changed[key] for key in state if not key.endswith("num_batches_tracked"))
    assert all(p.dtype == dtype for p in model.parameters())


@pytest.mark.parametrize("name", ["note", "tent", "cotta", "onda"])
def test_methods_adapt_under_autocast(name):
    method = make(name, model=network("iabn"), **({"delay": 8} if name == "note" else {}))
    start = method.state_dict()["model"]
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", dtype=torch.bfloat16):
        for seed in range(3):
            assert torch.isfinite(method(images(64, seed=seed))).all()
    assert method.counters["updates"] >= 2 and method.counters["rejected_updates"] == 0
    assert not all(torch.equal(t, start[k]) for k, t in method.state_dict()["model"].items())


def test_a_method_moves_to_another_device_with_copies_of_its_own():
    model = network("iabn")
    method = tta.NOTE(model, interval=8)
    method(images(9))
    assert method.to("cpu") is method
    method.to("meta")
    assert all(t.device.type == "meta" for t in method.model.state_dict().values())
    assert all(t.device.type == "cpu" for t in model.state_dict().values())


def test_pickled_to_a_spawned_process(tmp_path):
    method = make("note", interval=16)
    method(images(20))
    context = torch.multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        answers = pool.apply_async(run_there, (method, images(40, seed=2))).get(timeout=300)
    assert torch.equal(answers, method(images(40, seed=2)))


def run_there(method, x):
    torch.set_num_threads(1)
    return method(x)


@pytest.mark.parametrize("name", ["source", "bn_stats", "tent", "cotta", "note", "rotta", "unmix_tns"])
def test_a_compiled_model_is_compiled_a_few_times_only(name):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    keywords = {"interval": 16} if name in ("note", "onda") else {}
    keywords |= {"augmentations": 2} if name == "cotta" else {}
    plain = make(name, model=network("iabn"), **keywords)
    compiled = make(name, model=torch.compile(network("iabn"), backend=counter), **keywords)
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
    moved = (method.model[1].weight.detach() - before).abs().max()
    assert 0.009 < moved <= 0.0101 and method.model[4].weight is method.model[1].weight


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


@pytest.mark.parametrize("make_one", [*(partial(make, name) for name in NAMES), tta.adapt])
def test_a_method_that_is_made_in_inference_mode_is_refused(make_one):
    model = network("iabn")
    with (
        torch.inference_mode(),
        pytest.raises(RuntimeError, match=r"make the method outside of torch\.inference_mode"),
    ):
        make_one(model=model)


def test_a_model_that_was_made_in_inference_mode_is_refused_and_a_copy_is_not():
    with torch.inference_mode():
        model = network("iabn")
    with pytest.raises(ValueError, match=r"was made in inference mode, .* or give the method copy.deepcopy"):
        tta.NOTE(model)
    tta.NOTE(copy.deepcopy(model))(images(128))


@pytest.mark.parametrize("wrap", [tta.Watch, tta.TemporalFilter])
def test_a_wrapper_that_is_made_in_inference_mode_is_refused(wrap):
    method = tta.NOTE(network("iabn"))
    with (
        torch.inference_mode(),
        pytest.raises(RuntimeError, match=r"make the method outside of torch\.inference_mode"),
    ):
        wrap(method)


@pytest.mark.parametrize("wrap", [tta.Watch, tta.TemporalFilter])
def test_a_wrapper_works_in_and_out_of_inference_mode(wrap):
    method, twin = wrap(tta.NOTE(network("iabn"))), wrap(tta.NOTE(network("iabn")))
    with torch.inference_mode():
        torch.testing.assert_close(method(images(200)), twin(images(200)))
        method.load_state_dict(method.state_dict())
        method = method.fork()
    torch.testing.assert_close(method(images(200, seed=1)), twin(images(200, seed=1)))
    method.reset()


class Unlearnable(nn.Module):
    """Its answers are finite, and the gradients of its norm layer are not."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x):
        z = self.norm(self.conv(x)).relu().mean((2, 3)) * 0
        return self.head(z / (1 + z.norm(dim=1, keepdim=True).sqrt()))


@pytest.mark.parametrize("name", ["tent", "cotta", "note"])
def test_updates_that_are_undone_again_and_again_are_warned_of(name):
    method = make(name, model=Unlearnable().eval())
    with pytest.warns(RuntimeWarning, match="the last 3 updates were not finite and were undone"):
        for _ in range(4):
            method(images(64))
    assert method.counters["rejected_updates"] >= 3
    assert method.counters["updates"] == 0


def test_a_fork_keeps_its_memory_to_itself():
    fork = tta.NOTE(network("iabn")).fork()
    with pytest.raises(ValueError, match="in use by another method"):
        tta.NOTE(network("iabn"), memory=fork.memory)


def test_moving_to_the_same_device_keeps_the_model():
    method = tta.NOTE(network("iabn"))
    before = method.model
    assert method.to("cpu").model is before


def test_cotta_warns_of_images_that_its_views_would_clip():
    with pytest.warns(RuntimeWarning, match=r"CoTTA clips its random views of images to \[0, 1\]"):
        tta.CoTTA(network(), augmentations=1, p_th=1.0)(2 * images(8) + 1)


def test_a_fisher_matrix_is_computed_under_the_callers_no_grad():
    with torch.no_grad():
        tta.EATA(network(), [images(16)])(images(64))


def test_a_state_brings_ondas_interval_and_the_memory_that_belongs_to_it():
    method, other = tta.ONDA(network(), interval=20), tta.ONDA(network())
    method(images(50))
    other.load_state_dict(method.state_dict())
    torch.testing.assert_close(other(images(64)), method(images(64)))
    other.reset()
    assert (other.interval, other.memory.capacity) == (10, 10)


@pytest.mark.parametrize("bad", [torch.full((2, 3, 16, 16), torch.nan), torch.zeros(0, 3, 16, 16)])
def test_another_size_is_refused_even_if_there_is_nothing_to_answer(bad):
    method = tta.NOTE(network("iabn"))
    method(images(4))
    with pytest.raises(ValueError, match="the memory holds samples of shape"):
        method(bad)
    assert method.counters["samples"] == 4


def test_a_state_loads_at_once_while_an_update_is_computed():
    class Stuck(tta.NOTE):
        def learn(self, draft, x):
            started.set()
            assert let_go.wait(60)
            super().learn(draft, x)

    started, let_go = threading.Event(), threading.Event()
    method = Stuck(network("iabn"), delay=64)
    state = method.state_dict()
    method(images(64))
    assert started.wait(60)
    method.load_state_dict(state)  # it would wait for ever
    let_go.set()
    assert method.counters["samples"] == 0


class WithoutGradients(nn.Module):
    """A model whose forward computes no gradients, as some that are made for deployment."""

    def __init__(self):
        super().__init__()
        self.inner = network("iabn")

    @torch.no_grad()
    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize(
    "name", [name for name in LEARNING if name not in ("onda", "unmix_tns", "eata", "petta")]
)
def test_a_model_that_computes_no_gradients_is_told_from_others(name):
    method = make(name, model=WithoutGradients(), **EAGER.get(name, {}))
    with pytest.raises(ValueError, match=r"computes no gradients.*remove torch.no_grad\(\)"):
        for _ in range(2):
            method(images(64))


@pytest.mark.parametrize(("name", "settings"), [("sotta", {"confidence": 0.999}), ("eta", {"margin": 1e-6})])
def test_a_stream_that_is_never_learned_from_is_warned_of_once(name, settings):
    method = make(name, **settings)
    for _ in range(31):
        method(images(64))
    with pytest.warns(RuntimeWarning, match="the last 32 updates were skipped") as caught:
        for _ in range(40):
            method(images(64))
    assert len(caught) == 1 and method.counters["skipped_updates"] == 71
    assert method.counters["updates"] == 0


def test_a_state_is_not_given_the_fingerprint_of_a_model_that_was_changed_since():
    model = network("iabn")
    method = tta.NOTE(model)
    method(images(64))
    with torch.no_grad():
        model[-1].weight.neg_()
    with pytest.raises(ValueError, match="was changed after the method was made"):
        method.state_dict()


def test_a_parameter_of_integers_does_not_learn():
    model = network()
    model.shift = nn.Parameter(torch.zeros(2, dtype=torch.long), requires_grad=False)
    method = tta.CoTTA(model, augmentations=2)
    method(images(8))
    assert method.counters["updates"] == 1


def test_a_state_without_the_name_of_the_classifier_finds_it_again():
    method = tta.LAME(network())
    answers, state = method(images(8)), method.state_dict()
    state["settings"]["classifier"] = None
    method.load_state_dict(state)
    assert torch.equal(method(images(8)), answers)


@pytest.mark.parametrize(
    "message", ["DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes", "bad shape"]
)
def test_a_lack_of_memory_is_not_blamed_on_the_samples(message):
    class Fails(nn.Module):
        def forward(self, x):
            raise RuntimeError(message)

    expected = ValueError if message == "bad shape" else RuntimeError
    with pytest.raises(expected) as caught:
        tta.Source(Fails())(images(2))
    assert ("does not accept samples" in str(caught.value)) == (expected is ValueError)
