import copy
import math

import pytest
import torch
from networks import WITHOUT_BATCH_NORM, images, make, network, without_batch_norm
from torch import nn

import note_tta as tta
from note_tta.checks import check_method
from note_tta.methods.augment import random_view
from note_tta.methods.robust_norm import use_robust_statistics
from note_tta.nn.functional import normalize_instances


class PlainRobustNorm(nn.Module):
    """The robust BatchNorm of RoTTA, written down directly."""

    def __init__(self, layer, rate):
        super().__init__()
        self.mean, self.var = layer.running_mean.clone(), layer.running_var.clone()
        self.weight, self.bias = layer.weight, layer.bias
        self.eps, self.rate = layer.eps, rate

    def forward(self, x):
        mean, var = self.mean, self.var
        if self.training:
            mean = (1 - self.rate) * mean + self.rate * x.mean((0, 2, 3))
            var = (1 - self.rate) * var + self.rate * x.var((0, 2, 3), unbiased=False)
            self.mean, self.var = mean.detach(), var.detach()
        shaped = [v.view(1, -1, 1, 1) for v in (mean, var, self.weight, self.bias)]
        return (x - shaped[0]) / (shaped[1] + self.eps).sqrt() * shaped[2] + shaped[3]


def robust(model, rate=0.05):
    model = copy.deepcopy(model)
    for i, layer in enumerate(model):
        if isinstance(layer, nn.BatchNorm2d):
            model[i] = PlainRobustNorm(layer, rate)
    return model


def switch(model, training):
    for layer in model:
        if isinstance(layer, PlainRobustNorm):
            layer.train(training)


class PlainRoTTA:
    """RoTTA on two whole models, one update after each batch of 64."""

    def __init__(self, model, rate=0.05, lr=1e-3, ema=0.999):
        self.teacher, self.student = robust(model, rate), robust(model, rate)
        self.parameters = [
            p for m in self.student if isinstance(m, PlainRobustNorm) for p in (m.weight, m.bias)
        ]
        self.averages = [
            p for m in self.teacher if isinstance(m, PlainRobustNorm) for p in (m.weight, m.bias)
        ]
        self.optimizer = torch.optim.Adam(self.parameters, lr=lr)
        self.memory, self.ema = tta.CSTU(64, classes=5), ema
        self.generator = torch.Generator()

    def __call__(self, x):
        switch(self.teacher, False)
        logits = self.teacher(x).detach()
        p = logits.softmax(1)
        for sample, row in zip(x, p, strict=True):
            self.memory.add(sample, int(row.argmax()), float(-(row * row.log()).sum()))
        seed = int(torch.randint(2**62, (), generator=self.generator))
        switch(self.teacher, True), switch(self.student, True)
        held = self.memory.inputs()
        target = self.teacher(held).detach().softmax(1)
        guess = self.student(random_view(held, torch.Generator().manual_seed(seed))).log_softmax(1)
        weights = torch.tensor([1 / (1 + math.exp(age / 64)) for age in self.memory.ages()])
        loss = (weights * -(target * guess).sum(1)).sum() / len(held)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for teacher, student in zip(self.averages, self.parameters, strict=True):
                teacher.mul_(self.ema).add_(student, alpha=1 - self.ema)
        return logits


