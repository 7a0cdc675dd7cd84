import math

import pytest
import torch
from networks import WITHOUT_BATCH_NORM, images, make, network, without_batch_norm
from plain import affine, entropies, same_affine, with_batch_statistics

import note_tta as tta


class PlainSAR:
    """SAR with a whole model and nothing shared."""

    def __init__(self, model, margin=0.4, rho=0.05, lr=2.5e-4, reset_below=0.029):
        self.model = with_batch_statistics(model)
        self.parameters = affine(self.model)
        self.start = [p.detach().clone() for p in self.parameters]
        self.optimizer = torch.optim.SGD(self.parameters, lr=lr, momentum=0.9)
        self.limit, self.rho, self.bound = margin * math.log(5), rho, reset_below * math.log(5)
        self.average, self.resets, self.steps = None, 0, 0

    def gradient(self, losses):
        self.optimizer.zero_grad()
        losses.mean().backward()

    def __call__(self, x):
        logits = self.model(x)
        h = entropies(logits)
        first = torch.nonzero(h < self.limit)[:, 0]
        if not len(first):
            return logits.detach()
        self.gradient(h[first])
        norm = torch.cat([p.grad.flatten() for p in self.parameters]).norm()
        moved = [(p, self.rho * p.grad / (norm + 1e-12)) for p in self.parameters]
        with torch.no_grad():
            [p.add_(by) for p, by in moved]
        h = entropies(self.model(x))[first]
        h = h[h < self.limit]
        if len(h):
            self.gradient(h)
        with torch.no_grad():
            [p.sub_(by) for p, by in moved]
        if len(h):
            self.optimizer.step()
            self.steps += 1
            value = float(h.mean())
            self.average = value if self.average is None else 0.9 * self.average + 0.1 * value
            if self.average < self.bound:
                with torch.no_grad():
                    [p.copy_(s) for p, s in zip(self.parameters, self.start, strict=True)]
                self.optimizer.state.clear()
                self.average, self.resets = None, self.resets + 1
        return logits.detach()


@pytest.mark.parametrize(
    "settings",
    [{}, {"lr": 0.02, "rho": 0.5, "margin": 0.6}, {"lr": 0.05, "margin": 0.9, "reset_below": 0.5}],
)
def test_answers_learns_and_resets_as_a_whole_model_would(settings):
    method, reference = make("sar", **settings), PlainSAR(network(), **settings)
    for x in images(640).split(64):
        torch.testing.assert_close(method(x), reference(x), atol=1e-4, rtol=1e-4)
    same_affine(method, reference.model)
    assert method.counters["updates"] == reference.steps > 0
    assert method.resets.value == reference.resets
    assert (reference.resets > 0) == ("reset_below" in settings)


def test_without_rho_and_margin_it_is_tent_with_sgd():
    settings = {"lr": 0.01, "optimizer": "sgd"}
    sar = make("sar", rho=0.0, margin=math.inf, reset_below=0.0, skip=lambda name: False, **settings)
    tent = make("tent", **settings)
    for x in images(256).split(64):
        torch.testing.assert_close(sar(x), tent(x))
    same_affine(sar, tent.model)


def test_a_reset_restores_weights_and_optimizer_and_starts_the_average_anew():
    method = make("sar", lr=0.05, margin=2.0, reset_below=1.0)
    method(images(64))
    assert method.resets.value == 1 and method.average.value is None and method.descent.moments == {}
    assert torch.equal(method.model[1].weight, network()[1].weight)
    method.reset()
    assert method.resets.value == 0


def test_nothing_reliable_skips_the_step():
    method = make("sar", margin=1e-9)
    before = method.state_dict()
    method(images(64))
    after = method.state_dict()
    assert method.counters["skipped_updates"] == 1
    assert all(torch.equal(after["model"][name], t) for name, t in before["model"].items())
    assert after["parts"]["optimizer"] == before["parts"]["optimizer"]


def test_samples_that_are_unreliable_uphill_skip_the_step_too():
    """With the margin just above the most certain sample, a long step uphill lifts it over the margin."""
    h = entropies(with_batch_statistics(network())(images(64))).detach()
    method = make("sar", margin=float(h.min() / math.log(5)) * 1.0001, rho=2.0)
    before = method.model[1].weight.clone()
    method(images(64))
    assert method.counters["skipped_updates"] == 1 and torch.equal(method.model[1].weight, before)


@pytest.mark.parametrize("kind", WITHOUT_BATCH_NORM)
def test_learns_on_models_without_batch_norm(kind):
    model = without_batch_norm(kind)
    method = tta.SAR(model, lr=0.05, margin=2.0)
    expected = with_batch_statistics(model)(images(64)).detach()
    torch.testing.assert_close(method(images(64)), expected)
    assert method.counters["updates"] == 1
    assert not torch.allclose(method(images(64)), expected)
    assert method.skipped == (["norm"] if kind in ("vit", "rms") else [])
    if kind != "mixed":  # rows of a batch are independent of each other until it is learned from
        method = tta.SAR(model)
        torch.testing.assert_close(method(images(64))[:5], tta.SAR(model)(images(64)[:5]))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"margin": 0}, "margin must be greater than 0, got 0"),
        ({"rho": -1}, "rho must be"),
        ({"reset_below": 2}, "reset_below must be in"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        make("sar", **keywords)
