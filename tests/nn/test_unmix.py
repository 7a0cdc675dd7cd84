import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import note_tta as tta
from note_tta.nn.unmix import assignments


def layer(components=4, channels=3, **keywords):
    made = tta.UnMixTNS2d(channels, components, **keywords).eval()
    g = torch.Generator().manual_seed(0)
    made.running_mean.copy_(torch.randn(channels, generator=g))
    made.running_var.copy_(torch.rand(channels, generator=g) + 0.5)
    with torch.no_grad():
        made.weight.copy_(torch.randn(channels, generator=g))
        made.bias.copy_(torch.randn(channels, generator=g))
    made.spread(g)
    return made


def plain(x, means, variances, weight, bias, eps=1e-5):
    """The paper's layer, sample by sample and component by component; also returns the moved components."""
    out, q = torch.empty_like(x), torch.empty(len(x), len(means), dtype=x.dtype)
    for b, sample in enumerate(x):
        m = sample.mean((1, 2))
        v = ((sample - m[:, None, None]) ** 2).mean((1, 2))
        cosines = torch.stack([m @ g / (m.norm() * g.norm()) for g in means])
        q[b] = (cosines / 0.07).exp() / (cosines / 0.07).exp().sum()
        mixed = [(1 - q[b, g]) * means[g] + q[b, g] * m for g in range(len(means))]
        spread = [(1 - q[b, g]) * variances[g] + q[b, g] * v for g in range(len(means))]
        mean = sum(mixed) / len(means)
        var = sum(spread) / len(means) + sum(mu**2 for mu in mixed) / len(means) - mean**2
        normal = (sample - mean[:, None, None]) / (var + eps).sqrt()[:, None, None]
        out[b] = normal * weight[:, None, None] + bias[:, None, None]
    m = x.mean((2, 3))
    v = x.var((2, 3), unbiased=False)
    share = 1 - 0.9 ** (len(x) / 64)
    to_means, to_vars = means.clone(), variances.clone()
    for g in range(len(means)):
        to_means[g] += share * (q[:, g, None] * (m - means[g])).mean(0)
        to_vars[g] += share * (q[:, g, None] * (v - variances[g])).mean(0)
    return out, to_means, to_vars


def test_is_the_formula_written_sample_by_sample_and_its_components_move_as_written():
    made = layer().double()
    x = torch.randn(6, 3, 5, 4, dtype=torch.float64) * 2 + 1
    means, variances = made.component_mean.clone(), made.component_var.clone()
    expected, to_means, to_vars = plain(x, means, variances, made.weight, made.bias)
    torch.testing.assert_close(made(x), expected)
    assert torch.equal(made.component_mean, means), "in eval mode components stay"
    torch.testing.assert_close(made.train()(x), expected)
    torch.testing.assert_close(made.component_mean, to_means)
    torch.testing.assert_close(made.component_var, to_vars)


def test_the_switch_moves_components_in_eval_mode():
    made = layer()
    before = made.component_mean.clone()
    made.moves = True
    made(torch.randn(4, 3, 5, 5))
    assert not torch.equal(made.component_mean, before) and not made.training


def test_gradients_flow_through_a_samples_own_statistics_and_not_through_its_assignment():
    made = layer().double()
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    fixed = assignments(x.mean((2, 3)), made.component_mean)
    m, v = b.mean((2, 3)), b.var((2, 3), unbiased=False)
    mixed = fixed[..., None] * m[:, None] + (1 - fixed[..., None]) * made.component_mean
    spread = fixed[..., None] * v[:, None] + (1 - fixed[..., None]) * made.component_var
    mean, var = mixed.mean(1), spread.mean(1) + (mixed**2).mean(1) - mixed.mean(1) ** 2
    normal = (b - mean[..., None, None]) / (var + 1e-5).sqrt()[..., None, None]
    out = normal * made.weight[:, None, None] + made.bias[:, None, None]
    weights = torch.randn_like(x)
    (made(a) * weights).sum().backward()
    (out * weights).sum().backward()
    torch.testing.assert_close(a.grad, b.grad)


def test_one_component_is_instance_norm():
    made = layer(components=1)
    x = torch.randn(5, 3, 6, 6) * 3 + 2
    torch.testing.assert_close(made(x), F.instance_norm(x, weight=made.weight, bias=made.bias))
    torch.testing.assert_close(made.component_mean[0], made.running_mean)
    torch.testing.assert_close(made.component_var[0], made.running_var)


