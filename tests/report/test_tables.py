"""Rows and columns are the paper's; what was measured on less says so."""

from dataclasses import replace

import pytest

from note_tta.experiments.catalog import EXPERIMENTS
from note_tta.report.paper_numbers import Number
from note_tta.report.scores import Scores
from note_tta.report.tables import make_tables

METHODS = ["Source", "BN Stats", "ONDA", "PL", "TENT", "LAME", "CoTTA", "NOTE"]
CORRUPTED = ["CIFAR10-C", "CIFAR100-C", "ImageNet-C", "Avg"]
CIFARS = ["CIFAR10-C", "CIFAR100-C", "Avg"]

FORMS_AND_OURS = [
    "NOTE",
    "NOTE, IABN swapped in",
    "NOTE, BatchNorm only",
    "NOTE + filter (ours)",
    "adapt (ours)",
]
PROTOCOL = [
    *METHODS[:-1],
    *("RoTTA", "SoTTA", "ETA", "EATA", "RDumb", "SAR", "UnMix-TNS", "ROID", "PeTTA"),
    *("Source + filter (ours)", *FORMS_AND_OURS),
]

LAYOUT = {
    "table1": ([*METHODS, "NOTE*"], CORRUPTED * 2),
    "table2": (METHODS, ["KITTI", "HARTH", "ExtraSensory", "Avg"]),
    "table3": (["Source", "IABN", "PBRS", "IABN+RS", "IABN+PBRS", "IN+PBRS"], CIFARS * 2),
    "table-iabn-star": (["Source", "IABN*", "IABN", "IABN*+PBRS", "IN*+PBRS", "IABN+PBRS"], CIFARS * 2),
    "table-mnist-correlated": (METHODS, ["Shot", "Scale", "Canny edges", "Avg"]),
    "table-mnist-iid": ([*METHODS, "NOTE*"], ["Shot", "Scale", "Canny edges", "Avg"]),
    "table-domains-cifar10-correlated": (METHODS, ["Gaussian", "Fog", "JPEG", "Avg"]),
    "table-domains-cifar10-iid": ([*METHODS, "NOTE*"], ["Gaussian", "Fog", "JPEG", "Avg"]),
    "table-domains-harth-correlated": (METHODS, ["S008", "S018", "Avg"]),
    "table-domains-extrasensory-correlated": (METHODS, ["4FC", "797", "Avg"]),
    "table-ablation": (
        ["Source", "IABN", "PBRS", "IABN+RS", "IABN+PBRS"],
        ["MNIST-C", "KITTI", "HARTH", "ExtraSensory", "HAPT", "Avg"],
    ),
    "table-hapt-correlated": (METHODS, ["user22", "user23", "Avg"]),
    "table-source-kitti": (["Source", "IABN"], ["Source domain", "rain", "Avg"]),
    "table-ptta-cifar10-ptta": (PROTOCOL, ["Gaussian", "Fog", "JPEG", "Avg"]),
    "table-mixed-cifar10-mixed-correlated": (PROTOCOL, ["Gaussian", "Fog", "JPEG", "Avg"]),
    "table-recurring-cifar10": (
        ["Source", "LAME", "RoTTA", "SoTTA", "UnMix-TNS", "RDumb", "PeTTA", *FORMS_AND_OURS],
        ["Visit 1", "Visit 5", "Visit 10", "Visit 15", "Visit 20", "Avg"],
    ),
    "figure2": (METHODS, ["CIFAR10-C", "CIFAR10-C"]),
    "figure5a-cifar10": (METHODS, ["0.001", "0.01", "0.1", "1", "10", "uniform"]),
    "figure5b-cifar10": (METHODS, ["16", "32", "64", "128", "256", "512"]),
}


@pytest.fixture(scope="module")
def tables(everything):
    scores = Scores(everything)
    return {table.id: table for e in EXPERIMENTS.values() for table in make_tables(e, scores)}


def row(table, title):
    return table.entries(next(row for row, name in table.rows.items() if name == title))


def short(cell):
    return replace(cell, stream=replace(cell.stream, samples=2000))


