import math

import pytest
import torch

import note_tta as tta
from note_tta.serve.record import POINTS, USUAL, Record, distance


def fed(*parts):
    record = Record()
    for samples, confidence in parts:
        for _ in range(samples):
            record.count([1], [confidence])
    return record


def test_the_expected_error_follows_the_answers():
    record = fed((50, 0.9))
    assert record.expected_error == pytest.approx(0.1)
    for _ in range(200):
        record.count([1], [0.5])
    assert record.expected_error == pytest.approx(0.5, abs=0.03)


def test_batches_and_single_samples_come_to_the_same_in_the_mean():
    one, many = Record(), Record()
    for start in range(0, 640, 16):
        values = [0.5 + 0.4 * math.sin(start + i) for i in range(16)]
        many.count([1] * 16, values)
        for value in values:
            one.count([1], [value])
    assert one.expected_error == pytest.approx(many.expected_error, abs=0.05)


def test_a_stream_drifts_when_its_answers_get_less_sure_and_recovers():
    record = fed((USUAL, 0.95))
    assert record.judge()[0] == "steady"
    for _ in range(30):
        record.count([1], [0.6])
    state, why = record.judge()
    assert state == "drifting" and "at its best it was 5 %" in why
    for _ in range(300):
        record.count([1], [0.95])
    assert record.judge()[0] == "steady"


def test_a_stream_of_bad_samples_is_suspect():
    record = fed((USUAL, 0.95))
    record.count([None] * 60, [0.0] * 60)
    assert record.judge()[0] == "suspect" and "NaN" in record.judge()[1]
    assert record.expected_error == pytest.approx(0.05)


def test_more_trouble_sorts_first():
    calm, unsure, bad = fed((USUAL, 0.9)), fed((USUAL, 0.9), (40, 0.4)), fed((USUAL, 0.9))
    bad.count([None] * 64, [0.0] * 64)
    assert calm.trouble < unsure.trouble < bad.trouble


def test_what_the_watch_says_counts_unless_something_worse_was_seen():
    record = fed((USUAL, 0.95))
    record.health = {"state": "rolled back", "why": "forgetting"}
    assert record.judge() == ("rolled back", "forgetting")
    record.health = {"state": "steady", "why": "fine"}
    record.count([None] * 64, [0.0] * 64)
    assert record.judge()[0] == "suspect"


def test_history_is_bounded():
    record = fed((1, 0.5))
    for second in range(3 * POINTS):
        record.mark(float(second))
        record.tell("event", "again")
    page = record.page("a")
    assert len(page["history"]["times"]) == POINTS and page["history"]["times"][-1] == 3 * POINTS - 1
    assert len(record.events) == 50


def test_distance_is_in_deviations_of_the_source(model):
    method = tta.NOTE(model)
    source = method.backbone.source
    assert distance(method.tensors, source) == 0
    with torch.no_grad():
        method.tensors["1.running_mean"] += 2 * (source["1.running_var"] + 1e-5).sqrt()
    assert distance(method.tensors, source) == pytest.approx(2)


def test_a_model_without_running_statistics_has_no_distance():
    assert distance({"a.weight": torch.ones(2)}, {"a.weight": torch.zeros(2)}) == 0


def test_trouble_that_begins_and_ends_is_an_event():
    record = fed((USUAL, 0.9))
    record.follow()
    assert not record.events
    record.count([0] * 40, [0.4] * 40)
    assert record.follow()[0] == record.follow()[0] == "drifting"
    record.count([0] * 640, [0.9] * 640)
    record.follow()
    assert [event["kind"] for event in record.events] == ["drifting", "steady"]
