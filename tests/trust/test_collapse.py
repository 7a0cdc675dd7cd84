"""A stream of one class, or of noise, must not leave NOTE with one answer for everything."""

import pytest
import torch
from networks import images, make

import note_tta as tta
from benchmarks.trust.collapse import attacked, fresh
from benchmarks.trust.common import clean_stream
from note_tta.methods.note import effective_classes


def test_min_classes_waits_for_more_than_one_class():
    one = images(1).expand(64, 3, 8, 8)  # one sample again and again: one predicted class
    method = make("note", min_classes=2)
    start = method.state_dict()["model"]
    method(one)
    assert method.counters["updates"] == 0 and method.counters["rejected_updates"] == 1
    assert all(torch.equal(value, start[key]) for key, value in method.state_dict()["model"].items())
    paper = make("note")
    paper(one)
    assert paper.counters["updates"] == 1 and paper.counters["rejected_updates"] == 0


def test_min_classes_learns_from_a_diverse_memory_as_the_paper_does():
    x = images(256)
    guarded, paper = make("note", min_classes=1.5), make("note")
    assert torch.equal(guarded(x), paper(x))
    assert guarded.counters == paper.counters and paper.counters["updates"] == 4
    assert effective_classes(guarded.memory.labels()) > 1.5


@pytest.mark.parametrize("value", [0, 0.5, float("nan")])
def test_min_classes_below_one_is_refused(value):
    with pytest.raises(ValueError, match="min_classes must be at least 1, got"):
        make("note", min_classes=value)


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["one class", "pure noise"])
def test_note_is_not_left_with_one_answer_for_everything(stream):
    x, y = clean_stream()
    row = attacked("note", stream, 2560, (x[:1200], y[:1200]))
    assert row["classes_predicted_after"] == 10
    assert row["share_of_top_class_after"] < 40


@pytest.mark.slow
def test_with_min_classes_noise_changes_nothing():
    method = fresh("note, min_classes=3")
    before = method.state_dict()["model"]
    method(torch.rand(640, 1, 32, 32, generator=torch.Generator().manual_seed(0)))
    after = method.state_dict()["model"]
    assert method.counters["rejected_updates"] == 10
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_the_row_of_every_name_is_its_method():
    assert isinstance(fresh("note, after a clean start"), tta.NOTE)
    assert fresh("note, min_classes=3").min_classes == 3 and fresh("note").min_classes == 1
