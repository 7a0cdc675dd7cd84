import ctypes
import inspect
import math
import warnings

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from note_tta.nn import IABN2d, functional, kernels, native, operators, surroundings

needs_kernel = pytest.mark.skipif(not native.kernel().active, reason=f"no kernel: {native.kernel().reason}")

SHAPES = [
    (3, 5, 4, 4),
    (2, 64, 4, 4),
    (2, 16, 4, 4),
    (4, 20, 7, 7),
    (3, 16, 2, 2),
    (2, 9, 3, 3),
    (2, 3, 1, 2),
    (5, 33, 16, 16),
    (1, 64, 32, 32),
    (2, 17, 5, 5),
    (1, 130, 9, 13),
    (2, 70, 6),
    (3, 8, 151),
    (2, 12, 2, 3, 5),
]
LAYOUTS = {3: [None], 4: [None, torch.channels_last], 5: [None, torch.channels_last_3d]}
CASES = [
    pytest.param(shape, layout, id=f"{shape}-{layout}") for shape in SHAPES for layout in LAYOUTS[len(shape)]
]


def case(shape, layout=None, seed=0, affine=True):
    """An input whose instances differ in location and scale, so that every branch of the formula is taken."""
    g = torch.Generator().manual_seed(seed)
    channels, spread = shape[1], (*shape[:2], *[1] * (len(shape) - 2))
    x = torch.randn(shape, generator=g) * (0.3 + 2 * torch.rand(spread, generator=g))
    x = x + 0.7 * torch.randn(spread, generator=g)
    mean, var = 0.3 * torch.randn(channels, generator=g), 0.2 + torch.rand(channels, generator=g)
    weight = torch.randn(channels, generator=g) if affine else None
    bias = torch.randn(channels, generator=g) if affine else None
    return x if layout is None else x.contiguous(memory_format=layout), mean, var, weight, bias


def run(function, tensors, dtype=torch.float32, **settings):
    """The output, its gradients and the statistics afterwards; all in `dtype`, or each in its own dtype."""
    x, mean, var, weight, bias = (None if t is None else t.clone().to(dtype or t.dtype) for t in tensors)
    leaves = [t.requires_grad_() for t in (x, weight, bias) if t is not None]
    out = function(x, mean, var, weight, bias, **settings)
    push = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    grads = torch.autograd.grad(out, leaves, push.contiguous(memory_format=torch.preserve_format))
    return [out.detach(), *grads, mean, var]


def close(found, expected, tolerance=1e-5):
    for a, b in zip(found, expected, strict=True):
        b = b.float()
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * max(1.0, b.abs().max().item()))


def takes_kernel(*arguments, **settings):
    x, *layer = arguments
    return settings.get("alpha", 4.0) < 1e12 and kernels._fits(x, layer, x.shape[1])


@pytest.fixture(params=[0, 1, 2], ids=["base", "avx2", "avx512"])
def instruction_set(request):
    limit = ctypes.CDLL(str(native.kernel().path)).iabn_limit
    if limit(request.param) != request.param:
        limit(-1)
        pytest.skip("this machine does not have the instruction set")
    yield
    limit(-1)


@needs_kernel
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize(("shape", "layout"), CASES)
def test_kernel_equals_the_formula(instruction_set, shape, layout, training):
    for alpha in (0.0, 0.7, 4.0):
        for correction in (0, 1):
            tensors = case(shape, layout, affine=alpha != 0.7)
            settings = {"training": training, "alpha": alpha, "correction": correction}
            assert takes_kernel(*tensors, alpha=alpha) == (layout is None or shape[1] >= 4)
            close(
                run(kernels.iabn, tensors, **settings),
                run(functional.iabn, tensors, torch.float64, **settings),
            )


HALVES = {torch.bfloat16: 2**-8, torch.float16: 2**-11}


def halved(tensors, dtype, params):
    """The tensors of a 16-bit model; its norm tensors may be float32."""
    return [tensors[0].to(dtype), *(None if t is None else t.to(params) for t in tensors[1:])]