@pytest.mark.parametrize("settings", [{}, {"lr": 0.05, "ema": 0.9}])
def test_answers_and_learns_as_two_whole_models_would(settings):
    method, reference = make("rotta", **settings), PlainRoTTA(network(), **settings)
    for x in images(256).clamp(0, 1).split(64):
        torch.testing.assert_close(method(x), reference(x), atol=1e-4, rtol=1e-4)
    for i in (1, 4):
        ours, theirs = method.model[i], reference.teacher[i]
        torch.testing.assert_close(ours.running_mean, theirs.mean, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(ours.running_var, theirs.var, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(ours.weight, theirs.weight, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(method.student.tensors[f"{i}.weight"], reference.student[i].weight)
        torch.testing.assert_close(method.student.tensors[f"{i}.running_var"], reference.student[i].var)
    assert method.counters["updates"] == 4


@pytest.mark.parametrize("kind", ["bn2d", "bn1d", "iabn", "activated"])
def test_robust_statistics_and_their_gradients_are_those_of_the_plain_formula(kind):
    class Activated(nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x).tanh()

    torch.manual_seed(0)
    x = torch.randn(6, 3, 4, 4, dtype=torch.float64)
    layers = {"bn2d": nn.BatchNorm2d, "bn1d": nn.BatchNorm1d, "iabn": tta.IABN2d, "activated": Activated}
    layer = layers[kind](3).double().eval()
    x = x.mean((2, 3)) if kind == "bn1d" else x
    layer.running_mean.copy_(torch.randn(3)), layer.running_var.copy_(torch.rand(3) + 0.5)
    nn.init.normal_(layer.weight), nn.init.normal_(layer.bias)
    axes, trailing = [0, *range(2, x.ndim)], (...,) + (None,) * (x.ndim - 2)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    mean = 0.7 * layer.running_mean.clone() + 0.3 * a.mean(axes)
    var = 0.7 * layer.running_var.clone() + 0.3 * a.var(axes, unbiased=False)
    if kind == "iabn":
        expected = normalize_instances(a, mean, var, layer.weight, layer.bias, layer.eps, 4.0, 0)
    else:
        expected = (a - mean[trailing]) / (var[trailing] + layer.eps).sqrt()
        expected = expected * layer.weight[trailing] + layer.bias[trailing]
        expected = expected.tanh() if kind == "activated" else expected
    model = use_robust_statistics(nn.Sequential(layer), 0.3)
    got = model(b)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(layer.running_mean, mean.detach())
    torch.testing.assert_close(layer.running_var, var.detach())
    weights = torch.randn_like(x)
    for y, given in ((expected, a), (got, b)):
        (y * weights).sum().backward()
        assert given.grad is not None
    slack = 1e-4 if kind == "iabn" else 1e-9  # IABN scales with its input but for eps
    torch.testing.assert_close(b.grad, a.grad, atol=slack, rtol=slack)


def test_two_robust_passes_share_one_backward():
    model = use_robust_statistics(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval(), 0.1)
    (model(images(5)).sum() + model(images(5, seed=2)).square().sum()).backward()
    assert model[0].weight.grad.abs().sum() > 0


def test_a_learning_rate_of_zero_moves_statistics_alone():
    method = make("rotta", lr=0.0)
    before = {name: t.clone() for name, t in method.tensors.items()}
    method(images(128).clamp(0, 1))
    for name, tensor in method.tensors.items():
        if "running" in name:
            assert not torch.equal(tensor, before[name])
        else:
            assert torch.equal(tensor, before[name])


def test_without_momentum_and_with_a_fixed_teacher_it_is_source():
    x = images(200).clamp(0, 1)
    method = make("rotta", momentum=0.0, ema=1.0)
    torch.testing.assert_close(torch.cat([method(part) for part in x.split(50)]), make("source")(x))
    assert method.counters["updates"] == 3


def test_norm_tensors_are_kept_twice_and_models_once():
    model = network()
    method = tta.RoTTA(model)
    method(images(64).clamp(0, 1))
    drafts = method.workshop.draft
    for module in (method.model, drafts["teacher"].module, drafts["student"].module):
        assert module[0].weight.data_ptr() == model[0].weight.data_ptr()
        assert module[1].weight.data_ptr() != model[1].weight.data_ptr()
    assert set(method.student.tensors) == set(method.tensors)
    assert not any(name.startswith("0.") or name.startswith("9.") for name in method.tensors)


@pytest.mark.slow
def test_keeps_the_contract_with_a_delay():
    check_method(tta.RoTTA, interval=16, delay=9)


@pytest.mark.parametrize("kind", WITHOUT_BATCH_NORM)
def test_learns_on_models_without_batch_norm(kind):
    model = without_batch_norm(kind)
    method = tta.RoTTA(model, lr=0.01, ema=0.5)
    x = images(128).clamp(0, 1)
    torch.testing.assert_close(method(x[:60]), model(x[:60]).detach())
    method(x[60:])
    assert method.counters["updates"] == 2
    assert not torch.allclose(method(x[:8]), model(x[:8]).detach())


class TestRefusals:
    def test_time_series_are_refused_at_construction_and_images_are_asked_for_at_a_call(self):
        series = nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(24, 5))
        with pytest.raises(ValueError, match="a model with Conv1d is not for images: use NOTE or SoTTA"):
            tta.RoTTA(series)
        flat = tta.RoTTA(nn.Sequential(nn.Flatten(), nn.Linear(24, 5), nn.BatchNorm1d(5)))
        with pytest.raises(ValueError, match=r"random views of images \[B, C, H, W\], got \(2, 24\)"):
            flat(torch.rand(2, 24))

    def test_a_model_without_norm_layers_is_refused(self):
        with pytest.raises(
            ValueError, match="no norm layer with affine parameters to adapt: use Source, LAME"
        ):
            tta.RoTTA(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)))

    def test_a_memory_without_ages_is_refused(self):
        with pytest.raises(
            TypeError, match="memory must be a CSTU, which keeps the age of each sample, got PBRS"
        ):
            tta.RoTTA(network(), tta.PBRS(64))

    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"momentum": 2}, "momentum must be in"),
            ({"lr": -1}, "lr must be"),
            ({"ema": -0.1}, "ema must be in"),
        ],
    )
    def test_settings_that_make_no_sense(self, keywords, message):
        with pytest.raises(ValueError, match=message):
            make("rotta", **keywords)

    def test_images_that_are_normalised_outside_the_model_are_warned_of_once(self):
        method = make("rotta")
        with pytest.warns(RuntimeWarning) as caught:
            for _ in range(2):
                method(images(4) * 3)
        (warning,) = caught
        assert "clips its random views of images to [0, 1], but these" in str(warning.message)


def test_far_samples_are_answered_and_not_learned_from():
    method = make("rotta")
    x = images(64).clamp(0, 1)
    x[5] = 1e4
    method(x)
    assert method.counters["unlearned_samples"] == 1 and method.counters["updates"] == 0
