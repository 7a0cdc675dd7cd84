"""The paper's own numbers, typed once: error in percent, mean ± standard deviation over three runs.

A number belongs to a dataset, a stream, a row and, in the appendix, a domain; it is the same number in
whichever table or figure it is printed. The text of the paper at hand has lost the bodies of several appendix
tables (all per-domain tables but two, and the source-error tables): those numbers are absent here and are
printed as –.

Rows go by the names of `note_tta.experiments.variants.VARIANTS`. `correlated` is the Dirichlet stream of
CIFAR10-C, CIFAR100-C and MNIST-C, the class-sorted stream of ImageNet-C, and the real stream of KITTI, HARTH
and ExtraSensory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ..data import DATASETS

# Tables 1, 2 and 3 and the IABN* table: columns are datasets, then the average the paper prints.
_MAIN = {
    ("correlated", "cifar10 cifar100 imagenet"): """
        source          42.3±1.1   66.6±0.1   86.1±0.0   65.0
        bn_stats        73.4±1.3   65.0±0.3   96.9±0.0   78.5
        onda            63.6±1.0   49.6±0.3   89.0±0.0   67.4
        pl              75.4±1.8   66.4±0.4   98.9±0.0   80.2
        tent            76.4±2.7   66.9±0.6   96.9±0.0   80.1
        lame            36.2±1.3   63.3±0.3   82.7±0.0   60.7
        cotta           75.5±0.7   64.2±0.2   97.0±0.0   78.9
        note            21.1±0.6   47.0±0.1   80.6±0.1   49.6
    """,
    ("iid", "cifar10 cifar100 imagenet"): """
        source          42.3±1.1   66.6±0.1   86.1±0.0   65.0
        bn_stats        21.6±0.4   46.6±0.2   76.0±0.0   48.1
        onda            21.7±0.4   46.5±0.1   75.9±0.0   48.0
        pl              21.6±0.2   43.1±0.3   74.4±0.2   46.4
        tent            18.8±0.2   40.3±0.2   76.0±0.0   45.0
        lame            44.1±0.5   68.8±0.1   86.3±0.0   66.4
        cotta           17.8±0.3   44.3±0.2   71.5±0.0   44.6
        note            20.1±0.5   46.4±0.0   70.3±0.0   45.6
        note_iid        17.6±0.3   41.0±0.2   71.7±0.0   43.4
    """,
    ("correlated", "kitti harth extrasensory"): """
        source          12.3±2.3   62.6±8.5   50.2±2.2   41.7
        bn_stats        35.4±0.5   68.6±1.1   56.0±0.9   53.4
        onda            26.3±0.5   69.3±1.1   48.2±1.5   47.9
        pl              39.0±0.3   64.8±0.6   56.0±0.9   53.3
        tent            39.6±0.2   64.1±0.7   56.0±0.8   53.2
        lame            11.3±2.9   61.0±10.0  50.7±2.7   41.0
        cotta           35.4±0.6   68.7±1.1   56.0±0.9   53.4
        note            10.9±3.6   51.0±5.6   45.4±2.6   35.8
    """,
    ("correlated", "cifar10 cifar100"): """
        source          42.3±1.1   66.6±0.1   54.4
        iabn            24.6±0.6   54.5±0.1   39.5
        pbrs            27.5±1.0   51.7±0.2   39.6
        iabn_rs         20.5±1.5   48.2±0.2   34.3
        note            21.1±0.6   47.0±0.1   34.0
        iabn_star       27.1±0.4   60.8±0.1   44.0
        iabn_star_pbrs  24.9±0.2   55.9±0.2   40.4
        in_pbrs         –          52.5       –
    """,
    ("iid", "cifar10 cifar100"): """
        source          42.3±1.1   66.6±0.1   54.4
        iabn            24.6±0.6   54.5±0.1   39.5
        pbrs            25.8±0.2   51.3±0.1   38.5
        iabn_rs         20.7±0.6   48.3±0.3   34.5
        note            20.1±0.5   46.4±0.0   33.2
        iabn_star       27.1±0.4   60.8±0.2   44.0
        iabn_star_pbrs  23.2±0.4   55.3±0.1   39.3
    """,
}

# The appendix's two whole per-domain tables: one column per corruption in the order above, then the average.
_PER_DOMAIN = {
    ("cifar10", "iid"): """
        source 74.0±3.3 66.8±3.5 75.3±4.2 43.3±2.7 48.0±2.7 32.6±1.2 35.2±2.6 22.0±0.4
               33.0±2.5 25.9±0.9 8.5±0.3 66.1±1.8 23.4±0.7 53.6±0.7 26.8±0.7 42.3
        bn_stats 33.1±0.9 31.1±1.0 39.8±0.9 12.3±0.4 34.8±0.3 13.7±0.3 12.6±0.4 18.3±0.7
               19.9±0.6 14.5±0.6 9.3±0.3 13.0±0.3 23.3±0.3 20.8±0.2 28.0±0.6 21.6
        onda 33.4±0.6 31.3±0.9 40.0±1.1 12.3±0.4 34.6±0.7 13.7±0.3 12.4±0.5 18.3±0.6
               19.8±0.8 14.3±0.4 9.1±0.0 14.0±0.2 23.3±0.4 20.9±0.2 28.0±0.7 21.7
        pl 29.4±1.1 26.3±1.0 36.8±1.6 13.7±0.4 36.5±1.1 14.0±1.0 13.5±0.2 19.7±0.8
               21.2±0.6 15.6±1.5 10.0±0.6 14.8±0.2 24.5±2.0 20.1±0.9 27.4±1.3 21.6
        tent 25.3±0.8 23.1±1.1 32.1±1.2 11.7±0.6 33.1±3.0 13.2±1.1 11.2±0.1 15.9±0.3
               18.8±0.7 12.9±0.8 8.6±0.3 14.4±0.6 21.7±0.9 16.5±0.8 23.6±0.7 18.8
        lame 78.2±3.6 70.6±4.0 80.5±4.5 46.6±1.9 48.0±3.8 34.2±0.4 37.4±1.5 20.8±0.8
               30.5±4.1 26.9±1.8 9.8±0.2 71.9±1.0 24.2±0.9 56.4±0.8 25.8±0.9 44.1
        cotta 23.1±0.7 21.5±0.6 28.0±0.3 11.7±0.5 29.2±0.6 13.3±0.6 12.0±0.5 16.6±0.2
               16.6±0.3 13.8±0.4 8.8±0.2 14.9±0.5 20.6±0.7 17.3±0.5 19.9±0.4 17.8
        note 33.5±1.7 30.0±1.6 38.2±0.9 12.6±0.8 34.4±0.8 11.5±0.5 12.9±0.6 14.1±0.2
               15.2±0.8 14.0±0.6 7.4±0.2 7.8±0.2 20.7±0.3 24.7±0.7 24.2±0.4 20.1
        note_iid 23.8±0.7 23.0±0.9 31.1±0.3 11.8±0.6 30.9±1.3 11.8±0.4 11.9±0.7 15.3±1.3
               14.0±0.7 13.3±0.7 8.6±0.2 7.5±0.3 21.2±0.3 16.9±0.6 23.0±1.2 17.6
    """,
    ("mnist", "iid"): """
        source 3.7±0.7 27.3±5.5 20.4±6.4 4.6±0.5 2.2±0.5 5.1±1.0 6.5±1.0 21.1±22.9
               13.8±1.4 17.4±17.0 66.6±14.7 3.8±0.4 3.7±0.4 18.2±3.0 26.4±11.4 16.1
        bn_stats 2.9±0.7 7.0±1.6 9.1±1.0 3.0±0.8 2.0±0.3 3.8±0.2 6.1±0.7 1.1±0.1
               12.5±0.8 6.5±2.6 2.2±0.5 3.3±0.3 2.5±0.2 11.4±0.2 6.7±0.9 5.3
        onda 2.6±0.6 6.5±1.4 8.6±1.0 2.8±0.8 1.8±0.2 3.5±0.2 5.7±0.7 1.0±0.1
               11.7±1.1 6.1±2.6 2.6±0.9 3.0±0.4 2.2±0.2 11.0±0.4 6.2±0.8 5.0
        pl 1.6±0.3 3.5±0.7 4.8±0.8 1.7±0.0 1.5±0.0 2.3±0.1 4.9±0.7 0.8±0.1
               6.8±0.8 2.7±0.6 1.0±0.0 2.2±0.3 1.7±0.2 5.3±0.4 3.9±0.9 3.0
        tent 1.4±0.1 2.8±0.4 3.8±0.5 1.5±0.0 1.2±0.0 1.8±0.1 3.6±0.2 0.7±0.1
               4.6±0.7 1.9±0.2 0.8±0.0 1.7±0.1 1.3±0.1 4.5±0.6 3.1±0.5 2.3
        lame 3.0±0.8 30.7±8.3 18.9±5.8 3.4±0.5 1.9±0.3 4.2±0.5 6.3±0.9 25.9±29.8
               13.9±1.9 18.5±21.2 78.2±9.8 3.3±0.7 3.2±0.3 19.3±3.2 28.0±12.7 17.2
        cotta 2.6±0.6 6.6±1.7 8.7±0.9 2.7±0.7 1.8±0.3 3.2±0.0 5.6±0.8 1.0±0.1
               14.3±1.1 7.7±6.0 1.9±0.5 2.9±0.3 2.2±0.1 13.6±1.4 6.1±0.6 5.4
        note 2.5±0.8 10.7±1.9 10.9±2.0 2.0±0.3 1.5±0.0 2.4±0.1 5.5±0.3 0.9±0.1
               5.5±0.2 12.1±5.7 1.2±0.1 2.8±0.3 3.0±0.1 10.9±1.6 9.1±0.4 5.4
        note_iid 1.3±0.2 2.7±0.1 3.8±0.5 1.3±0.1 1.1±0.1 1.6±0.0 3.5±0.1 0.7±0.0
               2.8±0.0 2.2±0.1 0.7±0.1 1.7±0.4 1.4±0.2 4.8±1.1 3.5±0.1 2.2
    """,
    # All that is left of this table is the average of its last row, which is NOTE's.
    ("mnist", "correlated"): "note " + "– " * 15 + "7.1",
}


class Number(NamedTuple):
    """An error in percent and, where the paper gives one, its standard deviation."""

    mean: float
    std: float | None = None


def paper_number(dataset: str, stream: str, variant: str, domain: str | None = None) -> Number | None:
    """Return the paper's error of a row on a dataset, or on one of its domains; None where it has none.

    Example:
        >>> paper_number("cifar10", "correlated", "note")
        Number(mean=21.1, std=0.6)
        >>> paper_number("harth", "correlated", "note", domain="S008") is None
        True
    """
    return _numbers().get((dataset, stream, variant, domain))


def paper_average(datasets: Sequence[str], stream: str, variant: str) -> Number | None:
    """Return the average over datasets that the paper prints at the end of a table's row.

    Example:
        >>> paper_average(("kitti", "harth", "extrasensory"), "correlated", "note")
        Number(mean=35.8, std=None)
    """
    return _numbers().get((" ".join(datasets), stream, variant, None))


@cache
def _numbers() -> dict[tuple[str, str, str, str | None], Number | None]:
    """Every number by dataset, stream, row and domain; an average by its datasets, separated by blanks."""
    numbers: dict[tuple[str, str, str, str | None], Number | None] = {}
    for (dataset, stream), text in _PER_DOMAIN.items():
        for variant, values in _rows(text):
            for domain, value in zip([*DATASETS[dataset].targets, None], values, strict=True):
                numbers[dataset, stream, variant, domain] = value
    for (stream, datasets), text in _MAIN.items():
        for variant, values in _rows(text):
            for dataset, value in zip([*datasets.split(), datasets], values, strict=True):
                numbers[dataset, stream, variant, None] = value
    return numbers


def _rows(text: str) -> list[tuple[str, list[Number | None]]]:
    """Read `name 1.2±0.3 4.5 –`, where a row may span several lines."""
    rows: list[tuple[str, list[Number | None]]] = []
    for word in text.split():
        if word[0].isalpha():
            rows.append((word, []))
        elif word == "–":
            rows[-1][1].append(None)
        else:
            mean, _, std = word.partition("±")
            rows[-1][1].append(Number(float(mean), float(std) if std else None))
    return rows
