import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import note_tta as tta
from note_tta.nn.functional import iabn

SHAPES = {1: (3, 4, 12), 2: (3, 4, 5, 6), 3: (2, 4, 3, 4, 5)}
LAYERS = {1: tta.IABN1d, 2: tta.IABN2d, 3: tta.IABN3d}
BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def written(x, mean, var, weight, bias, eps, alpha, correction):
    """The paper's equations, sample by sample and channel by channel."""
    out = torch.empty_like(x)
    for b in range(x.shape[0]):
        for c in range(x.shape[1]):
            values = x[b, c].reshape(-1)
            count = len(values)
            own_mean = values.sum() / count
            own_var = ((values - own_mean) ** 2).sum() / (count - correction)
            m, v = mean[c], var[c]
            wide_mean = alpha * math.sqrt((v + eps) / count)
            wide_var = alpha * (v + eps) * math.sqrt(2 / (count - 1))

            def beyond(d, t):
                return d - t if d > t else d + t if d < -t else 0.0

            new_mean = m + beyond(own_mean - m, wide_mean)
            new_var = max(v + beyond(own_var - v, wide_var), 0.0)
            out[b, c] = weight[c] * (x[b, c] - new_mean) / math.sqrt(new_var + eps) + bias[c]
    return out


def drifted(dim, dtype, seed=0):
    """An input whose samples differ from the layer's statistics by different amounts."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(SHAPES[dim], generator=g, dtype=dtype)
    scale = torch.linspace(0.3, 3, x.shape[0], dtype=dtype).view(-1, *[1] * (x.ndim - 1))
    return x * scale + torch.linspace(-2, 2, x.shape[0], dtype=dtype).view_as(scale)


def layer_of(dim, dtype=torch.float32, **keywords):
    torch.manual_seed(1)
    layer = LAYERS[dim](4, **keywords).to(dtype)
    with torch.no_grad():
        layer.running_mean.uniform_(-0.5, 0.5)
        layer.running_var.uniform_(0.5, 2)
        if layer.affine:
            layer.weight.uniform_(0.5, 1.5)
            layer.bias.uniform_(-1, 1)
    return layer


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("correction", [0, 1])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 4.0])
def test_eval_equals_the_written_formula(dim, dtype, tolerance, correction, alpha):
    layer = layer_of(dim, dtype, alpha=alpha, correction=correction).eval()
    x = drifted(dim, dtype)
    expected = written(
        x.double(),
        layer.running_mean.double(),
        layer.running_var.double(),
        layer.weight.double(),
        layer.bias.double(),
        layer.eps,
        alpha,
        correction,
    )
    torch.testing.assert_close(layer(x).detach().double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("correction", [0, 1])
def test_train_equals_the_written_formula(dim, dtype, tolerance, correction):
    layer = layer_of(dim, dtype, correction=correction, alpha=1.0)
    x = drifted(dim, dtype)
    rows = x.double().transpose(0, 1).reshape(4, -1)
    mean, var = rows.mean(1), rows.var(1, correction=correction)
    expected = written(
        x.double(), mean, var, layer.weight.double(), layer.bias.double(), layer.eps, 1.0, correction
    )
    before_mean, before_var = layer.running_mean.clone(), layer.running_var.clone()
    torch.testing.assert_close(layer(x).detach().double(), expected, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(layer.running_mean, 0.9 * before_mean + 0.1 * mean.to(dtype))
    torch.testing.assert_close(layer.running_var, 0.9 * before_var + 0.1 * rows.var(1).to(dtype))
    assert layer.num_batches_tracked == 1


def test_channels_last_equals_contiguous():
    layer = layer_of(2, torch.float64).eval()
    x = drifted(2, torch.float64)
    torch.testing.assert_close(layer(x.to(memory_format=torch.channels_last)), layer(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 4.0, math.inf])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("correction", [0, 1])
def test_gradients_are_those_of_the_function(alpha, training, correction):
    layer = layer_of(2, torch.float64)
    x = drifted(2, torch.float64).requires_grad_()
    stats = (None, None) if training else (layer.running_mean, layer.running_var)

    def run(x, weight, bias):
        return iabn(x, *stats, weight, bias, training=training, alpha=alpha, correction=correction)

    assert torch.autograd.gradcheck(run, (x, layer.weight, layer.bias))


def gradients(run, *leaves):
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    out = run(*leaves)
    torch.manual_seed(3)
    return out, torch.autograd.grad(out, leaves, torch.randn_like(out))


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("training", [True, False])
def test_alpha_zero_is_instance_norm(dim, training):
    layer = layer_of(dim, torch.float64)
    stats = (None, None) if training else (layer.running_mean, layer.running_var)
    leaves = (drifted(dim, torch.float64), layer.weight, layer.bias)
    ours = gradients(lambda x, w, b: iabn(x, *stats, w, b, training=training, alpha=0.0), *leaves)
    torchs = gradients(lambda x, w, b: F.instance_norm(x, None, None, w, b, True, 0.1, 1e-5), *leaves)
    torch.testing.assert_close(ours, torchs, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("alpha", [math.inf, 1e30, 1e9])
def test_infinite_alpha_is_batch_norm(dim, training, alpha):
    ours, torchs = layer_of(dim, torch.float64, alpha=alpha), BATCH_NORMS[dim](4).double()
    torchs.load_state_dict(ours.state_dict())
    x = drifted(dim, torch.float64)
    outputs = []
    for layer in (ours.train(training), torchs.train(training)):
        leaf = x.clone().requires_grad_()
        out = layer(leaf)
        torch.manual_seed(3)
        out.backward(torch.randn_like(out))
        outputs.append(
            (out, leaf.grad, layer.weight.grad, layer.bias.grad, layer.running_mean, layer.running_var)
        )
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-8, rtol=1e-8)


def test_correction_one_is_the_unbiased_variant_of_the_released_code():
    """Re-derived: unbiased variances of sample and batch, two soft shrinkages, a rectified variance."""
    x = drifted(2, torch.float64)
    mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True)
    own_mean, own_var = x.mean((2, 3), keepdim=True), x.var((2, 3), keepdim=True)
    positions = 30
    s_mean, s_var = ((var + 1e-5) / positions).sqrt(), (var + 1e-5) * math.sqrt(2 / (positions - 1))

    def soft(d, t):
        return F.relu(d - t) - F.relu(-d - t)

    mu = mean + soft(own_mean - mean, 4 * s_mean)
    sigma2 = F.relu(var + soft(own_var - var, 4 * s_var))
    expected = (x - mu) / (sigma2 + 1e-5).sqrt()
    ours = tta.IABN2d(4, correction=1).double()(x)
    torch.testing.assert_close(ours.detach(), expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 1)])
def test_a_single_position_is_plain_batch_norm(shape):
    ours, torchs = layer_of(1), nn.BatchNorm1d(4)
    torchs.load_state_dict(ours.state_dict())
    x = torch.randn(shape)
    for training in (True, False):
        torch.testing.assert_close(ours.train(training)(x), torchs.train(training)(x))
    torch.testing.assert_close(ours.state_dict(), torchs.state_dict())


@pytest.mark.parametrize(
    ("alpha", "shape"), [(4.0, (5, 4)), (4.0, (5, 4, 1)), (1e30, (5, 4, 6)), (math.inf, (5, 4, 6))]
)
def test_correction_one_is_unbiased_where_nothing_is_corrected(alpha, shape):
    """With a single position or an infinite alpha, the batch's variance is unbiased, as in the released code."""
    layer, x = layer_of(1, torch.float64, alpha=alpha, correction=1), torch.randn(shape).double()
    before = layer.running_var.clone()
    values = x.transpose(0, 1).reshape(4, -1)
    mean, var = values.mean(1), values.var(1, correction=1)
    scale = layer.weight / (var + layer.eps).sqrt()
    rest = (-1,) + (1,) * (len(shape) - 2)
    expected = (x - mean.view(rest)) * scale.view(rest) + layer.bias.view(rest)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer.running_var, 0.9 * before + 0.1 * var)

    def run(x, weight, bias):
        return iabn(x, None, None, weight, bias, training=True, alpha=alpha, correction=1)

    assert torch.autograd.gradcheck(run, (x.requires_grad_(), layer.weight, layer.bias))


