"""The tables and figures: the paper's, and those of later methods and protocols."""

from __future__ import annotations

from ..names import DATASET_HOMES, METHOD_HOMES, check_known
from .experiment import Experiment, Kind, Point
from .variants import (
    ABLATION_ROWS,
    AS_ABLATION,
    FILTER_ROWS,
    FORMS_OF_NOTE,
    METHOD_ROWS,
    OPTION_ROWS,
    PROTOCOL_ROWS,
    RECURRING_ROWS,
)

_BOTH = (Point(), Point("iid"))
_WITH_NOTE_IID = (*METHOD_ROWS, "note_iid")
_CIFAR = ("cifar10", "cifar100")
_CORRUPTED = (*_CIFAR, "imagenet")
_REAL = ("kitti", "harth", "extrasensory")
_DELTAS = (
    *(Point(delta=delta, label=f"{delta:g}") for delta in (0.001, 0.01, 0.1, 1.0, 10.0)),
    Point("iid", label="uniform"),
)
_SIZES = tuple(Point(batch_size=size, label=str(size)) for size in (16, 32, 64, 128, 256, 512))


def _protocol(name: str, title: str, *protocols: str) -> Experiment:
    points = tuple(Point(protocol) for protocol in protocols)
    return Experiment(name, title, "domains", _CIFAR, PROTOCOL_ROWS, points, labels=FORMS_OF_NOTE)


def _recurring(name: str, title: str, kind: Kind) -> Experiment:
    points = (Point("recurring", visits=20),)
    return Experiment(name, title, kind, _CIFAR, RECURRING_ROWS, points, labels=FORMS_OF_NOTE)


_ALL = (
    Experiment("table1", "Table 1: error on corrupted images", "table", _CORRUPTED, _WITH_NOTE_IID, _BOTH),
    Experiment("table2", "Table 2: error on real streams", "table", _REAL, METHOD_ROWS),
    Experiment(
        "table3",
        "Table 3: what IABN and PBRS each do",
        "table",
        _CIFAR,
        ABLATION_ROWS,
        _BOTH,
        labels=AS_ABLATION,
    ),
    Experiment(
        "table-iabn-star",
        "Table IABN*: BatchNorm replaced by IABN at test time",
        "table",
        _CIFAR,
        ("source", "iabn_star", "iabn", "iabn_star_pbrs", "in_star_pbrs", "note"),
        _BOTH,
        labels=AS_ABLATION,
    ),
    Experiment(
        "table-domains",
        "Tables by domain",
        "domains",
        (*_CORRUPTED, "harth", "extrasensory"),
        _WITH_NOTE_IID,
        _BOTH,
        more=("iabn", "pbrs", "iabn_rs", "in_pbrs", "in_star_pbrs"),
    ),
    Experiment(
        "table-mnist", "Table MNIST-C: error by corruption", "domains", ("mnist",), _WITH_NOTE_IID, _BOTH
    ),
    Experiment(
        "table-ablation",
        "Ablation beyond CIFAR: what IABN and PBRS each do",
        "table",
        ("mnist", *_REAL, "hapt"),
        ("source", "iabn", "pbrs", "iabn_rs", "note"),
        labels=AS_ABLATION,
    ),
    Experiment(
        "table-source",
        "Source error: the source model at home and away",
        "source",
        (*_REAL, "hapt", "cifar10", "cifar100", "imagenet", "mnist"),
        ("source", "iabn"),
    ),
    Experiment("table-hapt", "Table HAPT: error on real streams by user", "domains", ("hapt",), METHOD_ROWS),
    Experiment(
        "table-filter",
        "Beyond the paper: correlation as evidence",
        "table",
        ("cifar10", "cifar100", "imagenet", "mnist", *_REAL, "hapt", "digits"),
        FILTER_ROWS,
        _BOTH,
    ),
    Experiment(
        "table-options",
        "NOTE's options: later updates, smaller updates, a warm start",
        "table",
        (*_CIFAR, "mnist"),
        OPTION_ROWS,
    ),
    _protocol("table-ptta", "Practical protocol (PTTA): all domains in one correlated stream", "ptta"),
    _protocol("table-continual", "Continual protocol: all domains in one stream, each shuffled", "continual"),
    _protocol("table-mixed", "Mixed protocol: all domains at once", "mixed", "mixed-correlated"),
    _recurring("table-recurring", "Recurring protocol: the practical stream twenty times over", "visits"),
    _recurring("figure-recurring", "Recurring protocol: error by visit", "visit curves"),
    Experiment(
        "figure2", "Figure 2: i.i.d. against correlated streams", "bars", ("cifar10",), METHOD_ROWS, _BOTH
    ),
    Experiment("figure4", "Figure 4: streams by concentration δ", "streams", ("cifar10",), (), _DELTAS),
    Experiment(
        "figure5a", "Figure 5a: error against concentration δ", "sweep", ("cifar10",), METHOD_ROWS, _DELTAS
    ),
    Experiment(
        "figure5b",
        "Figure 5b: error against batch or memory size",
        "sweep",
        ("cifar10",),
        METHOD_ROWS,
        _SIZES,
    ),
    Experiment(
        "figure-cumulative",
        "Cumulative error over correlated streams: mean over the corruptions",
        "mean curves",
        (*_CORRUPTED, "mnist"),
        METHOD_ROWS,
    ),
    Experiment(
        "figure-realtime",
        "Real-time figures: cumulative error over a real stream",
        "curves",
        (*_REAL, "hapt"),
        METHOD_ROWS,
    ),
    Experiment(
        "table-methods",
        "Every method, every dataset: error on correlated streams",
        "methods",
        tuple(DATASET_HOMES),
        tuple(name for name in METHOD_HOMES if name != "note_iid"),
    ),
)

EXPERIMENTS = {experiment.id: experiment for experiment in _ALL}
"""Every table and figure, by id."""


def find(experiment_id: str) -> Experiment:
    """Return the experiment with an id.

    Raises:
        ValueError: There is none. The message lists all ids.
    """
    check_known("experiment", experiment_id, EXPERIMENTS)
    return EXPERIMENTS[experiment_id]
