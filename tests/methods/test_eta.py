"""ETA, and the two methods based on it: EATA and RDumb."""

import math

import pytest
import torch
import torch.nn.functional as F
from networks import WITHOUT_BATCH_NORM, images, make, network, without_batch_norm
from plain import affine, entropies, same_affine, with_batch_statistics
from torch import nn

import note_tta as tta
from note_tta.methods.source_statistics import SourceStatistics


class PlainETA:
    """ETA with whole models and nothing shared."""

    def __init__(
        self, model, margin=0.4, redundancy=0.05, lr=2.5e-4, optimizer="sgd", fisher=None, weight=0.0
    ):
        self.model = with_batch_statistics(model)
        self.parameters = affine(self.model)
        self.start = [p.detach().clone() for p in self.parameters]
        self.optimizer = (
            torch.optim.SGD(self.parameters, lr=lr, momentum=0.9)
            if optimizer == "sgd"
            else torch.optim.Adam(self.parameters, lr=lr)
        )
        self.limit, self.redundancy, self.mean = margin * math.log(5), redundancy, None
        self.fisher, self.weight, self.steps = fisher, weight, 0

    def __call__(self, x):
        logits = self.model(x)
        h, p = entropies(logits), logits.softmax(1).detach()
        keep = [i for i in range(len(x)) if h[i] < self.limit]
        if self.mean is not None:
            cosine = [float(p[i] @ self.mean / (p[i].norm() * self.mean.norm())) for i in range(len(x))]
            keep = [i for i in keep if abs(cosine[i]) < self.redundancy]
        if keep:
            mean = p[keep].mean(0)
            self.mean = mean if self.mean is None else 0.9 * self.mean + 0.1 * mean
            loss = sum(h[i] * math.exp(self.limit - h[i].item()) for i in keep) / len(keep)
            if self.fisher is not None:
                for f, p, start in zip(self.fisher, self.parameters, self.start, strict=True):
                    loss = loss + self.weight * (f * (p - start) ** 2).sum()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.steps += 1
        return logits.detach()


def plain_fisher(model, batches):
    model = with_batch_statistics(model)
    squares = [torch.zeros_like(p) for p in affine(model)]
    for x in batches:
        logits = model(x)
        model.zero_grad()
        F.cross_entropy(logits, logits.argmax(1)).backward()
        for total, p in zip(squares, affine(model), strict=True):
            total += p.grad**2 / len(batches)
    return squares