@pytest.mark.parametrize("alpha", [1e12, 1e20, 1e30, 1e300])
@pytest.mark.parametrize("training", [True, False])
def test_a_boundless_alpha_has_batch_norm_s_gradients_in_float32(alpha, training):
    layer, torchs = layer_of(2, alpha=alpha).train(training), nn.BatchNorm2d(4).train(training)
    torchs.load_state_dict(layer.state_dict())
    leaves = [(1e4 * drifted(2, torch.float32)).requires_grad_() for _ in range(2)]
    for module, leaf in zip((layer, torchs), leaves, strict=True):
        module(leaf).square().sum().backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    torch.testing.assert_close(layer.weight.grad, torchs.weight.grad)


def test_cumulative_momentum_follows_batch_norm():
    ours, torchs = tta.IABN2d(4, momentum=None), nn.BatchNorm2d(4, momentum=None)
    for seed in range(3):
        x = drifted(2, torch.float32, seed)
        ours(x), torchs(x)
    torch.testing.assert_close(ours.state_dict(), torchs.state_dict())


def test_half_precision_keeps_statistics_wide():
    layer = layer_of(2).eval()
    x = 200 * drifted(2, torch.float32)
    half = copy.deepcopy(layer).bfloat16()(x.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), layer(x), atol=0.15, rtol=0.05)


