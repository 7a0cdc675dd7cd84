"""A full disk, a damaged folder, one that is gone, a forked process: no stream of a fleet is lost in silence."""

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from note_tta import Fleet
from note_tta.checks import equal, example_images, example_network
from note_tta.fleet.store import Store
from note_tta.methods.note import NOTE

IDS = list(range(16))


def note(model):
    return NOTE(model, interval=8)


def feed(fleet, ids=IDS):
    return fleet(ids, example_images(len(ids)))


@pytest.fixture
def full_disk(tmp_path):
    """A fleet of 16 streams with room for 8, whose disk becomes full; and a function that makes room again."""
    fleet = Fleet(example_network(), note, max_resident=8, spill=tmp_path)
    for _ in range(3):
        feed(fleet)
    fleet.flush()
    database = fleet._streams.store._open
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages + 1}")  # SQLite then answers as on a full disk
    yield fleet, lambda: database.execute("PRAGMA max_page_count = 1000000")
    fleet.close()


def test_on_a_full_disk_no_sample_of_an_answered_call_is_lost(full_disk, tmp_path):
    fleet, make_room = full_disk
    answered = dict.fromkeys(IDS, 3)
    with pytest.raises(OSError, match=r"streams\.sqlite: database or disk is full"):
        for new in range(100, 300, 8):
            ids = list(range(new, new + 8))
            feed(fleet, ids)
            answered |= dict.fromkeys(ids, 1)
    for name, samples in answered.items():
        assert fleet.counters(name)["samples"] >= samples
        assert fleet.durable(name) <= fleet.counters(name)["samples"]
    make_room()
    states = {name: fleet.state_dict(name) for name in fleet}
    fleet.close()
    with Fleet(example_network(), note, max_resident=8, spill=tmp_path) as again:
        assert set(again) == set(states)
        assert all(equal(again.state_dict(name), state) for name, state in states.items())


def test_on_a_full_disk_durable_tells_what_the_folder_holds(full_disk, tmp_path):
    fleet, _ = full_disk
    with pytest.raises(OSError, match="full"):
        for new in range(100, 300):
            feed(fleet, [new])
    told = {name: fleet.durable(name) for name in IDS}
    fleet._streams.store._open.close()  # the process ends here
    fleet._streams.store._open = None
    with Fleet(example_network(), note, spill=tmp_path) as again:
        assert {name: again.counters(name)["samples"] for name in IDS} == told


def test_a_folder_that_was_deleted_is_told(tmp_path):
    fleet = Fleet(example_network(), note, spill=tmp_path)
    feed(fleet)
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(OSError, match="was deleted or replaced while it was in use"):
        fleet.flush()
    with pytest.raises(OSError, match="was deleted or replaced"):
        fleet.close()
    assert fleet.counters(0)["samples"] == 1


@pytest.mark.parametrize("at", [100, 65_536 + 10])
def test_a_damaged_folder_is_named(tmp_path, at):
    with Fleet(example_network(), note, spill=tmp_path) as fleet:
        feed(fleet)
    with (tmp_path / "streams.sqlite").open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 200)
    refused = pytest.raises(ValueError, match=r"streams\.sqlite is not a store of streams, or damaged")
    with refused, Fleet(example_network(), note, spill=tmp_path) as fleet:
        feed(fleet)


def test_sizes_that_are_refused_leave_nothing_behind():
    fleet = Fleet(example_network(), note)
    feed(fleet, ["a"])
    for size in range(9, 29):
        with pytest.raises(ValueError, match="a stream keeps one shape"):
            fleet(["a"], torch.rand(1, 3, size, size))
    assert len(fleet._fits) == 1


class FailsAt(torch.nn.Module):
    """A model that fails on a sample whose first value is 7."""

    def __init__(self):
        super().__init__()
        self.inner = example_network()

    def forward(self, x):
        if (x[:, 0, 0, 0] == 7).any():
            raise RuntimeError("no memory")
        return self.inner(x)


def test_samples_are_counted_before_they_are_learned_from():
    """Otherwise a source that sends again from the counter would let the stream learn twice."""
    fleet, x = Fleet(FailsAt(), note), example_images(40)
    x[20, 0, 0, 0] = 7
    with pytest.raises(ValueError, match="no memory"):
        fleet(["a"] * 40, x)
    assert fleet.counters("a")["samples"] == 16 == sum(fleet.method("a").memory._seen.values())


