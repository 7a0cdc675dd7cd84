"""Answers that repeat themselves less than the source model's: called where a method goes wrong, and only there."""

import pytest
import torch
from torch import nn

import note_tta as tta
from benchmarks.trust.common import source_model
from note_tta.checks import example_images
from note_tta.watch.tally import Tally

CLASSES = 10
PATIENCE = 6250
SURE = 0.85


def labels_in_runs(length, samples, generator):
    """Labels of a stream whose runs have this mean length."""
    new = torch.rand(samples, generator=generator) < 1 / length
    drawn = torch.randint(CLASSES, (samples,), generator=generator)
    drawn[1:] = torch.where(new[1:], drawn[1:], torch.tensor(-1))
    found = drawn.tolist()
    for at in range(1, samples):
        found[at] = found[at - 1] if found[at] < 0 else found[at]
    return torch.tensor(found)


def often_right(labels, share, generator):
    """Answers of a model that is right on this share, and otherwise answers at random."""
    right = torch.rand(len(labels), generator=generator) < share
    return torch.where(right, labels, torch.randint(CLASSES, labels.shape, generator=generator))


def called_at(ours, theirs):
    """After how many comparisons the answers are called unsteady; None for never."""
    tally = Tally()
    tally._grow(CLASSES)
    for number, (our, their) in enumerate(zip(ours.tolist(), theirs.tolist(), strict=True)):
        tally.pair(our, their)
        if tally.unsteadiness(PATIENCE) >= 1:
            return number
    return None


@pytest.mark.parametrize("length", [1, 3, 30])
def test_two_models_that_are_alike_are_not_called(length):
    generator = torch.Generator().manual_seed(0)
    labels = labels_in_runs(length, 3 * PATIENCE, generator)
    ours, theirs = (often_right(labels, SURE, generator) for _ in range(2))
    assert called_at(ours, theirs) is None


def test_answers_without_order_on_a_stream_with_order_are_called_soon():
    generator = torch.Generator().manual_seed(0)
    labels = labels_in_runs(5, 600, generator)
    theirs = often_right(labels, SURE, generator)
    ours = often_right(labels, 0.2, generator)
    ours[:300] = theirs[:300]
    assert 300 < called_at(ours, theirs) < 420


def test_one_answer_for_everything_repeats_no_more_than_its_share():
    """A source model that has broken down is always steady, and its adapted twin is not called for that."""
    generator = torch.Generator().manual_seed(0)
    labels = labels_in_runs(1, PATIENCE, generator)
    theirs = torch.where(torch.rand(len(labels), generator=generator) < 0.7, 3, labels)
    assert called_at(often_right(labels, SURE, generator), theirs) is None


def test_tent_is_called_on_a_correlated_stream_and_not_on_the_same_samples_shuffled(source, clean):
    x, y = clean[0][:1024], clean[1][:1024]
    mixed = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    alarms, errors = [], []
    for order in (torch.arange(len(y)), mixed):
        watch = tta.Watch(tta.TENT(source_model("bn")), source=source, rollback=False, sample=16)
        answers = torch.cat([watch(part) for part in x[order].split(64)]).argmax(1)
        errors.append(float((answers != y[order]).float().mean()))
        alarms.append(watch.alarms)
    assert errors[0] > 4 * errors[1]
    assert alarms[0][0].samples <= 640
    assert alarms[0][0].cause.startswith("neighbouring samples get the same answer less often")
    assert alarms[1] == []


def test_evidence_goes_on_from_a_state():
    tally = Tally()
    tally._grow(CLASSES)
    for number in range(20):
        tally.pair(number % CLASSES, 3)
    twin = Tally()
    twin.load_state_dict(tally.state_dict())
    for each in (tally, twin):
        each.pair(5, 3)
    assert twin.unsteady.sum == tally.unsteady.sum > 0
    twin.start_over()
    assert twin.unsteady.sum == 0


def test_a_model_without_running_statistics_may_forget_a_third():
    def allowed(norm):
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3), norm, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
        )
        watch = tta.Watch(tta.NOTE(tta.convert_iabn(model)), source=[example_images(64)], look=64, sample=16)
        watch(example_images(64, seed=1))
        signals = watch.health.signals
        return signals["allowed"] / min(1, signals["classes"] / 3)

    assert allowed(nn.BatchNorm2d(4)) == pytest.approx(0.15, abs=1e-3)
    assert allowed(nn.GroupNorm(1, 4)) == pytest.approx(0.05, abs=1e-3)
