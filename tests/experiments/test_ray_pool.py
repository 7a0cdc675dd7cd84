"""The Ray backend on a local cluster of two workers, one of which is killed during the run."""

import os
import signal

import pytest

pytest.importorskip("ray", reason="Ray is not installed")

from note_tta.experiments.ray_pool import RayPool
from note_tta.experiments.schedule import Failure, Lost, schedule
from note_tta.experiments.worker import Settings, Worker

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def pool():
    made = RayPool(2, Settings(threads=1))
    yield made
    made.close()


def test_results_are_those_of_one_process(pool, stream):
    assert pool.lanes == 2
    saved = {}
    cells = [stream(seed) for seed in range(4)]
    tally = schedule(cells, pool, lambda record: saved.update({record.job: record}), lambda line: None)
    assert tally.done == 4
    here = Worker(Settings())
    assert all(saved[cell].result == here.run(cell).result for cell in cells)


def test_a_killed_worker_is_told_and_its_cell_tried_again(pool, stream):
    import ray

    killed = []
    lines, saved = [], []
    cells = [stream(seed) for seed in range(4)]
    original = pool.submit

    def submit(lane, cell):
        if not killed:
            pool._actors[lane] = pool._actor.remote(pool._settings)
            killed.append(ray.get(pool._actors[lane].process.remote()))
            original(lane, cell)
            os.kill(killed[0], signal.SIGKILL)
        else:
            original(lane, cell)

    pool.submit = submit
    tally = schedule(cells, pool, saved.append, lines.append)
    assert (tally.done, tally.failed) == (4, [])
    assert len(lines) == 1
    assert lines[0].startswith("a worker died (")


def test_what_a_cell_raises_comes_back(pool, stream):
    pool.submit(0, stream(domain="nowhere"))
    _, outcome = pool.wait()
    assert isinstance(outcome, Failure)
    assert not isinstance(outcome, Lost)
    assert outcome.message.startswith("ValueError: ")
    assert "unknown domain 'nowhere'" in outcome.message


def test_an_address_where_nothing_is():
    with pytest.raises(ValueError, match="no Ray cluster at 'auto'"):
        RayPool(1, Settings(), "auto")