@pytest.mark.parametrize("name", LAYOUT)
def test_rows_and_columns_are_the_papers(tables, name):
    rows, columns = LAYOUT[name]
    assert list(tables[name].rows.values()) == rows
    assert [column.title for column in tables[name].columns] == columns


def test_the_points_of_a_sweep_are_over_the_same_domains(fakes):
    levels = {"gaussian_noise": 10.0, "fog": 20.0, "jpeg_compression": 60.0}
    wide = fakes.cells("table1", datasets=["cifar10"], seeds=(0,), rows=["note", "source"])
    few = {"cifar10": ["gaussian_noise", "fog"]}
    swept = fakes.cells("figure5a", datasets=["cifar10"], seeds=(0,), rows=["note"], targets=few)
    cells = list(dict.fromkeys(wide + swept))
    scores = Scores([fakes.record(cell, levels[cell.stream.domain]) for cell in cells])
    (table,) = make_tables(EXPERIMENTS["figure5a"], scores)
    assert [entry.ours.mean for entry in row(table, "NOTE")] == [15.0] * 6
    assert [entry.paper for entry in row(table, "NOTE")] == [None] * 6
    assert row(table, "Source")[2].ours.mean == 15.0


def test_streams_stand_over_their_columns(tables):
    groups = [column.group for column in tables["table1"].columns]
    assert groups == ["Temporally correlated"] * 4 + ["Uniformly distributed (i.i.d.)"] * 4


def test_real_streams_are_not_averaged_with_drawn_ones(fakes):
    cells = fakes.cells("table-filter", datasets=["mnist", "kitti", "hapt"], seeds=(0,))
    cells = [c for c in cells if c.stream.order != "iid"]
    (table,) = make_tables(EXPERIMENTS["table-filter"], Scores(map(fakes.record, cells)))
    assert [(column.title, column.group) for column in table.columns] == [
        ("MNIST-C", "Temporally correlated"),
        *((title, "Real stream") for title in ("KITTI", "HAPT", "Avg")),
    ]
    _, kitti, hapt, mean = (entry.ours.mean for entry in row(table, "NOTE"))
    assert mean == pytest.approx((kitti + hapt) / 2)


def test_the_papers_numbers_stand_beside_ours(tables):
    entry = row(tables["table1"], "NOTE")[0]
    assert entry.paper == Number(21.1, 0.6)
    assert entry.difference == pytest.approx(round(entry.ours.mean, 1) - 21.1, abs=1e-9)
    assert row(tables["table1"], "NOTE*")[7].paper == Number(43.4)
    assert row(tables["table3"], "IN+PBRS")[1].paper == Number(52.5)
    assert row(tables["table2"], "LAME")[3].paper == Number(41.0)


def test_where_the_paper_has_no_number_there_is_none(tables):
    assert all(entry.paper is None for entry in row(tables["table-domains-harth-correlated"], "NOTE")[:2])
    assert row(tables["table-source-kitti"], "Source")[0].paper is None
    assert all(entry == replace(entry, ours=None, paper=None) for entry in row(tables["table1"], "NOTE*")[:4])


def test_the_papers_numbers_do_not_stand_beside_data_that_was_opened_otherwise(fakes):
    cells = fakes.cells("table1", seeds=(0,), data_options=(("severity", 3),))
    (table,) = make_tables(EXPERIMENTS["table1"], Scores(map(fakes.record, cells)))
    assert "severity 3" in table.caption
    assert not any(entry.paper for column in table.columns for entry in column.entries.values())


def test_the_lowest_is_marked_and_so_is_worse_than_source(tables):
    table = tables["table1"]
    first = table.columns[0].entries
    assert [row for row, entry in first.items() if entry.best] == ["note"]
    worse = [row for row, entry in first.items() if entry.worse]
    assert worse == ["bn_stats", "onda", "pl", "tent", "cotta"]