def test_a_stream_that_has_no_sample_yet_is_written_when_it_leaves_memory(tmp_path):
    with Fleet(FailsAt(), note, max_resident=1, spill=tmp_path) as fleet:
        bad = torch.full((1, 3, 8, 8), 7.0)
        feed(fleet, ["b"])
        with pytest.raises(ValueError, match="no memory"):
            fleet(["a"], bad)
        feed(fleet, ["b"])
        assert "a" in fleet and fleet.counters("a")["samples"] == 0


def full_of_five(tmp_path):
    """A fleet with room for two streams: "c" is in the folder only, "a" and "b" have five samples in memory only."""
    fleet = Fleet(example_network(), note, max_resident=2, spill=tmp_path)
    feed(fleet, ["c"] * 3)
    feed(fleet, ["a"] * 5)
    feed(fleet, ["b"] * 5)
    return fleet


def failing(monkeypatch, statement, times=1):
    """Let the next statements of this kind fail as on a full disk."""
    run, left = Store._run, [times]

    def fails(store, text, *values):
        if text.startswith(statement) and left[0]:
            left[0] -= 1
            raise OSError("full")
        return run(store, text, *values)

    monkeypatch.setattr(Store, "_run", fails)


@pytest.mark.parametrize("statement", ["INSERT", "COMMIT"])
def test_a_stream_that_takes_its_place_again_is_not_lost(tmp_path, monkeypatch, statement):
    with full_of_five(tmp_path) as fleet:
        failing(monkeypatch, statement)
        with pytest.raises(OSError, match="full"):
            feed(fleet, ["c", "a"])
        assert sorted(fleet) == ["a", "b", "c"] and fleet.counters("a")["samples"] >= 5


def test_a_stream_that_is_replaced_while_the_disk_is_full_is_not_lost(tmp_path, monkeypatch):
    with full_of_five(tmp_path) as fleet:
        failing(monkeypatch, "COMMIT")
        with pytest.raises(OSError, match="full"):
            feed(fleet, ["d"])
        failing(monkeypatch, "INSERT")
        with pytest.raises(OSError, match="full"):
            fleet.load_state_dict("a", note(example_network()).state_dict())
        assert "a" in fleet


def test_durable_tells_of_the_folder_not_of_a_state_that_could_not_be_written(tmp_path, monkeypatch):
    with Fleet(example_network(), note, spill=tmp_path) as fleet:
        feed(fleet, ["a"] * 8)
        assert fleet.durable("a") == 8
        other = note(example_network())
        other(example_images(40))
        failing(monkeypatch, "INSERT")
        with pytest.raises(OSError, match="full"):
            fleet.load_state_dict("a", other.state_dict())
        assert fleet.durable("a") <= 8


def test_what_durable_tells_is_committed(tmp_path):
    fleet = full_of_five(tmp_path)
    fleet.method("c")  # "a" leaves memory
    assert fleet.durable("a") == 5 and not fleet._streams.store.has_changes


def test_an_interrupt_during_a_commit_counts_no_stream_twice(tmp_path, monkeypatch):
    run = Store._run

    def interrupted(store, text, *values):
        rows = run(store, text, *values)
        if text == "COMMIT":
            raise KeyboardInterrupt
        return rows

    with Fleet(example_network(), note, spill=tmp_path) as fleet:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Store, "_run", interrupted)
            feed(fleet, ["a"] * 8)
        assert list(fleet) == ["a"] and len(fleet) == 1


def test_an_update_that_fails_beside_the_calls_is_told_once(tmp_path):
    class Fails(NOTE):
        def learn(self, draft, x):
            raise MemoryError("no memory")

    with Fleet(
        example_network(), lambda model: Fails(model, interval=8, delay=4), max_resident=1, spill=tmp_path
    ) as fleet:
        feed(fleet, ["a"] * 8)
        with pytest.raises(MemoryError):
            feed(fleet, ["b"])  # "a" leaves memory, and its update is waited for
        feed(fleet, ["b"])
        assert fleet.counters("a")["rejected_updates"] == 1


def samples_in(fleet):
    return {name: fleet.counters(name)["samples"] for name in fleet}


