"""The process pool with real processes: results as in one process, dead workers replaced."""

import os
import signal
import threading
import time

import pytest

from note_tta.experiments.process_pool import ProcessPool, available_cores
from note_tta.experiments.schedule import Failure, Lost, schedule
from note_tta.experiments.store import Record
from note_tta.experiments.worker import Settings, Worker


@pytest.fixture
def pool():
    made = ProcessPool(2, Settings(threads=1))
    yield made
    made.close()


def test_results_are_those_of_one_process_and_threads_are_divided(pool, stream):
    cells = [stream(seed) for seed in range(3)]
    saved = {}
    tally = schedule(cells, pool, lambda record: saved.update({record.job: record}), lambda line: None)
    assert tally.done == 3
    here = Worker(Settings())
    assert all(saved[cell].result == here.run(cell).result for cell in cells)
    assert {record.provenance["threads"] for record in saved.values()} == {1}


def test_what_a_cell_raises_comes_back_and_the_worker_lives_on(pool, stream):
    pool.submit(0, stream(domain="nowhere"))
    lane, outcome = pool.wait()
    assert (lane, type(outcome)) == (0, Failure)
    assert outcome.message.startswith("ValueError: ")
    assert "unknown domain 'nowhere'" in outcome.message
    process = pool._workers[0][0]
    pool.submit(0, stream())
    assert isinstance(pool.wait()[1], Record)
    assert pool._workers[0][0] is process


def test_a_killed_worker_is_told_and_replaced(pool, stream):
    pool.submit(0, stream())
    os.kill(pool._workers[0][0].pid, signal.SIGKILL)
    assert pool.wait() == (0, Lost("killed by signal 9"))
    pool.submit(0, stream())
    assert isinstance(pool.wait()[1], Record)


@pytest.mark.slow
def test_a_worker_that_died_idle_is_noticed_with_its_next_cell(pool, stream):
    pool.submit(0, stream())
    pool.wait()
    process = pool._workers[0][0]
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    pool.submit(0, stream())
    assert isinstance(pool.wait()[1], Lost)


@pytest.mark.slow
def test_closing_stops_workers_at_once(pool, stream):
    pool.submit(0, stream())
    process = pool._workers[0][0]
    pool.close()
    assert not process.is_alive()


@pytest.mark.slow
def test_a_run_survives_the_kill_of_a_worker(pool, stream):
    cells = [stream(seed) for seed in range(4)]
    lines, saved = [], []

    def kill_one():
        while not pool._workers:
            time.sleep(0.01)
        os.kill(pool._workers[0][0].pid, signal.SIGKILL)

    threading.Thread(target=kill_one).start()
    tally = schedule(cells, pool, saved.append, lines.append)
    assert (tally.done, tally.failed) == (4, [])
    assert len(lines) == 1
    assert lines[0].startswith("a worker died (killed by signal 9); trying again: ")


def test_no_workers_is_an_error():
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        ProcessPool(0, Settings())


def test_there_is_a_core():
    assert available_cores() >= 1