@needs_kernel
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("wide", [True, False], ids=["float32-norm", "16-bit-norm"])
@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((3, 5, 4, 4), None),
        ((4, 20, 7, 7), None),
        ((2, 9, 3, 3), None),
        ((2, 3, 1, 2), None),
        ((2, 70, 6), None),
        ((4, 20, 7, 7), torch.channels_last),
        ((1, 130, 9, 13), torch.channels_last),
    ],
)
def test_sixteen_bits_equal_the_formula(instruction_set, shape, layout, wide, dtype, training):
    tensors = halved(case(shape, layout), dtype, torch.float32 if wide else dtype)
    assert takes_kernel(*tensors)
    found = run(kernels.iabn, tensors, None, training=training, alpha=1.0)
    expected = run(functional.iabn, tensors, torch.float64, training=training, alpha=1.0)
    assert [t.dtype for t in found] == [dtype] * 2 + [torch.float32 if wide else dtype] * 4
    close([t.float() for t in found], expected, 2 * HALVES[dtype])


@needs_kernel
@pytest.mark.parametrize("dtype", HALVES)
def test_every_sixteen_bit_number_is_read_and_rounded_right(instruction_set, dtype):
    numbers = torch.arange(2**16).to(torch.int16).view(dtype).reshape(1, 1, -1, 16)
    for factor in (1.0, 1.0003, 0.7):
        weight = torch.full((1, 1), factor)
        out = kernels.iabn_rows(numbers, torch.zeros(1, 1), torch.ones(1, 1), weight, eps=0.0, alpha=math.inf)
        assert torch.equal(out.isnan(), numbers.isnan())
        torch.testing.assert_close(out, (numbers.float() * weight).to(dtype), rtol=0, atol=0, equal_nan=True)


@needs_kernel
@pytest.mark.parametrize("layout", [None, torch.channels_last])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_first_value_far_off_costs_no_digits(instruction_set, layout, training, threads):
    """Statistics are summed about the first value, which may be a hundred standard deviations from the mean."""
    x, *layer = case((1, 9, 112, 112), layout)
    x[:, ::2, 0, 0] += 3000
    settings = {"training": training, "alpha": 0.5}
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        found = run(kernels.iabn, (x, *layer), **settings)
    finally:
        torch.set_num_threads(before)
    close(found, run(functional.iabn, (x, *layer), torch.float64, **settings))


@needs_kernel
@pytest.mark.parametrize(("shape", "layout"), CASES)
def test_inference_equals_the_differentiable_operator(shape, layout):
    tensors = case(shape, layout)
    with torch.no_grad():
        bare = kernels.iabn(*tensors)
    assert torch.equal(bare, run(kernels.iabn, tensors)[0])
    assert bare.stride() == tensors[0].stride()


def layers_of_rows(x, seed=2, affine=True):
    g = torch.Generator().manual_seed(seed)
    size = x.shape[:2]
    mean, var = 0.5 * torch.randn(size, generator=g), 0.2 + torch.rand(size, generator=g)
    weight, bias = torch.randn(size, generator=g), torch.randn(size, generator=g)
    return (mean, var, weight, bias) if affine else (mean, var, None, None)


def one_by_one(x, layers, **settings):
    """The output of each row alone, with its own layer, in float64."""
    wide = [t if t is None else t.double() for t in layers]
    rows = [
        functional.iabn(x[b : b + 1].double(), *(t if t is None else t[b] for t in wide), **settings)
        for b in range(len(x))
    ]
    return torch.cat(rows)


@pytest.mark.parametrize("alpha", [0.0, 0.7, 4.0, math.inf])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    ("shape", "layout"),
    [*[c.values for c in CASES], ((5, 7), None), ((5, 7, 1), None), ((40, 24, 20, 20), torch.channels_last)],
)
def test_rows_with_layers_of_their_own_equal_calls_one_by_one(shape, layout, affine, alpha):
    x = case(shape, layout)[0]
    layers = layers_of_rows(x, affine=affine)
    for correction in (0, 1):
        settings = {"alpha": alpha, "correction": correction}
        expected = one_by_one(x, layers, **settings)
        for function in (functional.iabn_rows, kernels.iabn_rows):
            out = function(x, *layers, **settings)
            close([out], [expected])
            assert out.stride() == x.stride()


