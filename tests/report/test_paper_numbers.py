from statistics import fmean

import pytest

from note_tta.data.corruptions.names import CORRUPTIONS, MNIST_CORRUPTIONS
from note_tta.experiments.variants import VARIANTS
from note_tta.report.paper_numbers import Number, paper_average, paper_number

METHODS = ["source", "bn_stats", "onda", "pl", "tent", "lame", "cotta", "note"]
ABLATION = ["source", "iabn", "pbrs", "iabn_rs", "note", "iabn_star", "iabn_star_pbrs"]


@pytest.mark.parametrize(
    ("dataset", "stream", "row", "number"),
    [
        ("cifar10", "correlated", "bn_stats", (73.4, 1.3)),
        ("cifar100", "correlated", "tent", (66.9, 0.6)),
        ("imagenet", "correlated", "note", (80.6, 0.1)),
        ("imagenet", "iid", "pl", (74.4, 0.2)),
        ("imagenet", "iid", "note_iid", (71.7, 0.0)),
        ("harth", "correlated", "lame", (61.0, 10.0)),
        ("cifar10", "iid", "pbrs", (25.8, 0.2)),
        ("cifar100", "iid", "iabn_star", (60.8, 0.2)),
        ("cifar100", "correlated", "in_pbrs", (52.5, None)),
        ("mnist", "iid", "lame", (17.2, None)),
        ("mnist", "correlated", "note", (7.1, None)),
    ],
)
def test_numbers_of_every_table(dataset, stream, row, number):
    assert paper_number(dataset, stream, row) == Number(*number)


def test_numbers_by_domain():
    assert paper_number("cifar10", "iid", "cotta", "jpeg_compression") == Number(19.9, 0.4)
    assert paper_number("mnist", "iid", "source", "brightness") == Number(21.1, 22.9)


@pytest.mark.parametrize(("dataset", "domains"), [("cifar10", CORRUPTIONS), ("mnist", MNIST_CORRUPTIONS)])
@pytest.mark.parametrize("row", [*METHODS, "note_iid"])
def test_domains_average_to_the_printed_average(dataset, domains, row):
    mean = fmean(paper_number(dataset, "iid", row, domain).mean for domain in domains)
    assert mean == pytest.approx(paper_number(dataset, "iid", row).mean, abs=0.11)


@pytest.mark.parametrize(
    ("datasets", "stream", "rows"),
    [
        (("cifar10", "cifar100", "imagenet"), "correlated", METHODS),
        (("cifar10", "cifar100", "imagenet"), "iid", [*METHODS, "note_iid"]),
        (("kitti", "harth", "extrasensory"), "correlated", METHODS),
        (("cifar10", "cifar100"), "correlated", ABLATION),
        (("cifar10", "cifar100"), "iid", ABLATION),
    ],
)
def test_datasets_average_to_the_printed_average(datasets, stream, rows):
    for row in rows:
        mean = fmean(paper_number(dataset, stream, row).mean for dataset in datasets)
        assert mean == pytest.approx(paper_average(datasets, stream, row).mean, abs=0.11), row


def test_what_the_text_has_lost_is_absent():
    for row in METHODS:
        assert paper_number("cifar10", "correlated", row, "fog") is None
        assert paper_number("harth", "correlated", row, "S008") is None
    assert paper_number("mnist", "correlated", "source") is None
    assert paper_number("hapt", "correlated", "note") is None
    assert paper_average(("cifar10", "cifar100"), "correlated", "in_pbrs") is None


def test_rows_are_those_of_the_catalog():
    from note_tta.report.paper_numbers import _numbers

    assert {row for _, _, row, _ in _numbers()} <= set(VARIANTS)
