import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from note_tta.experiments.cell import Cell, Stream
from note_tta.experiments.store import MAX_BYTES, Record, Store, count_wrong, cumulative_error, thinned

STREAM = Stream("cifar10", "fog", "iid", seed=1)
CELL = Cell(STREAM, "note", model="resnet20", width=8)
DRAWN = {"samples": 100, "labels": [0, 1, 2], "mean_run_length": 1.5}
RESULT = {"error": 21.125, "wrong": [10, 11], "visits": {"fog": [20.0, 22.25]}, **DRAWN}
ORIGIN = {
    "commit": "abc",
    "time": "2026-01-01T00:00:00+00:00",
    "wall_seconds": 1.5,
    "data": {"origin": "published"},
    "checkpoint": {"name": "a.safetensors", "card": {"clean_error": 8.0}},
}
RECORD = Record(CELL, RESULT, ORIGIN)
ALONE = Record(STREAM, DRAWN, {"commit": "abc", "time": "now", "data": {"origin": "published"}})


def others(count):
    cells = [Cell(Stream("cifar10", f"d{i}", "iid"), "note", model="resnet20", width=8) for i in range(count)]
    return [Record(cell, RESULT, ORIGIN) for cell in cells]


def test_results_read_back(tmp_path):
    store = Store(tmp_path / "new" / "folder")
    assert CELL not in store and STREAM not in store
    for record in (RECORD, ALONE):
        store.save(record)
    for reader in (store, Store(store.folder)):
        assert CELL in reader and STREAM in reader
        assert (reader.load(CELL), reader.load(STREAM)) == (RECORD, ALONE)
        assert len(reader) == len(list(reader)) == 2
    with pytest.raises(KeyError):
        store.load(Cell(STREAM, "tent"))


def test_a_reader_sees_what_is_appended_later(tmp_path):
    reader = Store(tmp_path)
    assert len(reader) == 0
    for i, record in enumerate(others(3)):
        Store(tmp_path).save(record)
        assert len(reader) == i + 1


def test_what_runs_share_is_stored_once(tmp_path):
    for record in [RECORD, *others(5)]:
        Store(tmp_path).save(record)
    lines = {path.name: len(path.read_text().splitlines()) for path in tmp_path.iterdir()}
    assert lines == {
        "cifar10-resnet20-w8.jsonl": 6,
        "streams.jsonl": 6,
        "checkpoints.jsonl": 1,
        "provenance.jsonl": 1,
    }


def test_a_line_is_a_run_with_its_cell_first(tmp_path):
    Store(tmp_path).save(RECORD)
    (line,) = (tmp_path / "cifar10-resnet20-w8.jsonl").read_text().splitlines()
    assert line.startswith('{"schema":2,"cell":{"dataset":"cifar10","domain":"fog","order":"iid","seed":1,')
    data = json.loads(line)
    assert data["result"] == {key: value for key, value in RESULT.items() if key not in DRAWN}
    assert data.keys() == {
        "schema",
        "cell",
        "result",
        "time",
        "wall_seconds",
        "provenance",
        "stream",
        "checkpoint",
    }


def test_of_two_runs_of_a_cell_the_later_counts(tmp_path):
    store = Store(tmp_path)
    store.save(RECORD)
    store.save(Record(CELL, {**RESULT, "error": 1.0}, ORIGIN))
    for reader in (store, Store(tmp_path)):
        assert reader.load(CELL).result["error"] == 1.0
        assert len(reader) == 1


def test_other_files_are_left_alone(tmp_path):
    for name in ("benchmark.json", "notes.md", "more.jsonl"):
        (tmp_path / name).write_text("{}")
    store = Store(tmp_path)
    store.save(RECORD)
    assert list(store) == [RECORD]


@pytest.mark.parametrize(
    "cell",
    [
        Cell(Stream("../../etc/passwd", "all", "iid"), "note", model="my.models:make"),
        Cell(Stream("/data/" + "x" * 300, "all", "iid"), "note", model="m" * 300),
    ],
)
def test_a_file_is_named_so_that_it_stays_in_the_folder(tmp_path, cell):
    path = Store(tmp_path).path(cell)
    assert path.parent == tmp_path
    assert len(path.name) < 255
    Store(tmp_path).save(Record(cell, RESULT, ORIGIN))
    assert cell in Store(tmp_path)


# A writer that a real kill -9 finds in the middle of a line: it has written half of it and waits.
HALF = """
import sys, time
from note_tta import files
from test_store import RECORD, Store

class Half:
    def __init__(self, file):
        self.file = file
    def write(self, data):
        self.file.write(data[: len(data) // 2])
        print("half", flush=True)
        time.sleep(600)
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.file.close()
    def __getattr__(self, name):
        return getattr(self.file, name)

class Path(type(files.Path())):
    def open(self, *args, **options):
        file = super().open(*args, **options)
        return Half(file) if self.name.startswith("cifar10-") else file

store = Store(sys.argv[1])
store.folder = Path(store.folder)
store.save(RECORD)
"""


