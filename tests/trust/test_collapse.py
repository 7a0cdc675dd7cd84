"""A stream of one class, or of noise, must not leave NOTE with one answer for everything."""

import pytest

import note_tta as tta
from benchmarks.trust.collapse import attacked, fresh
from benchmarks.trust.common import clean_stream


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["one class", "pure noise"])
def test_note_is_not_left_with_one_answer_for_everything(stream):
    x, y = clean_stream()
    row = attacked("note", stream, 2560, (x[:1200], y[:1200]))
    assert row["classes_predicted_after"] == 10
    assert row["share_of_top_class_after"] < 40


def test_the_row_of_every_name_is_its_method():
    assert isinstance(fresh("note, after a clean start"), tta.NOTE)
