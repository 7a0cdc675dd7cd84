from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from note_tta.experiments.cell import NORMS, STREAMS, Cell, options

CELL = Cell("cifar10", "fog", "note", "dirichlet", delta=0.1, model="resnet20", norm="iabn")


def test_equal_configurations_have_equal_ids_and_any_change_another():
    assert replace(CELL).id == CELL.id
    changes = [
        {"domain": "frost"},
        {"seed": 1},
        {"delta": 0.2},
        {"norm": "bn"},
        {"samples": 10},
        {"width": 8},
        {"batch_size": 1},
        {"method_options": options(lr=0.1)},
        {"norm_options": options(alpha=0.0)},
        {"data_options": options(severity=3)},
    ]
    assert len({CELL.id, *(replace(CELL, **change).id for change in changes)}) == len(changes) + 1


def test_the_id_stays_what_it_is():
    assert CELL.id == "8436143897458172", "results on disk would no longer be found"


def test_one_and_one_point_nought_are_the_same():
    assert replace(CELL, delta=1).id == replace(CELL, delta=1.0).id
    assert replace(CELL, method_options=options(lr=1)).id == replace(CELL, method_options=options(lr=1.0)).id


names = st.text(max_size=20)
scalars = st.one_of(
    st.text(max_size=5), st.integers(-9, 9), st.floats(allow_nan=False), st.booleans(), st.none()
)


@given(
    names,
    names,
    names,
    st.sampled_from(STREAMS),
    st.sampled_from(NORMS),
    st.dictionaries(names, scalars, max_size=3),
)
def test_a_configuration_reads_back(dataset, domain, method, stream, norm, extra):
    delta = 0.5 if stream == "dirichlet" else None
    cell = Cell(dataset, domain, method, stream, norm=norm, delta=delta, method_options=options(extra))
    assert Cell.from_config(cell.config()) == cell
    assert "/" not in cell.file_name
    assert len(cell.file_name) < 255


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stream": "random"}, "unknown stream 'random'; known are dirichlet, iid, sorted, chronological"),
        ({"norm": "gn"}, r"unknown norm 'gn'; known are bn, iabn, in, iabn\*"),
        ({"delta": None}, "delta belongs to a dirichlet stream"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
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
        ({"method_options": []}, r"a cell's method_options cannot be \[\]"),
        ({"method_options": {"x": [1]}}, "option x must be a string, a number or a truth value, got list"),
        ({"more": 1}, "missing or unknown: more"),
    ],
)
def test_a_crafted_configuration_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Cell.from_config({**CELL.config(), **change})
