from collections import deque
from dataclasses import replace

import pytest

from note_tta.experiments.cell import Cell, Stream
from note_tta.experiments.schedule import Failure, Lost, schedule
from note_tta.experiments.store import Record

CELLS = [Cell(Stream("cifar10", f"d{i}", "iid"), "note") for i in range(5)]


class Scripted:
    """A backend that returns the scripted outcome of each cell, or a record if there is none."""

    def __init__(self, lanes=1, script=()):
        self.lanes, self.script = lanes, {cell: deque(answers) for cell, answers in dict(script).items()}
        self.running, self.started, self.closed = {}, [], False
        self.lane_of = {}

    def submit(self, lane, cell):
        assert lane not in self.running
        self.running[lane] = cell
        self.started.append(cell)
        self.lane_of[cell] = lane

    def wait(self):
        lane = min(self.running)
        cell = self.running.pop(lane)
        answers = self.script.get(cell)
        return lane, answers.popleft() if answers else Record(cell, {}, {})

    def close(self):
        self.closed = True


def run(backend, cells=CELLS):
    saved, lines = [], []
    tally = schedule(cells, backend, lambda record: saved.append(record.job), lines.append)
    return tally, saved, lines


@pytest.mark.parametrize("lanes", [1, 3, 9])
def test_every_cell_is_run_once(lanes):
    backend = Scripted(lanes)
    tally, saved, lines = run(backend)
    assert sorted(saved, key=str) == sorted(CELLS, key=str)
    assert (tally.done, tally.failed, lines) == (5, [], [])
    assert backend.closed


def test_a_filter_follows_its_method_on_the_same_lane():
    pairs = [(cell, replace(cell, method="note+filter")) for cell in CELLS]
    backend = Scripted(2, {pairs[1][0]: [Lost("killed by signal 9")]})
    tally, _saved, _ = run(backend, [cell for pair in pairs for cell in pair])
    assert tally.done == 10
    for method, around in pairs:
        assert backend.lane_of[method] == backend.lane_of[around]
        assert backend.started.index(method) < backend.started.index(around)


def test_a_dead_worker_is_told_and_its_cell_tried_again():
    backend = Scripted(2, {CELLS[1]: [Lost("killed by signal 9")]})
    tally, _saved, lines = run(backend)
    assert tally.done == 5
    assert backend.started.count(CELLS[1]) == 2
    assert lines == [f"a worker died (killed by signal 9); trying again: {CELLS[1].describe()}"]


def test_a_cell_that_kills_its_workers_is_given_up():
    tally, saved, _ = run(Scripted(1, {CELLS[0]: [Lost("exit code 1")] * 3}))
    assert tally.failed == [(CELLS[0], "its worker died 3 times")]
    assert len(saved) == 4


def test_a_cell_that_raises_is_not_tried_again_and_the_others_go_on():
    backend = Scripted(1, {CELLS[2]: [Failure("ValueError: no")]})
    tally, saved, lines = run(backend)
    assert tally.failed == [(CELLS[2], "ValueError: no")]
    assert backend.started.count(CELLS[2]) == 1
    assert len(saved) == 4
    assert lines[0].startswith("failed: cifar10/d2")


def test_workers_are_stopped_when_saving_fails():
    backend = Scripted(2)

    def full(record):
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        schedule(CELLS, backend, full, lambda line: None)
    assert backend.closed