def test_an_empty_batch_passes():
    assert layer_of(2).eval()(torch.empty(0, 4, 5, 5)).shape == (0, 4, 5, 5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tta.IABN2d(4, alpha=-1), "alpha must be at least 0, got -1"),
        (lambda: tta.IABN2d(4, alpha=math.nan), "alpha must be at least 0, got nan"),
        (lambda: tta.IABN2d(4, correction=2), "correction must be 0 or 1, got 2"),
        (lambda: tta.convert_iabn(nn.BatchNorm2d(4), alpha=-1), "alpha must be at least 0, got -1"),
        (lambda: tta.convert_iabn(nn.BatchNorm2d(4), correction=2), "correction must be 0 or 1, got 2"),
        (lambda: tta.convert_iabn(nn.LazyBatchNorm2d()), "run the model once before converting"),
        (lambda: tta.IABN2d(4)(torch.zeros(2, 4, 3)), r"expected 4D input \(got 3D input\)"),
        (lambda: tta.IABN1d(4)(torch.zeros(2, 4, 3, 3)), "expected 2D or 3D input"),
        (lambda: tta.IABN2d(4)(torch.zeros(1, 4, 1, 1)), "more than 1 value per channel"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.BatchNorm2d(4)
        self.body = nn.ModuleDict({"a": nn.Sequential(nn.Conv2d(4, 4, 1), self.shared), "b": self.shared})
        self.free = nn.BatchNorm2d(4, affine=False)
        self.memoryless = nn.BatchNorm2d(4, track_running_stats=False)

    def forward(self, x):
        return self.memoryless(self.free(self.body["b"](self.body["a"](x))))


def test_convert_replaces_every_layer_and_keeps_everything():
    model = Nested().double().eval()
    model.shared.weight.requires_grad_(False)
    model.free.train()
    parameters, buffers = list(model.parameters()), list(model.buffers())
    keys = list(model.state_dict())
    x = drifted(2, torch.float64)
    converted = tta.convert_iabn(model, alpha=math.inf)
    assert converted is model
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert all(a is b for a, b in zip(model.buffers(), buffers, strict=True))
    assert list(model.state_dict()) == keys
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms and all(isinstance(m, tta.IABN2d) for m in norms)
    assert model.shared is model.body["b"] is model.body["a"][1]
    assert not model.shared.weight.requires_grad and not model.shared.training and model.free.training
    assert model.free.weight is None and model.memoryless.running_mean is None
    reference = Nested().double().eval()
    reference.load_state_dict(model.state_dict())
    reference.free.train()
    torch.testing.assert_close(model(x), reference(x))


def test_convert_and_back_is_the_model_it_was():
    model = nn.Sequential(nn.BatchNorm2d(4), nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm3d(4)))
    kinds = [type(m) for m in model.modules()]
    back = tta.convert_bn(tta.convert_iabn(model))
    assert [type(m) for m in back.modules()] == kinds
    assert not hasattr(back[0], "alpha")


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (nn.BatchNorm1d(4), tta.IABN1d),
        (nn.BatchNorm2d(4), tta.IABN2d),
        (nn.BatchNorm3d(4), tta.IABN3d),
        (nn.SyncBatchNorm(4), tta.IABN2d),
    ],
)
def test_a_root_that_is_a_batch_norm_is_returned_converted(layer, kind):
    weight = layer.weight
    converted = tta.convert_iabn(layer, alpha=2.0)
    assert type(converted) is kind and converted.weight is weight and converted.alpha == 2.0


def test_converting_again_changes_the_settings():
    layer = tta.convert_iabn(tta.convert_iabn(nn.BatchNorm2d(4)), alpha=1.0, correction=1)
    assert (layer.alpha, layer.correction) == (1.0, 1)


def test_a_batch_norm_state_dict_loads_and_hooks_survive():
    bn = nn.BatchNorm2d(4)
    calls = []
    bn.register_forward_hook(lambda *_: calls.append(1))
    layer = tta.convert_iabn(bn)
    layer.load_state_dict(nn.BatchNorm2d(4).state_dict(), strict=True)
    layer(torch.randn(2, 4, 3, 3))
    assert calls == [1]
    assert isinstance(layer, nn.modules.batchnorm._BatchNorm)


def test_half_precision_models_convert():
    model = tta.convert_iabn(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(torch.bfloat16)).eval()
    assert model(torch.rand(2, 3, 8, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_tools_that_look_for_batch_norm_find_it(dim):
    assert issubclass(LAYERS[dim], BATCH_NORMS[dim])


def test_layers_copy_and_pickle():
    layer = layer_of(2, alpha=2.0).eval()
    x = drifted(2, torch.float32)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(twin(x), layer(x))