@needs_kernel
@pytest.mark.parametrize("alpha", [4.0, math.inf])
@pytest.mark.parametrize("layout", [None, torch.channels_last])
def test_rows_take_the_kernel(monkeypatch, layout, alpha):
    x = case((3, 16, 8, 8), layout)[0]
    layers = layers_of_rows(x)
    monkeypatch.setattr(functional, "iabn_rows", None)
    whole = kernels.iabn_rows(x, *layers, alpha=alpha)
    alone = [kernels.iabn_rows(x[b : b + 1], *(t[b : b + 1] for t in layers), alpha=alpha) for b in range(3)]
    assert torch.equal(whole, torch.cat(alone))
    if alpha != math.inf:
        assert torch.equal(whole[1:2], kernels.iabn(x[1:2], *(t[1] for t in layers)))


def test_rows_are_differentiable():
    x = case((3, 6, 4, 4))[0].double().requires_grad_()
    layers = [t.double() for t in layers_of_rows(x)]
    run = lambda x, w, b: kernels.iabn_rows(x, *layers[:2], w, b, alpha=1.0)  # noqa: E731
    assert torch.autograd.gradcheck(run, (x, *(t.requires_grad_() for t in layers[2:])))


@pytest.mark.parametrize("function", [functional.iabn_rows, kernels.iabn_rows])
def test_rows_refuse_a_layer_of_another_shape(function):
    x = case((3, 6, 4, 4))[0]
    mean, var, *_ = layers_of_rows(x)
    with pytest.raises(ValueError, match=r"expected statistics of shape \[3, 6\], got \[6\]"):
        function(x, mean[0], var)
    with pytest.raises(ValueError, match=r"expected statistics of shape \[3, 6\], got \[2, 6\]"):
        function(x, mean, var[:2])


@needs_kernel
@pytest.mark.parametrize("layout", [None, torch.channels_last])
def test_no_running_statistics_means_the_batch_s(layout):
    x, _, _, weight, bias = case((4, 8, 6, 6), layout)
    found = kernels.iabn(x, None, None, weight, bias)
    close([found], [functional.iabn(x.double(), None, None, weight.double(), bias.double())])


@needs_kernel
@pytest.mark.parametrize("layout", [None, torch.channels_last])
@pytest.mark.parametrize("shape", [(7, 40, 4, 4), (7, 40, 9, 9), (7, 20, 20, 20), (1, 40, 23, 23)])
def test_a_sample_is_answered_alike_in_any_batch_and_on_any_number_of_threads(shape, layout):
    x, *layer = case(shape, layout)
    whole = kernels.iabn(x, *layer)
    assert torch.equal(whole, torch.cat([kernels.iabn(sample, *layer) for sample in x.split(1)]))
    trained = run(kernels.iabn, (x, *layer), training=True)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert torch.equal(whole, kernels.iabn(x, *layer))
        again = run(kernels.iabn, (x, *layer), training=True)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(trained, again, strict=True))


@needs_kernel
@pytest.mark.parametrize("layout", [None, torch.channels_last])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_a_bad_sample_leaves_its_neighbours_alone(layout, poison):
    x, *layer = case((3, 16, 5, 5), layout)
    clean = kernels.iabn(x, *layer)
    x[1, 2, 3, 3] = poison
    out = kernels.iabn(x, *layer)
    assert torch.equal(out[[0, 2]], clean[[0, 2]])
    assert not out[1, 2].isfinite().all()
    others = [c for c in range(16) if c != 2]
    assert torch.equal(out[1, others], clean[1, others])


@needs_kernel
@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize(
    ("shape", "layout"),
    [((2, 9, 5, 5), None), ((2, 9, 5, 5), torch.channels_last), ((1, 8, 24, 24), torch.channels_last)],
)
def test_an_instance_that_is_nearly_constant_keeps_its_digits(instruction_set, shape, layout, alpha):
    """Its values differ only in their last digits, and the rounding error of its mean is as large as that."""
    x, mean, var, weight, bias = case(shape, layout)
    x = (100 + 1e-4 * x).contiguous(memory_format=layout or torch.contiguous_format)
    layer = (mean, 1e-6 * var, weight, bias)
    expected = functional.iabn(x.double(), *(t.double() for t in layer), alpha=alpha)
    close([kernels.iabn(x, *layer, alpha=alpha)], [expected], 1e-4)


