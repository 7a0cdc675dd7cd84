import math

import pytest
import torch
from networks import WITHOUT_BATCH_NORM, images, make, network, without_batch_norm
from plain import affine, same_affine, with_batch_statistics
from torch import nn

import note_tta as tta
from note_tta.methods.augment import random_view


class PlainROID:
    """ROID with a whole model and nothing shared, sample by sample if that is clearer."""

    def __init__(self, model, lr=2.5e-4, optimizer="sgd", keep=0.99, temperature=1 / 3):
        self.model = with_batch_statistics(model)
        self.parameters = affine(self.model)
        self.start = [p.detach().clone() for p in self.parameters]
        self.optimizer = (
            torch.optim.SGD(self.parameters, lr=lr, momentum=0.9, nesterov=True)
            if optimizer == "sgd"
            else torch.optim.Adam(self.parameters, lr=lr)
        )
        self.keep, self.temperature = keep, temperature
        self.prior, self.generator = torch.full((5,), 0.2), torch.Generator()

    def __call__(self, x):
        z = self.model(x)
        p = z.softmax(1)
        with torch.no_grad():
            d = torch.stack([1 - row @ self.prior / (row.norm() * self.prior.norm()) for row in p])
            d = (d - d.min()) / (d.max() - d.min())
            g = (p * p.log()).sum(1)
            g = (g - g.min()) / (g.max() - g.min())
            w = (d * g / self.temperature).exp()
            kept = [i for i in range(len(x)) if d[i] >= d.mean()]
            self.prior = 0.9 * self.prior + 0.1 * p.mean(0)
        view = self.model(random_view(x[kept], self.generator, mirrored=True))
        loss = 0.0
        for i, other in zip(kept, view, strict=True):
            q = p[i].clamp(max=0.99)
            loss = loss - w[i] * (q * (q / (1 - q) + 1e-5).log()).sum()
            forth = -(p[i] * other.log_softmax(0)).sum()
            back = -(other.softmax(0) * z[i].log_softmax(0)).sum()
            loss = loss + w[i] * (forth + back) / 2
        self.optimizer.zero_grad()
        (loss / len(x)).backward()
        self.optimizer.step()
        with torch.no_grad():
            for parameter, start in zip(self.parameters, self.start, strict=True):
                parameter.copy_(self.keep * parameter + (1 - self.keep) * start)
        prior = p.mean(0).detach()
        epsilon = max(1 / len(x), 1 / 5) / prior.max()
        return z.detach() * (prior + epsilon) / (1 + 5 * epsilon)


@pytest.mark.parametrize(
    "settings", [{}, {"lr": 0.05, "keep": 0.9, "temperature": 1.0}, {"optimizer": "adam", "lr": 0.01}]
)
def test_answers_and_learns_as_a_whole_model_would(settings):
    method, reference = make("roid", **settings), PlainROID(network(), **settings)
    for x in images(320).clamp(0, 1).split(64):
        torch.testing.assert_close(method(x), reference(x), atol=1e-4, rtol=1e-4)
    same_affine(method, reference.model)
    torch.testing.assert_close(method.prior.value, reference.prior)
    assert method.counters["updates"] == 5


def test_drawn_back_wholly_and_without_correction_it_is_bn_stats():
    method, plain = make("roid", keep=0.0, prior_correction=False, lr=0.1), make("bn_stats")
    for x in images(192).clamp(0, 1).split(64):
        torch.testing.assert_close(method(x), plain(x))
    assert method.counters["updates"] == 3


def test_the_prior_of_a_balanced_batch_changes_no_decision():
    logits = torch.eye(5).repeat(4, 1) * 3
    answered = make("roid").answer(logits)
    torch.testing.assert_close(answered, logits / 5)
    assert torch.equal(make("roid", prior_correction=False).answer(logits), logits)


def test_a_prior_leans_to_the_class_that_the_batch_is_full_of():
    logits = torch.tensor([[2.0, 0.0, 0, 0, 0]] * 60 + [[1.0, 1.01, 0, 0, 0]])
    assert make("roid").answer(logits)[-1].argmax() == 0 and logits[-1].argmax() == 1


@pytest.mark.parametrize("x", [images(1).clamp(0, 1), images(1).clamp(0, 1).expand(6, 3, 8, 8)])
def test_a_batch_whose_predictions_are_alike_has_no_weights_and_skips_the_step(x):
    method = make("roid")
    before = {name: t.clone() for name, t in method.tensors.items()}
    assert torch.isfinite(method(x)).all()
    assert method.counters["skipped_updates"] == 1
    assert all(torch.equal(t, before[name]) for name, t in method.tensors.items())


@pytest.mark.parametrize("kind", WITHOUT_BATCH_NORM)
def test_learns_on_models_without_batch_norm(kind):
    model = without_batch_norm(kind)
    method = tta.ROID(model, lr=0.05, prior_correction=False)
    x = images(64).clamp(0, 1)
    expected = with_batch_statistics(model)(x).detach()
    torch.testing.assert_close(method(x), expected)
    assert method.counters["updates"] == 1 and not torch.allclose(method(x), expected)


def test_what_is_not_images_is_refused():
    series = nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(24, 5))
    with pytest.raises(ValueError, match="ROID uses random views of images, but a model with Conv1d"):
        tta.ROID(series)
    flat = tta.ROID(nn.Sequential(nn.Flatten(), nn.Linear(24, 5), nn.BatchNorm1d(5)))
    with pytest.raises(ValueError, match="use NOTE or SoTTA, which accept any input"):
        flat(torch.rand(2, 24))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"keep": 1.5}, "keep must be in"),
        ({"temperature": 0}, "temperature must be"),
        ({"lr": math.inf}, "lr must"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        make("roid", **keywords)


class TestMirroredView:
    def test_is_repeatable_and_stays_an_image_without_noise(self):
        x = torch.rand(4, 3, 17, 16)
        views = [random_view(x, torch.Generator().manual_seed(seed), mirrored=True) for seed in (0, 0, 1)]
        assert views[0].shape == x.shape and views[0].min() >= 0 and views[0].max() <= 1
        assert torch.equal(views[0], views[1]) and not torch.allclose(views[0], views[2], atol=0.02)
        flat = random_view(torch.full((1, 3, 8, 8), 0.5), torch.Generator(), mirrored=True)
        assert (flat - flat[..., :1, :1]).abs().max() < 1e-6  # noise would show

    def test_beyond_the_edge_the_image_comes_back_without_repeating_the_edge(self):
        from note_tta.methods.augment import _move

        x = torch.arange(8.0).view(1, 1, 1, 8).expand(1, 1, 8, 8)
        moved = _move(x, angle=0.0, shift=(0.0, 2 / 16), scale=1.0, margin=0, mirrored=True)
        torch.testing.assert_close(moved[0, 0, 0], torch.tensor([2.0, 1, 0, 1, 2, 3, 4, 5]))
        extended = _move(x, angle=0.0, shift=(0.0, 2 / 16), scale=1.0, margin=0, mirrored=False)
        torch.testing.assert_close(extended[0, 0, 0], torch.tensor([0.0, 0, 0, 1, 2, 3, 4, 5]))

    @pytest.mark.parametrize("mirrored", [False, True])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_images_have_views_too(self, mirrored, dtype):
        x = torch.rand(2, 3, 8, 8).to(dtype)
        view = random_view(x, torch.Generator(), mirrored=mirrored)
        assert view.dtype == dtype
        exact = random_view(x.float(), torch.Generator(), mirrored=mirrored)
        torch.testing.assert_close(view, exact.to(dtype))
