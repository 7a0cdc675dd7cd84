"""Limits measured on class runs of the source: the runs, the limit, and what comes of it in a watch."""

import pytest
import torch

import note_tta as tta
from note_tta.checks import example_images, example_network
from note_tta.watch.calibration import class_runs, level

QUICK = {"look": 256, "sample": 64}


@pytest.mark.parametrize("length", [1, 16, 256])
def test_runs_are_as_long_as_asked_for_and_of_all_classes(length):
    classes = torch.arange(1000) % 10
    order = class_runs(classes, 50_000, length, torch.Generator().manual_seed(0))
    labels = classes[order]
    assert len(order) == 50_000 and set(labels.tolist()) == set(range(10))
    changes = int((labels[1:] != labels[:-1]).sum()) + 1
    assert 50_000 / changes == pytest.approx(
        length / 0.9, rel=0.2
    )  # one run in ten is followed by its own class


def test_few_looks_of_an_honest_stream_are_beyond_its_level():
    generator = torch.Generator().manual_seed(0)
    strains = torch.randn(20_000, generator=generator).exp()
    limit = level(strains[:200].tolist(), share=0.01)
    assert 0.003 < float((strains > limit).float().mean()) < 0.02
    few = [level(part.tolist(), share=0.01) for part in strains.split(10)]
    beyond = sum(float((strains > limit).float().mean()) for limit in few[:200]) / 200
    assert beyond < 0.02


def test_a_default_limit_is_never_lowered():
    assert level([0.02] * 20, share=0.01) == 1.0


class Forgetful(tta.NOTE):
    """Learns so fast that it forgets even on its own source."""

    def __init__(self, model, *, lr=0.02, **settings):
        super().__init__(model, lr=lr, **settings)


def test_a_method_that_forgets_on_its_own_source_gets_a_higher_limit(digits, source):
    calm = tta.Watch(tta.NOTE(digits), source=source, **QUICK)
    assert calm.calibrate(source, samples=2048) == {"forgetting": 1.0, "collapse": 1.0}
    watch = tta.Watch(Forgetful(digits), source=source, **QUICK)
    before = watch.state_dict()["model"]
    levels = watch.calibrate(source, samples=2048)
    assert levels["forgetting"] > 1.5 and watch.reference.levels == levels
    assert all(torch.equal(before[name], tensor) for name, tensor in watch.state_dict()["model"].items())
    watch.reset()
    assert watch.reference.levels == levels


def test_what_was_calibrated_is_saved(digits, source, tmp_path):
    watch = tta.Watch(Forgetful(digits), source=source, **QUICK)
    levels = watch.calibrate(source, samples=1024)
    watch.reference.save(tmp_path / "source.pt")
    assert tta.Watch(Forgetful(digits), source=tmp_path / "source.pt", **QUICK).reference.levels == levels


@pytest.mark.parametrize(
    ("batches", "samples", "reason"),
    [(1, 0, "samples must be at least 1, got 0"), (0, 64, "source has no batches")],
)
def test_nothing_to_calibrate_with_is_refused(digits, source, batches, samples, reason):
    with pytest.raises(ValueError, match=reason):
        tta.Watch(tta.NOTE(digits), source=source).calibrate(list(source)[:batches], samples)


def test_without_a_source_there_is_nothing_to_calibrate(digits, source):
    with pytest.raises(ValueError, match="calibrate needs a watch that knows its source"):
        tta.Watch(tta.NOTE(digits)).calibrate(source)


class TestOneWatchsLimits:
    def watch(self):
        keywords = {"look": 64, "sample": 16, "expected_run": 128}
        return tta.Watch(tta.NOTE(example_network()), source=[example_images(64)], **keywords)

    def test_are_not_a_forks(self):
        watch = self.watch()
        fork = watch.fork()
        fork.calibrate([example_images(64)], samples=256)
        watch.reset()
        assert watch.reference.levels == {}

    def test_stay_if_a_later_calibration_fails(self):
        watch = self.watch()
        levels = watch.calibrate([example_images(64).double()], samples=256)
        with pytest.raises(TypeError, match="batches x or"):
            watch.calibrate([example_images(64), "no batch"], samples=64)
        assert watch.reference.levels == levels
