from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from note_tta.experiments.cell import NORMS, ORDERS, PROTOCOLS, Cell, Stream, job_from_config, options

STREAM = Stream("cifar10", "fog", "dirichlet", delta=0.1)
CELL = Cell(STREAM, "note", model="resnet20", norm="iabn")


def test_one_and_one_point_nought_are_the_same():
    assert replace(STREAM, delta=1) == replace(STREAM, delta=1.0)
    changed = [replace(CELL, method_options=options(lr=lr)) for lr in (1, 1.0)]
    assert len(set(changed)) == 1


def test_a_configuration_holds_what_differs_from_the_defaults():
    assert CELL.config() == {
        "dataset": "cifar10",
        "domain": "fog",
        "order": "dirichlet",
        "delta": 0.1,
        "method": "note",
        "model": "resnet20",
        "norm": "iabn",
    }


names = st.text(max_size=20)
scalars = st.one_of(
    st.text(max_size=5), st.integers(-9, 9), st.floats(allow_nan=False), st.booleans(), st.none()
)
extras = st.dictionaries(names, scalars, max_size=3).map(options)


@given(
    names,
    names,
    st.sampled_from(ORDERS + PROTOCOLS),
    st.integers(0, 9),
    st.none() | st.integers(1, 9),
    extras,
)
def test_a_stream_reads_back(dataset, domain, order, seed, samples, extra):
    delta = 0.5 if order == "dirichlet" else None
    stream = Stream(dataset, domain, order, delta, seed, samples, extra)
    assert job_from_config(stream.config()) == stream


@given(names, st.sampled_from(NORMS), extras)
def test_a_cell_reads_back(method, norm, extra):
    cell = Cell(STREAM, method, norm=norm, method_options=extra, norm_options=extra)
    assert job_from_config(cell.config()) == cell


def test_a_row_is_a_cell_without_what_a_table_averages_over():
    others = [Stream("cifar10", "frost", "dirichlet", delta=0.1, seed=3, samples=9), replace(STREAM, delta=1)]
    rows = [replace(CELL, stream=stream).row() for stream in (STREAM, *others)]
    assert rows[0] == rows[1] != rows[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": "random"}, "unknown stream 'random'; known are dirichlet, iid, sorted, chronological"),
        ({"delta": None}, "a dirichlet stream needs a delta and others have none"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"visits": 0}, "visits must be at least 1, got 0"),
        ({"visits": 2}, "only a recurring stream has visits, got visits 2 for a dirichlet stream"),
    ],
)
def test_impossible_streams_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(STREAM, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "rms"}, r"unknown norm 'rms'; known are bn, iabn, in, gn, ln, iabn\*"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ],
)
def test_impossible_cells_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(CELL, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "0"}, "a cell's seed cannot be '0'"),
        ({"seed": True}, "a cell's seed cannot be True"),
        ({"dataset": None}, "a cell's dataset cannot be None"),
        ({"samples": 1.5}, "a cell's samples cannot be 1.5"),
        ({"method_options": []}, r"a cell's method_options cannot be \[\]"),
        ({"method_options": {"x": [1]}}, "option x must be a string, a number or a bool, got list"),
        ({"more": 1}, "missing or unknown: more"),
    ],
)
def test_a_crafted_configuration_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        job_from_config({**CELL.config(), **change})


def test_a_configuration_without_its_dataset_or_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="missing or unknown: dataset"):
        job_from_config({"domain": "fog", "order": "iid"})
    with pytest.raises(ValueError, match=r"a configuration must be a dict, got \[\]"):
        job_from_config([])