def test_a_line_torn_by_a_kill_is_ignored_and_written_anew(tmp_path):
    folder = tmp_path / "results"
    first, *rest = others(3)
    Store(folder).save(first)
    whole = Store(folder).path(CELL).read_bytes()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    process = subprocess.Popen([sys.executable, "-c", HALF, folder], stdout=subprocess.PIPE, env=environment)
    assert process.stdout.readline() == b"half\n"
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    torn = Store(folder).path(CELL).read_bytes()
    assert torn.startswith(whole) and len(torn) > len(whole) and not torn.endswith(b"\n")
    reader = Store(folder)
    assert list(reader) == [first]
    for record in (RECORD, *rest):
        Store(folder).save(record)
    assert list(reader) == list(Store(folder)) == [first, RECORD, *rest]
    assert Store(folder).path(CELL).read_bytes().count(b"\n") == 4


def _save(folder, name):
    for i in range(40):
        cell = Cell(Stream("cifar10", f"{name}-{i}", "iid"), "note", model="resnet20")
        Store(folder).save(Record(cell, {**RESULT, "wrong": [i] * 500}, ORIGIN))


def test_several_processes_append_at_once(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_save, args=(tmp_path, name)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert len(Store(tmp_path)) == 120


def test_a_disk_that_fills_up_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    first, second = others(2)
    store = Store(tmp_path)
    store.save(first)
    before = store.path(CELL).read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.save(second)
    monkeypatch.undo()
    assert store.path(CELL).read_bytes() == before
    store.save(second)
    assert list(Store(tmp_path)) == [first, second]


def line(**changes):
    content = {"schema": 2, "cell": CELL.config(), "result": {"error": 1.0}, "stream": "s", "provenance": "p"}
    return json.dumps({**content, **changes}) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n", "is a damaged result"),
        ("nothing\n", "is a damaged result"),
        ("[]\n", "is a damaged result"),
        ("{}\n", "is a damaged result: it has no 'schema'"),
        ("[" * 100_000 + "\n", "is a damaged result"),
        (line(schema=1), "has result schema 1, but this version of note-tta reads 2"),
        (line(schema=99), "has result schema 99"),
        (line(cell={}), "is a damaged result: a cell has the fields"),
        (line(cell=[]), r"is a damaged result: a configuration must be a dict, got \[\]"),
        (line(result={}), "is a damaged result: it has no 'error'"),
        (line(result={"error": "low"}), "its error is 'low'"),
        (line(result={"error": float("nan")}), "its error is nan"),
        (line(result={"error": 1.0, "wrong": ["a"]}), "its wrong is not a list of whole numbers"),
        (line(stream="gone"), "it has no 'gone'"),
        (line(provenance=None), "is a damaged result"),
    ],
)
def test_a_line_that_is_no_result_is_named(tmp_path, text, message):
    (tmp_path / "streams.jsonl").write_text('{"schema": 2, "id": "s", "samples": 3}\n')
    (tmp_path / "provenance.jsonl").write_text('{"schema": 2, "id": "p"}\n')
    path = tmp_path / "cifar10-resnet20.jsonl"
    path.write_text(line() + text)
    with pytest.raises(ValueError, match=message) as caught:
        list(Store(tmp_path))
    assert f"{path}, line 2" in str(caught.value)


def test_a_line_without_end_is_refused(tmp_path):
    path = tmp_path / "cifar10-resnet20.jsonl"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(
        ValueError, match="line 1 is not a result of note-tta: it is longer than 4,000,000 bytes"
    ):
        list(Store(tmp_path))


def test_a_file_in_the_place_of_the_folder(tmp_path):
    path = tmp_path / "results"
    path.write_text("")
    with pytest.raises(ValueError, match="the results must be in a folder"):
        Store(path)


@given(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_mutated_bytes_are_read_as_they_are_or_refused(tmp_path_factory, place, patch):
    store = Store(tmp_path_factory.mktemp("fuzz"))
    store.save(RECORD)
    path = store.path(CELL)
    data = bytearray(path.read_bytes())
    at = int(place * len(data))
    data[at : at + len(patch)] = patch
    path.write_bytes(bytes(data))
    try:
        records = list(Store(store.folder))
    except ValueError as error:
        assert str(path) in str(error)
    else:
        assert len(records) <= 1


@given(st.lists(st.integers(), max_size=50), st.integers(1, 20))
def test_thinning_keeps_the_end_and_the_bound(values, points):
    kept = thinned(values, points)
    assert len(kept) == min(points, len(values))
    assert kept[-1:] == values[-1:]
    assert thinned(kept, points) == kept


@given(st.lists(st.booleans(), min_size=1, max_size=80), st.integers(1, 20))
def test_wrong_answers_by_stretch_give_the_cumulative_error(wrong, stretches):
    counts = count_wrong(wrong, stretches)
    assert sum(counts) == sum(wrong)
    whole = [round(100 * sum(wrong[: i + 1]) / (i + 1), 2) for i in range(len(wrong))]
    assert cumulative_error({"samples": len(wrong), "wrong": counts}) == thinned(whole, stretches)