@needs_kernel
@pytest.mark.parametrize("layout", [None, torch.channels_last])
def test_variance_survives_a_large_offset(layout):
    x, mean, var, weight, bias = case((2, 8, 24, 24), layout)
    shifted = x + 4096  # leaves 2^-11 of precision in the input itself
    out = kernels.iabn(shifted, mean + 4096, var, weight, bias)
    exact = functional.iabn(
        shifted.double(), (mean + 4096).double(), var.double(), weight.double(), bias.double()
    )
    torch.testing.assert_close(out, exact.float(), rtol=1e-3, atol=2e-3)
    constant = torch.full((2, 8, 24, 24), 1e4)
    if layout is not None:
        constant = constant.contiguous(memory_format=layout)
    assert kernels.iabn(constant, mean, var, alpha=0.0).abs().max() == 0


@needs_kernel
@pytest.mark.parametrize("training", [False, True])
def test_frozen_parameters_and_inputs_get_no_gradient(training):
    x, mean, var, weight, bias = case((4, 8, 6, 6))
    weight.requires_grad_()
    kernels.iabn(x, mean.clone(), var.clone(), weight, bias, training=training).square().sum().backward()
    assert x.grad is None and bias.grad is None
    wide = [t.double() for t in (x, mean, var, weight.detach(), bias)]
    wide[3].requires_grad_()
    functional.iabn(*wide, training=training).square().sum().backward()
    close([weight.grad], [wide[3].grad])


@needs_kernel
def test_gradients_can_be_differentiated_again():
    x, mean, var, weight, bias = case((2, 4, 3, 3))
    found = []
    for function, dtype in ((kernels.iabn, torch.float32), (functional.iabn, torch.float64)):
        leaf = x.to(dtype).requires_grad_()
        out = function(leaf, *(t.to(dtype) for t in (mean, var, weight, bias)), alpha=0.5)
        (grad,) = torch.autograd.grad(out.pow(3).sum(), leaf, create_graph=True)
        found.append(torch.autograd.grad(grad.square().sum(), leaf)[0])
    close(found[:1], found[1:], 1e-4)


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        (lambda x, *layer: (x[..., :1, :1], *layer), {}),
        (lambda x, *layer: (x[:0], *layer), {}),
        (lambda x, *layer: (x, *layer), {"alpha": math.inf}),
        (lambda x, *layer: (x.transpose(2, 3), *layer), {}),
        (lambda x, *layer: (x[:, :, ::2], *layer), {}),
        (lambda x, mean, *layer: (x.double(), mean.double(), *(t.double() for t in layer)), {}),
        (lambda x, mean, *layer: (x.bfloat16(), mean.half(), *layer), {}),
        (lambda x, *layer: (x.bfloat16().transpose(2, 3), *layer), {}),
        (lambda x, *layer: (x, *layer), {"alpha": 1e30}),
        (lambda x, mean, *layer: (x, mean.double(), *layer), {}),
        (lambda x, mean, var, weight, bias: (x, mean, var, weight.repeat(2)[::2], bias), {}),
        (lambda x, mean, *layer: (x, mean.requires_grad_(), *layer), {}),
    ],
    ids=[
        "one-position",
        "empty",
        "inf",
        "transposed",
        "strided",
        "double",
        "two-halves",
        "half-transposed",
        "all-but-inf",
        "mixed",
        "gaps",
        "learned",
    ],
)
def test_what_the_kernel_cannot_take_goes_by_the_formula(change, settings):
    tensors = change(*case((2, 6, 4, 6)))
    assert not takes_kernel(*tensors, **settings)
    assert torch.equal(kernels.iabn(*tensors, **settings), functional.iabn(*tensors, **settings))


