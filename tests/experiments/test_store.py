import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from note_tta.experiments.cell import Cell
from note_tta.experiments.store import MAX_BYTES, Record, Store, parse_record, thinned

CELL = Cell("cifar10", "fog", "note", "iid")
RECORD = Record(CELL, {"error": 21.125, "samples": 100, "cumulative_error": [50.0, 21.12]}, {"commit": "abc"})


def test_a_result_reads_back(tmp_path):
    store = Store(tmp_path / "new" / "folder")
    assert CELL not in store
    store.save(RECORD)
    assert CELL in store
    assert store.load(CELL) == RECORD
    assert list(store) == [RECORD]
    assert [path.name for path in store.files()] == [CELL.file_name]


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "benchmark.json").write_text("{}")
    store = Store(tmp_path)
    store.save(RECORD)
    assert list(store) == [RECORD]


def test_saving_again_replaces(tmp_path):
    store = Store(tmp_path)
    store.save(RECORD)
    store.save(Record(CELL, {"error": 1.0, "samples": 1}, {}))
    assert store.load(CELL).result["error"] == 1.0
    assert len(list(tmp_path.iterdir())) == 1


def test_the_file_is_json_with_a_line_a_value(tmp_path):
    store = Store(tmp_path)
    store.save(RECORD)
    text = store.path(CELL).read_text()
    data = json.loads(text)
    assert data["schema"] == 1
    assert data["id"] == CELL.id
    assert '\n  "error": 21.125,\n' in text


def test_leftovers_of_dead_processes_are_swept_and_no_others(tmp_path):
    store = Store(tmp_path)
    dead = tmp_path / f".{CELL.file_name}.999999999.part"
    alive = tmp_path / f".{CELL.file_name}.{os.getpid()}.part"
    for path in (dead, alive):
        path.write_text("{")
    store.sweep()
    assert not dead.exists()
    assert alive.exists()
    assert list(store) == []


def broken(**changes):
    data = json.loads(RECORD.to_json())
    data.update(changes)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a result of note-tta"),
        (RECORD.to_json()[:-30], "is not a result of note-tta"),
        ("[]", "it has no schema version"),
        ("[" * 100_000, "is not a result of note-tta"),
        (broken(schema=0), "is of result schema 0, this version of note-tta reads 1"),
        (broken(schema=99), "is of result schema 99"),
        (broken(id="0" * 16), "its id does not fit its configuration"),
        (broken(cell={}), "is a damaged result: a cell has the fields"),
        (broken(cell=[]), "is a damaged result"),
        (broken(result={"error": "low", "samples": 1}), "its error is 'low'"),
        (broken(result={"error": float("nan"), "samples": 1}), "its error is nan"),
        (broken(result={"samples": 1}), "is a damaged result: 'error'"),
        (broken(result={"error": 1.0, "samples": 1, "labels": ["a"]}), "its labels is not a list of numbers"),
        (broken(provenance=None), "is a damaged result"),
    ],
)
def test_a_file_that_is_no_result_is_named(tmp_path, text, message):
    path = tmp_path / CELL.file_name
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        list(Store(tmp_path))
    assert str(path) in str(caught.value)


def test_a_huge_file_is_refused_unread(tmp_path):
    path = tmp_path / CELL.file_name
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ValueError, match="it has 4,000,001 bytes, a result at most 4,000,000"):
        parse_record(path)


def test_a_result_under_another_name_is_refused(tmp_path):
    store = Store(tmp_path)
    other = Cell("cifar10", "frost", "note", "iid")
    store.path(CELL).write_text(Record(other, RECORD.result, {}).to_json())
    with pytest.raises(ValueError, match="holds the result of another cell"):
        store.load(CELL)


def test_a_file_in_the_place_of_the_folder(tmp_path):
    path = tmp_path / "results"
    path.write_text("")
    with pytest.raises(ValueError, match="the results must be in a folder"):
        Store(path)


@given(st.integers(0, len(RECORD.to_json()) - 1), st.binary(min_size=1, max_size=4))
@settings(max_examples=60)
def test_mutated_bytes_are_read_as_they_are_or_refused(tmp_path_factory, place, patch):
    path = tmp_path_factory.mktemp("fuzz") / CELL.file_name
    data = bytearray(RECORD.to_json().encode())
    data[place : place + len(patch)] = patch
    path.write_bytes(bytes(data))
    try:
        record = parse_record(path)
    except ValueError as error:
        assert str(path) in str(error)
    else:
        assert record.cell.id == CELL.id


@given(st.lists(st.integers(), max_size=50), st.integers(1, 20))
def test_thinning_keeps_the_end_and_the_bound(values, points):
    kept = thinned(values, points)
    assert len(kept) == min(points, len(values))
    assert kept[-1:] == values[-1:]
    assert thinned(kept, points) == kept