@pytest.mark.parametrize("seed", range(40))
def test_faults_at_random_statements_lose_nothing(seed, tmp_path, monkeypatch):
    chance, run, rate = random.Random(seed), Store._run, [0.0]

    def faulty(store, text, *values):
        if chance.random() >= rate[0]:
            return run(store, text, *values)
        if chance.random() < 0.5:
            run(store, text, *values)
        raise chance.choice([OSError, KeyboardInterrupt])("injected")

    monkeypatch.setattr(Store, "_run", faulty)
    fleet = Fleet(example_network(), note, max_resident=chance.choice([1, 2, 3]), spill=tmp_path / "spill")
    had = Counter()
    for step in range(8):
        names, failed = chance.choices("abcde", k=chance.randint(1, 7)), False
        rate[0] = chance.choice([0, 0.05, 0.2, 0.5])
        try:
            feed(fleet, names)
        except (OSError, KeyboardInterrupt):
            failed = True
        rate[0] = 0.0
        has = samples_in(fleet)
        assert len(fleet) == len(has)
        for name in {*names, *had}:
            taken = has.get(name, 0) - had[name]
            assert 0 <= taken <= names.count(name) and (failed or taken == names.count(name))
        had = Counter(has)
        told = {name: fleet.durable(name) for name in fleet}
        shutil.copytree(tmp_path / "spill", tmp_path / f"killed {step}")
        with Fleet(example_network(), note, spill=tmp_path / f"killed {step}") as killed:
            held = samples_in(killed)
        assert all(samples <= held.get(name, 0) for name, samples in told.items())
    states = {name: fleet.state_dict(name) for name in fleet}
    fleet.close()
    with Fleet(example_network(), note, spill=tmp_path / "spill") as again:
        assert equal({name: again.state_dict(name) for name in again}, states)


FORKED = """
import os, sys, torch, note_tta as tta
from note_tta.checks import example_images, example_network
folder, x = sys.argv[1], example_images(2)
try:
    with tta.Fleet(example_network(), spill=folder) as fleet:
        fleet(["a", "b"], x)
        if os.fork() == 0:
            try:
                fleet(["a", "b"], x)
            except ValueError as error:
                print(error, flush=True)
            raise SystemExit
        os.wait()
        for _ in range(130):
            fleet(["a", "b"], x)
        fleet.flush()
except SystemExit:
    os._exit(0)
with tta.Fleet(example_network(), spill=folder) as fleet:
    print(fleet.counters("a")["samples"])
"""

ENDING = """
import os, sys, note_tta as tta
from note_tta.checks import example_images, example_network
def feed(name):
    fleet([name] * 4, example_images(4))
fleet = tta.Fleet(example_network(), lambda m: tta.NOTE(m, interval=4), spill=sys.argv[1])
for name in "abcdefgh":
    feed(name)
read, write = os.pipe()
if os.fork() == 0:
    os.read(read, 1)
    raise SystemExit
fleet.flush()
for number in range(30):
    feed(number)
for name in "hgfedcba":
    feed(name)
os.write(write, b"x")
os.wait()
os._exit(0)  # as if it were killed
"""

PENDING = """
import os, torch, note_tta as tta
from note_tta.checks import example_images, example_network
torch.set_num_threads(1)
method, x = tta.NOTE(example_network(), interval=8, delay=8), example_images(40)
method(x[:9])
if os.fork() == 0:
    print(torch.equal(method(x[9:]), tta.NOTE(example_network(), interval=8, delay=8)(x)[9:]), flush=True)
    os._exit(0)
os.wait()
"""


def run(script, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
class TestForks:
    def test_a_fork_that_ends_does_not_touch_the_folder(self, tmp_path):
        run(ENDING, tmp_path / "spill")
        with Fleet(
            example_network(), lambda model: NOTE(model, interval=4), spill=tmp_path / "spill"
        ) as fleet:
            assert samples_in(fleet) == dict.fromkeys("abcdefgh", 8) | dict.fromkeys(range(30), 4)

    def test_a_fork_that_leaves_a_fleets_block_does_not_touch_the_folder(self, tmp_path):
        refusal, samples = run(FORKED, Path(tmp_path) / "spill")
        assert "is open in another process, which this one was forked from" in refusal
        assert samples == "131"

    def test_a_fork_computes_the_update_whose_thread_it_does_not_have(self):
        assert run(PENDING) == ["True"]