def test_ties_to_the_printed_digit_are_both_lowest_and_not_worse(fakes):
    cells = fakes.cells("table2", datasets=["kitti"], seeds=(0,))
    scores = Scores([fakes.record(c, 10.02 if c.method == "lame" else 10.0) for c in cells])
    (table,) = make_tables(EXPERIMENTS["table2"], scores)
    assert all(entry.best and not entry.worse for entry in table.columns[0].entries.values())


def test_a_smaller_run_says_so_in_its_title(fakes):
    records = fakes.records("table1", datasets=["cifar10"], samples=500, model="resnet20", seeds=(0, 1, 2))
    (table,) = make_tables(EXPERIMENTS["table1"], Scores(records))
    assert table.caption == (
        "resnet20 · first 500 samples of each domain, 3 of 15 domains (Fog, Gaussian, JPEG), seeds 0–2"
    )
    assert [column.title for column in table.columns] == ["CIFAR10-C"] * 2
    assert table.id == "table1-resnet20"


def test_a_row_measured_on_less_has_a_footnote(fakes):
    cells = fakes.cells("table1", datasets=["cifar10"], seeds=(0,))
    cells = [short(c) if c.method == "cotta" else c for c in cells]
    (table,) = make_tables(EXPERIMENTS["table1"], Scores(map(fakes.record, cells)))
    assert row(table, "CoTTA")[0].note == 1
    assert row(table, "NOTE")[0].note == 0
    assert table.footnotes[0].startswith("first 2,000 samples of each domain")


@pytest.mark.parametrize("error", [1.0, 99.0])
def test_a_row_measured_on_less_is_neither_the_lowest_nor_worse_than_source(fakes, error):
    cells = fakes.cells("table1", datasets=["cifar10"], seeds=(0,))
    cut = [short(c) for c in cells if c.method == "cotta"]
    whole = [fakes.record(c) for c in cells if c.method != "cotta"]
    records = [*whole, *(fakes.record(c, error) for c in cut)]
    (table,) = make_tables(EXPERIMENTS["table1"], Scores(records))
    assert not row(table, "CoTTA")[0].best and not row(table, "CoTTA")[0].worse
    assert row(table, "NOTE")[0].best and row(table, "TENT")[0].worse


def test_no_average_over_datasets_that_are_not_all_there(fakes):
    cells = fakes.cells("table2", datasets=["kitti", "harth"], seeds=(0,))
    cells = [c for c in cells if not (c.stream.dataset == "harth" and c.method == "pl")]
    (table,) = make_tables(EXPERIMENTS["table2"], Scores(map(fakes.record, cells)))
    assert row(table, "PL")[2].ours is None
    assert row(table, "NOTE")[2].ours is not None
    assert row(table, "NOTE")[2].paper is None


def test_a_sweep_is_not_made_of_table_1_alone(fakes):
    scores = Scores(fakes.records("table1", datasets=["cifar10"]))
    assert make_tables(EXPERIMENTS["figure5a"], scores) == []
    assert make_tables(EXPERIMENTS["figure5b"], scores) == []


def test_a_recurring_table_has_the_error_of_each_visit(fakes):
    (cell,) = fakes.cells("table-recurring", datasets=["cifar10"], seeds=(0,), rows=["note"])
    record = fakes.record(cell, 30.0)
    record.result["visits"] = {
        "fog": [10.0 + i for i in range(20)],
        "snow": [20.0 + 3 * i for i in range(20)],
    }
    (table,) = make_tables(EXPERIMENTS["table-recurring"], Scores([record]))
    assert list(table.rows.values()) == ["NOTE"]
    assert [entry.ours.mean for entry in row(table, "NOTE")] == [15.0, 23.0, 33.0, 43.0, 53.0, 34.0]


def test_a_column_names_its_mean_run_length(fakes):
    records = fakes.records("table-filter", datasets=["hapt"], seeds=(0,))
    (table,) = make_tables(EXPERIMENTS["table-filter"], Scores(records))
    assert [column.run_text for column in table.columns] == ["runs of 20.5"]
    del records[0].result["mean_run_length"]
    (table,) = make_tables(EXPERIMENTS["table-filter"], Scores(records))
    assert [column.run_text for column in table.columns] == [""]
