import copy

import pytest
import torch
import torch.nn.functional as F
from networks import WITHOUT_BATCH_NORM, images, make, network, without_batch_norm
from test_rotta import PlainRobustNorm, robust, switch
from torch import nn

import note_tta as tta
from note_tta.checks import check_method
from note_tta.methods.augment import random_view

SOURCE = [images(64, seed=seed) for seed in (20, 21, 22)]


def features_and_logits(model, x):
    features = model[:-1](x)
    return features, model[-1](features)


def cross(p, q):
    return -(p.softmax(1) * q.log_softmax(1)).sum(1).mean()


class PlainPeTTA:
    """PeTTA on three whole models, one update after each batch of 64."""

    def __init__(self, model, lr=1e-3, ema=0.999, hold=10.0, anchor=1.0, loss="sce"):
        self.teacher, self.student, self.source = robust(model), robust(model), robust(model)
        norms = lambda m: [layer for layer in m if isinstance(layer, PlainRobustNorm)]  # noqa: E731
        self.parameters = [p for m in norms(self.student) for p in (m.weight, m.bias)]
        self.averages = [p for m in norms(self.teacher) for p in (m.weight, m.bias)]
        self.start = [p.detach().clone() for p in self.parameters]
        self.optimizer = torch.optim.Adam(self.parameters, lr=lr)
        self.memory, self.generator = tta.CSTU(64, classes=5), torch.Generator()
        self.ema, self.hold, self.anchor, self.loss = ema, hold, anchor, loss
        features, logits = features_and_logits(model, torch.cat(SOURCE))
        features, labels = features.detach(), logits.argmax(1)
        self.mean0 = torch.stack([features[labels == k].mean(0) for k in range(5)])
        self.var0 = torch.stack([features[labels == k].var(0) for k in range(5)])
        self.mean, self.drifts = self.mean0.clone(), []

    def __call__(self, x):
        switch(self.teacher, False)
        features, logits = features_and_logits(self.teacher, x)
        labels, p = logits.argmax(1), logits.detach().softmax(1)
        for sample, row in zip(x, p, strict=True):
            self.memory.add(sample, int(row.argmax()), float(-(row * row.log()).sum()))
        present = sorted(set(labels.tolist()))
        far = torch.stack([(self.mean[k] - self.mean0[k]) ** 2 / (self.var0[k] + 1e-6) for k in present])
        drift = 1 - float((-far.mean()).exp())
        self.drifts.append(drift)
        for k in present:
            self.mean[k] = 0.95 * self.mean[k] + 0.05 * features[labels == k].detach().mean(0)
        seed = int(torch.randint(2**62, (), generator=self.generator))
        for model in (self.teacher, self.student, self.source):
            switch(model, True)
        held = self.memory.inputs()
        t, a = self.teacher(held).detach(), self.source(held).detach()
        u, s = self.student(held), self.student(random_view(held, torch.Generator().manual_seed(seed)))
        loss = (
            (cross(t, u) + cross(u, t) + cross(t, s) + cross(s, t)) / 4 if self.loss == "sce" else cross(t, s)
        )
        cosines = [F.cosine_similarity(p, q, dim=0) for p, q in zip(self.parameters, self.start, strict=True)]
        loss = loss - self.hold * drift * sum(cosines) / len(cosines) + self.anchor * cross(a, s)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        share = (1 - self.ema) * (1 - drift)
        with torch.no_grad():
            for teacher, student in zip(self.averages, self.parameters, strict=True):
                teacher.copy_((1 - share) * teacher + share * student)
        return logits.detach()


