"""Every experiment from data to table on tiny data: the rows and columns are the paper's."""

import pytest

from note_tta.experiments.catalog import EXPERIMENTS
from note_tta.experiments.runner import plan, run_cells
from note_tta.experiments.store import Store
from note_tta.experiments.variants import FORMS_OF_NOTE, OPTION_ROWS, PROTOCOL_ROWS, VARIANTS
from note_tta.report.build import make_report

METHODS = ["Source", "BN Stats", "ONDA", "PL", "TENT", "LAME", "CoTTA", "NOTE"]
FILTER = ["Source", "Source + filter (ours)", "LAME", "NOTE", "NOTE + filter (ours)", "adapt (ours)"]
OPTIONS = [VARIANTS[row].title for row in OPTION_ROWS]
PROTOCOL = [dict(FORMS_OF_NOTE).get(row, VARIANTS[row].title) for row in PROTOCOL_ROWS]
IMAGES = ["CIFAR10-C", "CIFAR100-C", "ImageNet-C", "Avg"]
CIFARS = ["CIFAR10-C", "CIFAR100-C", "Avg"]

# Of each experiment: its tables, by what follows its id, with their rows and columns; and how many figures.
PAPER = {
    "table1": ({"": ([*METHODS, "NOTE*"], IMAGES * 2)}, 0),
    "table2": ({"": (METHODS, ["KITTI", "HARTH", "ExtraSensory", "Avg"])}, 0),
    "table3": ({"": (["Source", "IABN", "PBRS", "IABN+RS", "IABN+PBRS", "IN+PBRS"], CIFARS * 2)}, 0),
    "table-iabn-star": (
        {"": (["Source", "IABN*", "IABN", "IABN*+PBRS", "IN*+PBRS", "IABN+PBRS"], CIFARS * 2)},
        0,
    ),
    "table-domains": (
        {
            "-cifar10-correlated": (METHODS, ["Gaussian", "Fog", "Avg"]),
            "-cifar10-correlated-ablation": (
                ["Source", "IABN", "PBRS", "IABN+RS", "IN+PBRS", "IN*+PBRS", "NOTE"],
                ["Gaussian", "Fog", "Avg"],
            ),
            "-cifar10-iid": ([*METHODS, "NOTE*"], ["Gaussian", "Fog", "Avg"]),
            "-cifar10-iid-ablation": (
                ["Source", "IABN", "PBRS", "IABN+RS", "IN+PBRS", "IN*+PBRS", "NOTE"],
                ["Gaussian", "Fog", "Avg"],
            ),
            "-harth-correlated": (METHODS, ["S008", "S018", "Avg"]),
        },
        0,
    ),
    "table-mnist": (
        {
            "-correlated": (METHODS, ["Shot", "Scale", "Avg"]),
            "-iid": ([*METHODS, "NOTE*"], ["Shot", "Scale", "Avg"]),
        },
        0,
    ),
    "table-ablation": (
        {"": (["Source", "IABN", "PBRS", "IABN+RS", "IABN+PBRS"], ["MNIST-C", "ExtraSensory"])},
        0,
    ),
    "table-source": (
        {
            "-kitti": (["Source", "IABN"], ["Source domain", "rain", "Avg"]),
            "-harth": (["Source", "IABN"], ["Source domain", "S008", "S018", "Avg"]),
            "-extrasensory": (["Source", "IABN"], ["Source domain", "4FC", "797", "Avg"]),
        },
        0,
    ),
    "table-hapt": ({"-correlated": (METHODS, ["user22", "user23", "Avg"])}, 0),
    "table-filter": ({"": (FILTER, ["CIFAR10-C", "HAPT", "CIFAR10-C"])}, 0),
    "table-options": ({"": (OPTIONS, ["CIFAR10-C"])}, 0),
    "table-ptta": ({"-cifar10-ptta": (PROTOCOL, ["Gaussian", "Fog", "Avg"])}, 0),
    "figure2": ({"": (METHODS, ["CIFAR10-C", "CIFAR10-C"])}, 1),
    "figure4": ({}, 1),
    "figure5a": ({"-cifar10": (METHODS, ["0.001", "0.01", "0.1", "1", "10", "uniform"])}, 1),
    "figure5b": ({"-cifar10": (METHODS, ["16", "32", "64", "128", "256", "512"])}, 1),
    "figure-cumulative": ({}, 1),
    "figure-realtime": ({}, 5),
}
DATASETS = {
    "table-domains": ["cifar10", "harth"],
    "table-filter": ["cifar10", "hapt"],
    "table-options": ["cifar10"],
    "table-ptta": ["cifar10"],
    "table-ablation": ["mnist", "extrasensory"],
    "figure-cumulative": ["mnist"],
    "table-source": ["kitti", "harth", "extrasensory"],
}
ONE_DOMAIN = {"figure5a", "figure5b"}


LIKE_PTTA = {"table-continual", "table-mixed", "table-recurring", "figure-recurring", "table-methods"}
"""Made as the practical protocol's table is; test_catalog has their cells and test_tables their rows."""


def test_every_experiment_is_here():
    assert PAPER.keys() | LIKE_PTTA == EXPERIMENTS.keys()


@pytest.mark.parametrize("name", PAPER)
def test_from_data_to_table(tiny, name):
    experiment = EXPERIMENTS[name]
    datasets = [
        d for d in DATASETS.get(name, experiment.datasets) if not (name == "figure-realtime" and d == "hapt")
    ]
    for dataset in datasets:
        tiny.save_models(dataset)
    planned = plan(
        experiment,
        tiny.settings,
        datasets=datasets,
        seeds=[0],
        domains=["fog"] if name in ONE_DOMAIN else [],
        width=tiny.width,
    )
    store = Store(tiny.folder / "results")
    tally = run_cells(planned.cells, store, tiny.settings, tiny.serial, lambda line: None)
    assert tally.failed == []
    assert tally.done == len(planned.cells) == len(store)

    report = make_report(list(store))
    tables, figures = PAPER[name]
    made = {table.id: table for table in report.tables[name]}
    for suffix, (rows, columns) in tables.items():
        matching = [
            table
            for key, table in made.items()
            if key.startswith(f"{name}{suffix}-") or key == f"{name}{suffix}"
        ]
        table = min(matching, key=lambda table: len(table.id))
        assert list(table.rows.values()) == rows
        assert [column.title for column in table.columns] == columns
        for row, title in table.rows.items():
            gaps = [entry.ours is None for entry in table.entries(row)]
            absent = len(columns) // 2 if title == "NOTE*" and name == "table1" else 0
            assert gaps == [True] * absent + [False] * (len(gaps) - absent)
            assert all(0 <= entry.ours.mean <= 100 for entry in table.entries(row) if entry.ours)
    assert len(report.figures[name]) == figures