def test_the_mixture_starts_with_the_sources_variance_and_mean():
    made = layer(components=16, channels=2000)
    within = made.component_var.mean(0)
    between = made.component_mean.var(0, unbiased=False)
    ratio = (within + between) / made.running_var
    assert abs(float(ratio.mean()) - 1) < 4 * float(ratio.std()) / math.sqrt(2000)
    off = (made.component_mean.mean(0) - made.running_mean) / made.running_var.sqrt()
    assert abs(float(off.mean())) < 4 * float(off.std()) / math.sqrt(2000)


def test_small_batches_move_components_less():
    torch.manual_seed(0)
    x = torch.randn(64, 3, 4, 4)
    whole, one = layer().train(), layer().train()
    before = whole.component_mean.clone()
    whole(x), one(x[:1].expand(64, 3, 4, 4)[:1])
    assert (one.component_mean - before).norm() < 0.1 * (whole.component_mean - before).norm()


def test_a_sample_of_zero_means_belongs_to_all_components_alike():
    q = assignments(torch.zeros(1, 3), torch.randn(4, 3))
    torch.testing.assert_close(q, torch.full((1, 4), 0.25))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    made = layer()
    x = torch.randn(4, 3, 6, 6).to(dtype)
    assert made(x).dtype == dtype
    torch.testing.assert_close(made(x), made(x.float()).to(dtype), atol=2e-2, rtol=2e-2)


class TestConvert:
    def model(self):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4))

    def test_keeps_parameters_statistics_and_mode_and_draws_for_each_layer(self):
        model = self.model().eval()
        parts = [(m.weight, m.running_mean) for m in (model[1], model[3])]
        assert tta.convert_unmix_tns(model, components=5) is model
        for made, (weight, mean) in zip((model[1], model[3]), parts, strict=True):
            assert made.weight is weight and made.running_mean is mean and not made.training
            assert made.component_mean.shape == (5, 4)
        assert not torch.equal(model[1].component_mean, model[3].component_mean)
        again = tta.convert_unmix_tns(self.model(), components=5)
        assert torch.equal(again[3].component_mean, model[3].component_mean), "a fixed seed"

    def test_a_used_batch_norm_layer_gets_no_new_buffers(self):
        old = nn.BatchNorm2d(4)
        made = tta.convert_unmix_tns(old)
        assert isinstance(made, tta.UnMixTNS2d) and "component_mean" not in dict(old.named_buffers())

    def test_iabn_layers_are_replaced_too_and_copies_and_states_work(self):
        model = tta.convert_unmix_tns(tta.convert_iabn(self.model()))
        assert all(type(m) is tta.UnMixTNS2d for m in (model[1], model[3]))
        twin = copy.deepcopy(model)
        twin.load_state_dict(model.state_dict())
        x = torch.randn(2, 3, 9, 9)
        assert torch.equal(twin.eval()(x), model.eval()(x))

    @pytest.mark.parametrize(
        ("model", "message"),
        [
            (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)), "Sequential has none: use NOTE, SAR or RoTTA"),
            (nn.BatchNorm2d(3, track_running_stats=False), "has no running statistics"),
        ],
    )
    def test_models_it_cannot_convert_are_refused(self, model, message):
        with pytest.raises(ValueError, match=message):
            tta.convert_unmix_tns(model)

    def test_a_layer_that_does_more_is_refused(self):
        class Activated(nn.BatchNorm2d):
            def forward(self, x):
                return super().forward(x).relu()

        with pytest.raises(ValueError, match="Activated has its own forward, which would be lost"):
            tta.convert_unmix_tns(nn.Sequential(Activated(3)))

    @pytest.mark.parametrize("keywords", [{"components": 0}, {"batch_size": 0}])
    def test_settings_that_make_no_sense_are_refused(self, keywords):
        with pytest.raises(ValueError, match="must be at least 1, got 0"):
            tta.convert_unmix_tns(self.model(), **keywords)

    def test_representation(self):
        assert "UnMixTNS2d(4, components=16, eps=1e-05" in repr(tta.convert_unmix_tns(self.model()))