def test_functional_transforms_take_the_formula():
    x, *layer = case((3, 4, 5, 5))
    each = torch.func.vmap(lambda sample: kernels.iabn(sample[None], *layer)[0])(x)
    torch.testing.assert_close(each, functional.iabn(x, *layer), atol=1e-5, rtol=1e-5)
    grad = torch.func.grad(lambda x: kernels.iabn(x, *layer).square().sum())(x)
    leaf = x.clone().requires_grad_()
    functional.iabn(leaf, *layer).square().sum().backward()
    torch.testing.assert_close(grad, leaf.grad, atol=1e-4, rtol=1e-4)
    _, along = torch.func.jvp(lambda x: kernels.iabn(x, *layer), (x,), (torch.ones_like(x),))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        tangent = forward_ad.unpack_dual(kernels.iabn(dual, *layer)).tangent
    torch.testing.assert_close(tangent, along)


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@needs_kernel
def test_dispatch_modes_see_the_operator():
    tensors = case((2, 8, 4, 4))
    with torch.no_grad(), Seen() as seen:
        out = kernels.iabn(*tensors)
    assert seen.names == ["note_tta::iabn_infer"]
    assert torch.equal(out, kernels.iabn(*tensors))


@needs_kernel
@pytest.mark.parametrize("training", [False, True])
def test_dispatch_modes_see_the_operator_with_a_graph_and_its_gradient(training):
    tensors = case((4, 8, 4, 4))
    with Seen() as seen:
        observed = run(kernels.iabn, tensors, training=training)
    assert {"note_tta::iabn", "note_tta::iabn_backward"} <= set(seen.names)
    for found, expected in zip(run(kernels.iabn, tensors, training=training), observed, strict=True):
        assert torch.equal(found, expected)


@needs_kernel
@pytest.mark.parametrize("layout", [None, torch.channels_last])
def test_operators_keep_pytorch_s_contract(layout):
    x, mean, var, weight, bias = case((2, 8, 4, 4), layout)
    settings = (1e-5, 4.0, 0)
    torch.library.opcheck(torch.ops.note_tta.iabn_infer, (x, mean, var, weight, bias, *settings))
    x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()
    torch.library.opcheck(torch.ops.note_tta.iabn, (x, mean, var, weight, bias, *settings))
    torch.library.opcheck(torch.ops.note_tta.iabn, (x, None, None, weight, bias, *settings))


@needs_kernel
def test_operators_take_a_layout_that_a_compiler_chose():
    x, *layer = case((2, 8, 4, 6))
    odd = x.transpose(2, 3)
    out = torch.ops.note_tta.iabn_infer(odd, *layer, 1e-5, 4.0, 0)
    assert out.stride() == torch.empty_like(odd).stride()
    close([out], [functional.iabn(odd.double(), *(t.double() for t in layer))])
    full = torch.ops.note_tta.iabn(odd, *layer, 1e-5, 4.0, 0)
    grads = operators.backward(
        torch.ones_like(odd), odd, *full[1:3], *layer[:3], 1e-5, 4.0, 0, training=False, wanted=True
    )
    leaf = odd.double().requires_grad_()
    functional.iabn(leaf, *(t.double() for t in layer)).sum().backward()
    close([grads[0]], [leaf.grad])


