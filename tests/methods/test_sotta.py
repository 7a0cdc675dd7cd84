import copy

import pytest
import torch
from networks import WITHOUT_BATCH_NORM, images, make, network, without_batch_norm
from torch import nn

import note_tta as tta
from note_tta.checks import check_method
from note_tta.methods.selection import last_layers
from note_tta.methods.sharpness import uphill


class PlainSoTTA:
    """SoTTA on one whole model, one update after each batch of 64."""

    def __init__(self, model, confidence, rho=0.05, lr=1e-3, momentum=0.2):
        self.model = copy.deepcopy(model).eval()
        self.norms = [m for m in self.model if isinstance(m, nn.BatchNorm2d)]
        for m in self.norms:
            m.momentum = momentum
        self.parameters = [p for m in self.norms for p in (m.weight, m.bias)]
        self.optimizer = torch.optim.Adam(self.parameters, lr=lr)
        self.memory, self.confidence, self.rho = tta.HUS(64), confidence, rho

    def gradient(self, x):
        p = self.model(x).softmax(1)
        self.optimizer.zero_grad()
        (-(p * p.log()).sum(1)).mean().backward()

    def __call__(self, x):
        logits = self.model(x).detach()
        for sample, row in zip(x, logits.softmax(1), strict=True):
            if row.max() >= self.confidence:
                self.memory.add(sample, int(row.argmax()))
        if len(self.memory):
            [m.train() for m in self.norms]
            held = self.memory.inputs()
            self.gradient(held)
            old = [p.detach().clone() for p in self.parameters]
            flat = torch.cat([p.grad.flatten() for p in self.parameters])
            with torch.no_grad():
                for p in self.parameters:
                    p += self.rho * p.grad / (flat.norm() + 1e-12)
            self.gradient(held)
            with torch.no_grad():
                for p, value in zip(self.parameters, old, strict=True):
                    p.copy_(value)
            self.optimizer.step()
            [m.eval() for m in self.norms]
        return logits


@pytest.mark.parametrize("settings", [{"confidence": 0.0}, {"confidence": 0.5, "lr": 0.02, "rho": 0.5}])
def test_answers_and_learns_as_a_whole_model_would(settings):
    method, reference = make("sotta", **settings), PlainSoTTA(network(), **settings)
    for x in images(256).split(64):
        torch.testing.assert_close(method(x), reference(x), atol=1e-4, rtol=1e-4)
    ours = {name: t for name, t in method.model.state_dict().items() if "tracked" not in name}
    theirs = {name: t for name, t in reference.model.state_dict().items() if "tracked" not in name}
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    assert method.counters["updates"] == 4


def test_without_rho_and_bar_it_is_an_entropy_step_with_statistics_that_move_twice():
    x = images(64)
    method = make("sotta", confidence=0.0, rho=0.0)
    note = tta.NOTE(network(), tta.HUS(64), lr=1e-3, momentum=0.2)
    method(x), note(x)
    draft = copy.deepcopy(network())
    for layer in (draft[1], draft[4]):
        layer.train().momentum = 0.2
    draft(x), draft(x)
    torch.testing.assert_close(method.model[4].running_var, draft[4].running_var)
    torch.testing.assert_close(method.model[1].weight, note.model[1].weight)
    assert not torch.allclose(method.model[4].running_var, note.model[4].running_var)


def test_a_step_uphill_and_back():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.tensor([2.0], requires_grad=True)
    unused = torch.tensor([5.0], requires_grad=True)
    (x.sum() + 2 * y.sum()).backward()
    with pytest.raises(ZeroDivisionError), uphill([x, y, unused], rho=6.0):
        torch.testing.assert_close(x, torch.tensor([1.0, 2.0]) + 6 / 6**0.5)
        torch.testing.assert_close(y, torch.tensor([2.0]) + 12 / 6**0.5)
        raise ZeroDivisionError
    assert x.tolist() == [1.0, 2.0] and y.tolist() == [2.0] and unused.tolist() == [5.0]


def test_only_confident_samples_are_stored_and_an_empty_memory_skips_the_update():
    method = make("sotta", confidence=1.0)
    before = {name: t.clone() for name, t in method.tensors.items()}
    method(images(128))
    assert len(method.memory) == 0
    assert method.counters["skipped_updates"] == 2 and method.counters["updates"] == 0
    assert all(torch.equal(t, before[name]) for name, t in method.tensors.items())
    bar = float(network()(images(64)).softmax(1).amax(1).detach().median())
    method = make("sotta", confidence=bar)
    method(images(63))
    held = network()(method.memory.inputs()).softmax(1).amax(1)
    assert 0 < len(method.memory) < 63 and (held >= bar - 1e-6).all()


def test_a_single_confident_sample_leaves_statistics_alone():
    confidences = network()(images(64)).softmax(1).amax(1).detach()
    top = confidences.topk(2).values
    method = make("sotta", confidence=float(top.mean()))
    before = method.model[1].running_mean.clone()
    method(images(64))
    assert len(method.memory) == 1 and method.counters["updates"] == 1
    assert torch.equal(method.model[1].running_mean, before)


class Staged(nn.Module):
    """Layers by a ResNet's names."""

    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.layer4 = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        return self.fc(self.layer4(self.layer1(x)).mean((2, 3)))


def test_the_last_layers_keep_their_parameters_but_not_their_statistics():
    model = Staged()
    method = tta.SoTTA(model, confidence=0.0)
    assert method.skipped == ["layer4.1"] and make("sotta").skipped == []
    method(images(64))
    assert torch.equal(method.model.layer4[1].weight, model.layer4[1].weight)
    assert not torch.equal(method.model.layer4[1].running_mean, model.layer4[1].running_mean)
    assert not torch.equal(method.model.layer1[1].weight, model.layer1[1].weight)
    with pytest.raises(ValueError, match="skip matches all 2 norm layers"):
        tta.SoTTA(model, skip=lambda name: True)


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("layer3.5.bn2", False),
        ("layer4.0.bn1", True),
        ("blocks.8.norm1", False),
        ("blocks.10.norm2", True),
        ("norm", True),
        ("stem.norm1", False),
        ("stages.3.norm.bn", True),
    ],
)
def test_the_rule_of_the_last_layers(name, last):
    assert last_layers(name) == last


@pytest.mark.slow
def test_keeps_the_contract_with_a_delay_and_another_bar():
    check_method(tta.SoTTA, interval=16, delay=16, confidence=0.3)


@pytest.mark.parametrize("kind", WITHOUT_BATCH_NORM)
def test_learns_on_models_without_batch_norm(kind):
    model = without_batch_norm(kind)
    method = tta.SoTTA(model, confidence=0.0, lr=0.01)
    x = images(128)
    torch.testing.assert_close(method(x[:60]), model(x[:60]).detach())
    method(x[60:])
    assert method.counters["updates"] == 2
    assert not torch.allclose(method(x[:8]), model(x[:8]).detach())
    assert method.skipped == (["norm"] if kind in ("vit", "rms") else [])


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"confidence": 1.2}, "confidence must be in"),
        ({"rho": -1}, "rho must be"),
        ({"momentum": 2}, "momentum must be in"),
        ({"lr": 0}, "lr must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        make("sotta", **keywords)