SETTINGS = [
    {"margin": 0.8, "redundancy": 0.7},
    {"margin": 0.9, "redundancy": 0.8, "lr": 0.05},
    {"margin": 0.8, "redundancy": 0.9, "optimizer": "adam", "lr": 0.01},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_eta_answers_and_learns_as_a_whole_model_would(settings):
    method, reference = make("eta", **settings), PlainETA(network(), **settings)
    for x in images(320).split(64):
        torch.testing.assert_close(method(x), reference(x), atol=1e-4, rtol=1e-4)
    same_affine(method, reference.model)
    assert method.counters["updates"] == reference.steps > 1
    assert method.counters["updates"] + method.counters["skipped_updates"] == 5
    torch.testing.assert_close(method.learned_from.value, reference.mean)


@pytest.mark.parametrize("weight", [0.0, 2000.0])
def test_eata_holds_parameters_back_by_their_fisher_information(weight):
    source = [images(64, seed=20), images(64, seed=21)]
    settings = {"margin": 0.8, "redundancy": 1.1, "lr": 0.002, "weight": weight}
    method = make("eata", source=source, **settings)
    fisher = plain_fisher(network(), source)
    torch.testing.assert_close(list(method.source.tensors.values()), fisher)
    reference = PlainETA(network(), fisher=fisher, **settings)
    for x in images(320).split(64):
        torch.testing.assert_close(method(x), reference(x), atol=1e-4, rtol=1e-4)
    same_affine(method, reference.model)
    assert method.counters["updates"] == 5


def test_eata_with_no_weight_is_eta_and_a_large_one_stays_nearer_to_the_source():
    far = {}
    x = images(320)
    settings = {"margin": 0.8, "redundancy": 1.1, "lr": 0.002}
    for weight in (None, 0.0, 5000.0):
        method = make("eta", **settings) if weight is None else make("eata", weight=weight, **settings)
        [method(part) for part in x.split(64)]
        start, now = affine(network()), affine(method.model)
        far[weight] = float(sum(((a - b) ** 2).sum() for a, b in zip(start, now, strict=True)))
    assert far[None] == pytest.approx(far[0.0]) and far[5000.0] < 0.9 * far[0.0]


def test_identical_samples_weigh_alike_and_are_redundant_the_second_time():
    h = entropies(with_batch_statistics(network())(images(64)))
    x = images(64)[h.argmin()].expand(8, 3, 8, 8)
    method = make("eta", margin=5.0)
    seen = []
    step = method.made("draft", method.make_draft).step
    method.made("draft", None).step = lambda loss: (seen.append(float(loss)), step(loss))
    with_batch = with_batch_statistics(network())
    entropy = float(entropies(with_batch(x)).mean())
    method(x)
    assert seen == [pytest.approx(entropy * math.exp(5 * math.log(5) - entropy), rel=1e-4)]
    method(x)
    assert len(seen) == 1
    assert method.counters["updates"] == 1 and method.counters["skipped_updates"] == 1


def test_nothing_reliable_skips_the_step_and_the_optimizer_stays_as_it_is():
    method = make("eta", margin=1e-9)
    before = method.state_dict()
    method(images(64))
    after = method.state_dict()
    assert method.counters["skipped_updates"] == 1
    assert after["parts"]["optimizer"] == before["parts"]["optimizer"]
    assert all(torch.equal(after["model"][name], t) for name, t in before["model"].items())
    assert after["parts"]["learned_from"] == {"value": None}


class TestRDumb:
    def test_restarting_after_every_batch_is_bn_stats(self):
        x = images(192)
        method, plain = make("rdumb", every=1, margin=0.8, redundancy=1.1, lr=0.1), make("bn_stats")
        for part in x.split(64):
            torch.testing.assert_close(method(part), plain(part))
        assert method.counters["updates"] == 3

    def test_before_the_restart_it_is_eta_and_after_it_eta_anew(self):
        x = images(256).split(64)
        settings = {"margin": 0.8, "redundancy": 1.1, "lr": 0.05}
        method, eta = make("rdumb", every=128, **settings), make("eta", **settings)
        assert all(torch.equal(method(part), eta(part)) for part in x[:2])
        eta.reset()
        assert all(torch.equal(method(part), eta(part)) for part in x[2:])
        assert method.counters["samples"] == 256

    def test_a_batch_across_the_end_is_learned_from_first(self):
        method = make("rdumb", every=100, margin=0.8, redundancy=1.1, lr=0.05)
        method(images(64))
        assert not torch.equal(method.model[1].weight, network()[1].weight)
        method(images(64, seed=2))
        assert torch.equal(method.model[1].weight, network()[1].weight)
        assert method.since_restart.value == 0 and method.descent.moments == {}
        assert method.learned_from.value is None

    def test_every_must_be_a_count(self):
        with pytest.raises(ValueError, match="every must be at least 1, got 0"):
            make("rdumb", every=0)


class TestSource:
    def test_a_saved_file_gives_the_same_method(self, tmp_path):
        path = tmp_path / "fisher.safetensors"
        method = make("eata")
        method.source.save(path)
        again = make("eata", source=path)
        x = images(64)
        assert torch.equal(method(x), again(x)) and torch.equal(method(x), again(x))
        assert make("eata", source=str(path)).source.kind == "fisher"
        assert method.fork().source is method.source

    def test_batches_with_labels_and_loaders_will_do(self):
        x = images(128, seed=20)
        data = torch.utils.data.TensorDataset(x, torch.zeros(128, dtype=torch.long))
        loader = torch.utils.data.DataLoader(data, batch_size=64)
        ours = make("eata", source=loader).source.tensors
        torch.testing.assert_close(ours, make("eata", source=[x[:64], x[64:]]).source.tensors)

    @pytest.mark.parametrize(
        ("source", "error", "message"),
        [
            (None, ValueError, "EATA needs batches of source samples: give source=…, or use ETA"),
            ([], ValueError, "source gave no batches"),
            ([torch.full((2, 3, 8, 8), math.nan)], ValueError, "a batch with NaN or Inf"),
            ([torch.zeros(2, 3, 8, 8, dtype=torch.uint8)], TypeError, "batches of floating-point samples"),
            ([torch.zeros(2, 5, 8, 8)], ValueError, "does not accept samples of shape"),
            ("nowhere.safetensors", FileNotFoundError, "make it with method.source.save"),
        ],
    )
    def test_what_is_no_source_is_refused(self, source, error, message):
        with pytest.raises(error, match=message):
            tta.EATA(network(), source)

    def test_statistics_of_another_model_kind_or_file_are_refused(self, tmp_path):
        path = tmp_path / "fisher.safetensors"
        own = make("eata").source
        own.save(path)
        with pytest.raises(ValueError, match="statistics of another model, with the fingerprint"):
            tta.EATA(network(seed=3), path)
        with pytest.raises(ValueError, match="of the kind 'features', but 'fisher' is needed"):
            tta.EATA(network(), SourceStatistics("features", own.fingerprint, own.tensors))
        with pytest.raises(ValueError, match="not finite"):
            bad = {name: t * math.nan for name, t in own.tensors.items()}
            tta.EATA(network(), SourceStatistics("fisher", own.fingerprint, bad))
        path.write_bytes(b"not a file of tensors")
        with pytest.raises(ValueError, match="holds no source statistics"):
            tta.EATA(network(), path)


@pytest.mark.parametrize("kind", WITHOUT_BATCH_NORM)
@pytest.mark.parametrize("name", ["eta", "eata"])
def test_learns_on_models_without_batch_norm(name, kind):
    model = without_batch_norm(kind)
    method = make(name, model=model, lr=0.05, margin=2.0, redundancy=1.1)
    expected = with_batch_statistics(model)(images(64)).detach()
    torch.testing.assert_close(method(images(64)), expected)
    assert method.counters["updates"] == 1
    assert not torch.allclose(method(images(64)), expected)


@pytest.mark.parametrize(
    ("name", "keywords", "message"),
    [
        ("eta", {"margin": 0}, "margin must be"),
        ("eta", {"redundancy": -1}, "redundancy must be"),
        ("eta", {"lr": 0}, "lr must be"),
        ("eata", {"weight": -1}, "weight must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name, keywords, message):
    with pytest.raises(ValueError, match=message):
        make(name, **keywords)


def test_models_without_norm_layers_are_refused():
    for name in ("eta", "rdumb", "eata"):
        with pytest.raises(ValueError, match="use Source, LAME or CoTTA"):
            make(name, model=nn.Sequential(nn.Flatten(), nn.Linear(192, 5)))


@pytest.mark.parametrize(("name", "part"), [("eta", "learned_from"), ("roid", "prior"), ("sar", "average")])
def test_a_state_with_a_moving_average_of_another_shape_is_refused(name, part):
    method = make(name, margin=1.0) if name != "roid" else make(name)
    method(images(32).clamp(0, 1))
    state = method.state_dict()
    right = state["parts"][part]["value"]
    assert right is not None
    method.load_state_dict(state)
    for wrong in (right.new_ones(right.ndim * [3]), right[None], 0.5):
        if getattr(wrong, "shape", None) == right.shape:
            continue  # one number has one shape only
        state["parts"][part]["value"] = wrong
        with pytest.raises(ValueError, match="its moving average"):
            method.load_state_dict(state)
    torch.testing.assert_close(method.state_dict()["parts"][part]["value"], right)