@pytest.mark.parametrize("shape", [(4, 8, 6, 6), (4, 8, 1, 1)])
@pytest.mark.parametrize("norm", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("alpha", [1.0, math.inf])
@pytest.mark.parametrize("correction", [0, 1])
@pytest.mark.parametrize("switch", ["on", "off"])
def test_any_mix_of_dtypes_is_taken(monkeypatch, shape, norm, dtype, alpha, correction, switch):
    """In eval and train mode, forward and backward, under autocast and not, with and without the kernel."""
    if switch == "off":
        monkeypatch.setattr(kernels, "_fits", lambda *_: False)
    x = case(shape)[0]
    for training in (False, True):
        exact = IABN2d(8, alpha=alpha, correction=correction).double().train(training)
        truth = exact(x.to(dtype).double())
        truth.square().sum().backward()
        for cast in (None, torch.bfloat16, torch.float16):
            layer = IABN2d(8, alpha=alpha, correction=correction).to(norm).train(training)
            leaf = x.to(dtype).requires_grad_()
            with torch.autocast("cpu", dtype=cast, enabled=cast is not None):
                out = layer(leaf)
            out.float().square().sum().backward()
            assert out.dtype == leaf.grad.dtype == dtype and layer.weight.grad.dtype == norm
            torch.testing.assert_close(out.double(), truth, atol=0.03, rtol=0.02)
            torch.testing.assert_close(layer.bias.grad.double(), exact.bias.grad, atol=1.0, rtol=0.03)
            torch.testing.assert_close(layer.running_var.double(), exact.running_var, atol=0.02, rtol=0.02)


def test_a_missing_kernel_is_said_once(monkeypatch, tmp_path):
    missing = native.load(tmp_path / "_iabn.so")
    assert not missing.active and "no working C compiler" in missing.reason
    monkeypatch.setattr(kernels, "kernel", lambda: missing)
    kernels._say_once.cache_clear()
    tensors = case((2, 4, 3, 3))
    with pytest.warns(RuntimeWarning, match=r"fast kernel is off.*_iabn\.so does not exist.*note-tta doctor"):
        out = kernels.iabn(*tensors)
    assert torch.equal(out, functional.iabn(*tensors))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernels.iabn(*tensors)
    kernels._say_once.cache_clear()


def test_a_kernel_that_is_switched_off_says_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv(native.SWITCH, "off")
    off = native.load(native.kernel().path)
    assert not off.active and off.switched_off and native.SWITCH in off.reason
    monkeypatch.setattr(kernels, "kernel", lambda: off)
    kernels._say_once.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernels.iabn(*case((2, 4, 3, 3)))
    kernels._say_once.cache_clear()


def test_a_broken_kernel_is_reported_not_raised(tmp_path):
    path = tmp_path / "_iabn.so"
    path.write_bytes(b"not a shared object")
    broken = native.load(path)
    assert not broken.active and "cannot be loaded" in broken.reason


@needs_kernel
def test_a_kernel_of_another_version_is_not_called(monkeypatch):
    monkeypatch.setattr(native, "_INTERFACE", 1)
    old = native.load(native.kernel().path)
    assert not old.active and "built from another version: install the package again" in old.reason


@needs_kernel
@pytest.mark.parametrize("name", ["_functorch", "_is_tracing", "_len_torch_dispatch_stack"])
def test_a_private_name_that_torch_drops_turns_the_kernel_off(monkeypatch, name):
    class Renamed:
        def __getattr__(self, key):
            if key == name:
                raise AttributeError(f"module 'torch._C' has no attribute {key!r}")
            return getattr(torch._C, key)

    source = inspect.getsource(surroundings).replace("torch._C.", "_C.")
    there = {"_C": Renamed()}
    exec(source, there)
    assert name in there["MISSING"]
    monkeypatch.setattr(surroundings, "MISSING", there["MISSING"])
    off = native.load(native.kernel().path)
    assert not off.active and name in off.reason
    monkeypatch.setattr(kernels, "kernel", lambda: off)
    kernels._say_once.cache_clear()
    tensors = case((2, 4, 3, 3))
    with pytest.warns(RuntimeWarning, match=name):
        assert torch.equal(kernels.iabn(*tensors), functional.iabn(*tensors))
    kernels._say_once.cache_clear()


@needs_kernel
def test_the_kernel_shares_torch_s_threads():
    assert native.kernel().isa in ("base", "avx2", "avx512")
    assert "torch" in native.kernel().threads


def test_type_of_tensor_is_kept_for_subclasses():
    class Marked(Tensor):
        pass

    x, *layer = case((2, 4, 3, 3))
    assert type(kernels.iabn(x.as_subclass(Marked), *layer)) is Marked


def test_a_lazily_negated_input_keeps_its_sign():
    x = torch.complex(torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)).conj().imag
    layer = IABN2d(3).eval()
    with torch.no_grad():
        assert x.is_neg()
        torch.testing.assert_close(layer(x), layer(x.resolve_neg().contiguous()))
