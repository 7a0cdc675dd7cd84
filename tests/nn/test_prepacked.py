"""Prepacked convolutions: the same answers, never stale ones, and plain layers wherever PyTorch has to see them."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, weight_norm
from torch.utils.flop_counter import FlopCounterMode

import note_tta as tta
from note_tta.nn import PrepackedConv2d, convert_iabn, prepack_convolutions, prepacked

pytestmark = pytest.mark.skipif(not prepacked._available(), reason="this torch cannot prepack weights")


@pytest.fixture
def packed_calls(monkeypatch):
    """The number of samples of each convolution with prepacked weights."""
    sizes = []
    convolve = prepacked._convolve

    def noting(x, *others):
        sizes.append(len(x))
        return convolve(x, *others)

    monkeypatch.setattr(prepacked, "_convolve", noting)
    return sizes


def layer(*, seed=0, **settings):
    torch.manual_seed(seed)
    return nn.Conv2d(4, 8, 3, **settings).requires_grad_(False)


def network():
    torch.manual_seed(0)
    return convert_iabn(
        nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3),
            nn.Flatten(),
            nn.Linear(128, 5),
        )
    ).eval()


def images(count, *, seed=0, channels=4):
    return torch.rand(count, channels, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bias": False},
        {"padding": 1},
        {"stride": 2, "padding": (1, 0)},
        {"dilation": 2},
        {"groups": 2},
        {"groups": 4},
    ],
    ids=str,
)
@pytest.mark.parametrize("count", [1, 5])
def test_the_answers_are_those_of_the_plain_layer(settings, count, packed_calls):
    plain = layer(**settings)
    packed = prepack_convolutions(copy.deepcopy(plain))
    x = images(2 * count)
    for given in (x[:count], x[:count].to(memory_format=torch.channels_last), x[::2]):
        torch.testing.assert_close(packed(given), plain(given), atol=1e-5, rtol=1e-5)
    assert packed_calls == [count] * 3


CHANGES = {
    "load": lambda conv: conv.load_state_dict(layer(seed=1, bias=False).state_dict()),
    "another parameter": lambda conv: setattr(conv, "weight", frozen(layer(seed=2).weight)),
    "another memory": lambda conv: setattr(conv.weight, "data", layer(seed=3).weight.data),
    "in place": lambda conv: conv.weight.mul_(2),
    "fewer channels": lambda conv: setattr(conv, "weight", frozen(conv.weight.data[:4])),
    "smaller kernel": lambda conv: setattr(conv.weight, "data", conv.weight.data[:, :, :1, :1]),
    "transposed": lambda conv: setattr(conv.weight, "data", conv.weight.data.transpose(2, 3)),
    "stride": lambda conv: setattr(conv, "stride", (2, 2)),
    "one number as stride": lambda conv: setattr(conv, "stride", 2),
    "padding": lambda conv: setattr(conv, "padding", (2, 1)),
    "dilation": lambda conv: setattr(conv, "dilation", (2, 2)),
    "padding in words": lambda conv: setattr(conv, "padding", "same"),
    "padding mode": lambda conv: conv.__setstate__(
        vars(nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect"))
    ),
}


def frozen(tensor):
    return nn.Parameter(tensor, requires_grad=False)


@pytest.mark.parametrize("name", CHANGES)
def test_answers_follow_changes_of_the_layer(name):
    plain, x = layer(bias=False).to(memory_format=torch.channels_last), images(2)
    packed = prepack_convolutions(copy.deepcopy(plain))
    before = packed(x)
    torch.manual_seed(0)
    for conv in (plain, packed):
        with torch.random.fork_rng():
            CHANGES[name](conv)
    with torch.no_grad():
        after = packed(x)
        torch.testing.assert_close(after, plain(x), atol=1e-5, rtol=1e-5)
        assert after.stride() == plain(x).stride()
    assert after.shape != before.shape or not torch.allclose(after, before)


def test_after_changes_that_pytorch_does_not_count_another_call_packs_anew():
    plain, x = layer(), images(2)
    packed = prepack_convolutions(copy.deepcopy(plain))
    for conv in (plain, packed):
        conv.weight.data.mul_(2)
    prepack_convolutions(packed)
    torch.testing.assert_close(packed(x), plain(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bias", [torch.ones(1).expand(8), torch.arange(16.0).reshape(8, 2)[:, 1]])
def test_a_bias_of_any_layout_is_added(bias):
    plain = layer()
    packed = prepack_convolutions(copy.deepcopy(plain))
    for conv in (plain, packed):
        conv.bias = frozen(bias)
    torch.testing.assert_close(packed(images(2)), plain(images(2)), atol=1e-5, rtol=1e-5)


def test_weights_that_another_process_may_change_are_not_packed(packed_calls):
    packed = prepack_convolutions(layer()).share_memory()
    packed(images(2))
    assert packed_calls == []


@pytest.mark.parametrize(("channels", "kernel"), [(1, 3), (4, 1), (4, 3)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_layout_of_the_result_does_not_depend_on_gradients(kernel, channels, layout, packed_calls):
    conv = prepack_convolutions(nn.Conv2d(channels, 8, kernel).requires_grad_(False))
    x = images(2, channels=channels).to(memory_format=layout)
    assert conv(x).stride() == conv(x.clone().requires_grad_()).stride()
    assert packed_calls == [2]


def test_no_other_weights_get_the_address_of_those_that_were_packed():
    for _ in range(100):  # freed memory is not always used again at once
        packed = prepack_convolutions(layer())
        address = packed.weight.data_ptr()
        packed.weight = None
        assert address not in [tensor.data_ptr() for tensor in [torch.empty(8, 4, 3, 3) for _ in range(20)]]


def test_copies_share_packed_weights_until_theirs_differ():
    packed, x = prepack_convolutions(layer()), images(1)
    twin = copy.deepcopy(packed)
    assert twin.packing is packed.packing
    answer, own = packed(x), packed.packing
    twin.weight.mul_(3)
    assert not torch.allclose(twin(x), answer)
    assert packed.packing is own
    assert torch.equal(packed(x), answer)


def test_methods_share_the_packed_weights_of_the_model(packed_calls):
    model = prepack_convolutions(network())
    packings = [model[0].packing, model[3].packing]
    methods = [tta.NOTE(model), tta.Source(model), tta.NOTE(model).fork()]
    for method in methods:
        method(images(2, channels=3))
        assert [method.model[0].packing, method.model[3].packing] == packings
    assert packed_calls == [2] * 6


def test_a_pickle_leaves_the_packed_weights_out(packed_calls):
    plain, packed = layer(), prepack_convolutions(layer())
    sizes = [len(pickle.dumps(conv)) for conv in (plain, packed)]
    assert sizes[1] < sizes[0] + 500
    twin, x = pickle.loads(pickle.dumps(packed)), images(2)
    assert torch.equal(twin(x), packed(x)) and packed_calls == [2, 2]


def test_a_cast_layer_does_not_keep_packed_weights():
    packed = prepack_convolutions(layer())
    assert "packing" not in vars(packed.bfloat16())


def test_layers_keep_what_they_have():
    plain = nn.Sequential(layer(), nn.ReLU())
    packed = copy.deepcopy(plain)
    called = []
    packed[0].register_forward_hook(lambda *_: called.append(True))
    own = packed[0]
    assert prepack_convolutions(packed) is packed
    assert packed[0] is own and type(own) is PrepackedConv2d
    assert packed.state_dict().keys() == plain.state_dict().keys()
    packed(images(1))
    assert called == [True]


class OwnConv2d(nn.Conv2d):
    pass


@pytest.mark.parametrize(
    "other",
    [
        lambda: OwnConv2d(4, 8, 3),
        lambda: layer(padding=1, padding_mode="reflect"),
        lambda: layer(padding="same"),
        lambda: parametrizations.weight_norm(nn.Conv2d(4, 8, 3)),
        lambda: weight_norm(nn.Conv2d(4, 8, 3)),
        lambda: nn.Conv2d(4, 8, 3, padding=-1),
        lambda: nn.Conv2d(4, 8, 3).double(),
        lambda: nn.Conv2d(4, 8, 3, device="meta"),
        lambda: nn.Conv1d(4, 8, 3),
        lambda: nn.ConvTranspose2d(4, 8, 3),
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_other_layers_stay_as_they_are(other):
    conv = other()
    kind = type(conv)
    assert type(prepack_convolutions(conv)) is kind


def as_plain(run, conv, x, packed_calls):
    """Whether a prepacked layer does exactly what the plain one does, without its packed weights."""
    packed = prepack_convolutions(copy.deepcopy(conv))
    assert torch.equal(run(packed, x), run(conv.to(memory_format=torch.channels_last), x))
    assert packed_calls == []


def autocast(conv, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return conv(x)


def switched_off(conv, x):
    with torch.backends.mkldnn.flags(enabled=False):
        return conv(x)


def observed(conv, x):
    with FlopCounterMode(display=False) as counter:
        conv(x)
    return torch.tensor(counter.get_total_flops())


def backward(conv, x):
    x = x.clone().requires_grad_()
    conv(x).square().sum().backward()
    return x.grad


def compiled(conv, x):
    torch._dynamo.reset()
    return torch.compile(conv, backend="aot_eager", fullgraph=True)(x)


RUNS = {
    "autocast": autocast,
    "oneDNN off": switched_off,
    "observed": observed,
    "backward": backward,
    "double": lambda conv, x: conv.double()(x.double()),
    "no batch axis": lambda conv, x: conv(x[0, :, :4]),
    "no samples": lambda conv, x: conv(x[:0]),
    "vmap": lambda conv, x: torch.vmap(lambda sample: conv(sample[None])[0])(x),
    "compile": compiled,
    "export": lambda conv, x: torch.export.export(conv, (x,)).module()(x),
    "trace": lambda conv, x: torch.jit.trace(conv, x, check_trace=False)(x),
    "script": lambda conv, x: torch.jit.script(conv)(x),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_is_a_plain_convolution_where_pytorch_has_to_see_it(name, packed_calls):
    as_plain(RUNS[name], layer(), images(2), packed_calls)


@pytest.mark.parametrize("learned", ["weight", "bias"])
def test_parameters_that_learn_get_gradients(learned, packed_calls):
    conv = prepack_convolutions(layer())
    getattr(conv, learned).requires_grad_(True)
    conv(images(2)).sum().backward()
    assert getattr(conv, learned).grad is not None and packed_calls == []


@pytest.mark.parametrize(
    "x",
    [images(2, channels=3), images(2).double(), torch.rand(4), "text"],
    ids=["channels", "double", "one axis", "text"],
)
def test_bad_input_has_the_usual_error(x):
    errors = []
    for conv in (layer(), prepack_convolutions(layer())):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            conv(x)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_another_device_is_a_plain_convolution(packed_calls):
    conv = prepack_convolutions(layer()).to("meta")
    assert conv(images(2).to("meta")).shape == (2, 8, 6, 6) and packed_calls == []


@pytest.mark.parametrize(
    "surroundings",
    [
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.device("meta"),
        lambda: FlopCounterMode(display=False),
    ],
)
def test_what_surrounds_the_conversion_makes_no_difference_later(surroundings, packed_calls):
    prepacked._available.cache_clear()
    conv = layer()
    with surroundings():
        prepack_convolutions(conv)
    prepack_convolutions(conv)(images(2))
    assert packed_calls[-1:] == [2]


@pytest.mark.parametrize("delay", [0, 8])
def test_note_learns_the_same_on_a_prepacked_model(delay):
    streams = [
        tta.NOTE(model, tta.PBRS(24), interval=24, lr=1e-2, delay=delay)
        for model in (network(), prepack_convolutions(network()))
    ]
    x = images(100, channels=3)
    plain, packed = (method(x) for method in streams)
    torch.testing.assert_close(packed, plain, atol=1e-4, rtol=1e-4)
    assert streams[0].counters == streams[1].counters
    single = streams[1].fork()
    single.reset()
    torch.testing.assert_close(
        torch.cat([single(sample[None]) for sample in x]), packed, atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("name", ["note", "tent", "cotta"])
def test_a_state_fits_both_forms_of_a_model(name):
    plain, packed = (tta.METHODS[name](model) for model in (network(), prepack_convolutions(network())))
    x = images(80, channels=3)
    plain(x)
    packed.load_state_dict(plain.state_dict())
    torch.testing.assert_close(packed(x), plain(x), atol=1e-4, rtol=1e-4)


def test_a_torch_without_these_functions_computes_plainly(monkeypatch, packed_calls):
    packed = pickle.loads(pickle.dumps(prepack_convolutions(layer())))
    monkeypatch.setattr(prepacked, "_available", lambda: False)
    plain = prepack_convolutions(layer())
    assert type(plain) is nn.Conv2d
    torch.testing.assert_close(packed(images(2)), plain(images(2)), atol=1e-5, rtol=1e-5)
    assert packed_calls == []


def test_saving_a_whole_model_works():
    model, buffer = prepack_convolutions(network()), io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    x = images(2, channels=3)
    with torch.no_grad():
        assert torch.equal(torch.load(buffer, weights_only=False)(x), model(x))
