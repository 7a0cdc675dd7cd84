"""Answers that wait to be counted."""

import pytest
import torch

from note_tta.checks import equal
from note_tta.watch.tally import MOST_WAITING, Tally


@pytest.mark.parametrize("classes", [10, 1000])
def test_no_more_logits_wait_than_are_allowed(classes):
    tally, rows = Tally(), 0
    while not tally.is_full:
        tally.wait(torch.zeros(8, classes))
        rows += 8
    assert (rows - 8) * classes < MOST_WAITING <= rows * classes
    tally.count(1.0, 64)
    assert not tally.is_full and tally.samples == rows


def test_lists_are_counted_as_tensors_are():
    logits = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    tallies = Tally(), Tally()
    tallies[0].wait(logits)
    for row in logits:
        tallies[1].wait([row.tolist()])
    assert equal(*(tally.state_dict() for tally in tallies))
    for tally in tallies:
        tally.count(0.5, 4)
    assert equal(*(tally.state_dict() for tally in tallies))
    assert float(tallies[1].answers.sum()) == pytest.approx(tallies[1].weight) and tallies[1].weight > 1