@pytest.mark.parametrize(
    "settings", [{}, {"lr": 0.02, "ema": 0.9}, {"loss": "ce", "hold": 100.0, "anchor": 0.3, "lr": 0.02}]
)
def test_answers_and_learns_as_three_whole_models_would(settings):
    method, reference = (
        make("petta", seed=3, source=SOURCE, **settings),
        PlainPeTTA(network(seed=3), **settings),
    )
    for x in images(320).clamp(0, 1).split(64):
        torch.testing.assert_close(method(x), reference(x), atol=1e-4, rtol=1e-4)
    for i in (1, 4):
        torch.testing.assert_close(method.model[i].weight, reference.teacher[i].weight, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(
            method.model[i].running_var, reference.teacher[i].var, atol=1e-5, rtol=1e-5
        )
        own = method.student.tensors[f"{i}.weight"]
        torch.testing.assert_close(own, reference.student[i].weight, atol=1e-4, rtol=1e-4)
        own = method.anchored.tensors[f"{i}.running_mean"]
        torch.testing.assert_close(own, reference.source[i].mean, atol=1e-5, rtol=1e-5)
        assert torch.equal(method.anchored.tensors[f"{i}.weight"], network(seed=3)[i].weight)
    torch.testing.assert_close(method.prototypes.tensors["mean"], reference.mean, atol=1e-5, rtol=1e-4)
    assert reference.drifts[0] == 0 and reference.drifts[-1] > 0.001
    assert method.counters["updates"] == 5


def test_nothing_has_drifted_at_the_first_update():
    method = make("petta", source=SOURCE)
    seen = []
    method.learn = lambda draft, x, drift, seed: seen.append(float(drift))
    for part in images(192).clamp(0, 1).split(64):
        method(part)
    assert seen[0] == 0 and 0 < seen[1] < 1


def test_without_anchor_hold_and_symmetry_it_is_rotta_without_ages():
    """Statistics are frozen, because the student's extra pass would move them; Adam ignores the scale of the ages."""
    settings = {"momentum": 0.0, "lr": 0.01, "ema": 0.9}
    petta = make("petta", source=SOURCE, hold=0.0, anchor=0.0, loss="ce", **settings)
    rotta = make("rotta", **settings)
    rotta.memory.ages = lambda: [0] * len(rotta.memory)
    petta.prototypes.tensors["mean"] = petta.source.tensors["mean"]  # nothing ever drifts
    for x in images(256).clamp(0, 1).split(64):
        petta.prototypes.tensors["mean"] = petta.source.tensors["mean"].clone()
        torch.testing.assert_close(petta(x), rotta(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(petta.model[1].weight, rotta.model[1].weight, atol=1e-5, rtol=1e-5)


class TestSource:
    def test_means_and_variances_are_of_predicted_classes(self):
        found = make("petta", seed=3, source=SOURCE).source.tensors
        reference = PlainPeTTA(network(seed=3))
        torch.testing.assert_close(found["mean"], reference.mean0)
        torch.testing.assert_close(found["variance"], reference.var0)

    def test_classes_seen_less_than_twice_get_what_the_others_have(self):
        model = copy.deepcopy(network())
        with torch.no_grad():
            model[-1].bias[2] -= 100
        logits = model(torch.cat(SOURCE))
        once = logits[:, 3] - logits[:, [0, 1, 4]].amax(1)
        with torch.no_grad():
            model[-1].bias[3] -= (once.topk(2).values.mean()).item()
        found = make("petta", model=model, source=SOURCE).source.tensors
        features, labels = model[:-1](torch.cat(SOURCE)).detach(), model(torch.cat(SOURCE)).argmax(1)
        assert torch.bincount(labels, minlength=5)[[2, 3]].tolist() == [0, 1]
        torch.testing.assert_close(found["mean"][2], features.mean(0))
        torch.testing.assert_close(found["mean"][3], features[labels == 3][0])
        groups = [features[labels == k] for k in (0, 1, 4) if (labels == k).sum() > 1]
        off = sum(((g - g.mean(0)) ** 2).sum(0) for g in groups)
        within = off / sum(len(g) - 1 for g in groups)
        torch.testing.assert_close(found["variance"][2], within)
        torch.testing.assert_close(found["variance"][3], within)
        method = make("petta", model=model, source=SOURCE)
        method(images(64).clamp(0, 1))
        assert method.counters["updates"] == 1

    def test_a_saved_file_gives_the_same_method(self, tmp_path):
        method = make("petta", source=SOURCE)
        method.source.save(tmp_path / "features.safetensors")
        again = make("petta", source=tmp_path / "features.safetensors")
        x = images(192).clamp(0, 1)
        assert torch.equal(method(x), again(x))

    def test_without_source_it_names_a_method_that_needs_none(self):
        with pytest.raises(
            ValueError, match="PeTTA needs batches of source samples: give source=…, or use RoTTA"
        ):
            tta.PeTTA(network())

    def test_no_more_than_enough_samples_are_looked_at(self, monkeypatch):
        monkeypatch.setattr("note_tta.methods.source_statistics.MOST_SAMPLES", 100)
        read = []

        def batches():
            for seed in range(20, 30):
                read.append(seed)
                yield images(64, seed=seed)

        make("petta", source=batches())
        assert read == [20, 21]


def test_paused_samples_and_far_ones_enter_no_prototype():
    method = make("petta", source=SOURCE)
    x = images(10).clamp(0, 1)
    x[3] = 1e4
    method(x)
    assert float(method.prototypes.tensors["counts"].sum()) == 9
    method.pause()
    method(images(10).clamp(0, 1))
    assert float(method.prototypes.tensors["counts"].sum()) == 9


@pytest.mark.slow
def test_keeps_the_contract_with_a_delay():
    check_method(tta.PeTTA, interval=16, delay=16, loss="ce")


@pytest.mark.parametrize("kind", WITHOUT_BATCH_NORM)
def test_learns_on_models_without_batch_norm(kind):
    model = without_batch_norm(kind)
    method = make("petta", model=model, lr=0.01, ema=0.5)
    x = images(128).clamp(0, 1)
    torch.testing.assert_close(method(x[:60]), model(x[:60]).detach())
    method(x[60:])
    assert method.counters["updates"] == 2
    assert not torch.allclose(method(x[:8]), model(x[:8]).detach())


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"loss": "mse"}, "loss must be 'sce' or 'ce', got 'mse'"),
        ({"hold": -1}, "hold must be"),
        ({"anchor": -1}, "anchor must be"),
        ({"classifier": "head"}, "no module 'head' to take features from"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        make("petta", **keywords)


def test_a_model_without_a_linear_classifier_must_name_one():
    model = nn.Sequential(nn.Conv2d(3, 5, 8), nn.BatchNorm2d(5), nn.Flatten())
    with pytest.raises(ValueError, match=r"has no nn\.Linear: give the name of its classifier module"):
        make("petta", model=model)
    assert make("petta", model=model.eval(), classifier="2")(images(3)).shape == (3, 5)
