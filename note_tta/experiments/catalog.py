"""Tables and figures as data, the paper's and those since: which rows, on which datasets, over which streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..names import DATASET_HOMES, METHOD_HOMES
from .cell import PROTOCOLS, Cell, Job, Stream, options
from .variants import (
    ABLATION_ROWS,
    AS_ABLATION,
    DATASET_OPTIONS,
    FILTER_ROWS,
    FORMS_OF_NOTE,
    METHOD_ROWS,
    PROTOCOL_ROWS,
    RECURRING_ROWS,
    VARIANTS,
)

__all__ = ["CORRELATED", "DELTA", "EXPERIMENTS", "TITLES", "Experiment", "Point", "find", "protocol_domain"]

Kind = Literal[
    "table",
    "domains",
    "source",
    "bars",
    "streams",
    "sweep",
    "curves",
    "mean curves",
    "visits",
    "visit curves",
    "methods",
]

DELTA = 0.1
"""The paper's concentration of the Dirichlet stream."""

CORRELATED: dict[str, str]
"""The order that stands for temporal correlation, by dataset."""

TITLES: dict[str, str]
"""What tables call a dataset."""


def __getattr__(name: str) -> Any:
    """What the datasets' records say, read on first use: a list of experiments needs neither them nor torch."""
    if name not in ("CORRELATED", "TITLES"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ..data import DATASETS

    return {key: record.stream if name == "CORRELATED" else record.title for key, record in DATASETS.items()}


def _takes(variant: str, dataset: str) -> bool:
    """Whether a row's method takes the samples of a dataset: some take images only."""
    from ..data import DATASETS
    from ..methods import method_class

    needs_images = method_class(VARIANTS[variant].method).needs_images
    return not (needs_images and DATASETS[dataset].network.startswith("sensor"))


def _correlated(dataset: str) -> str:
    from ..data import DATASETS

    return DATASETS[dataset].stream


_OF_STREAM = ("domain", "seed", "samples", "data_options")


@dataclass(frozen=True)
class Point:
    """A place on a figure's axis: how correlated the stream is, how many samples a batch or memory holds.

    Attributes:
        stream: `correlated`, `iid`, or a name of `PROTOCOLS`.
        delta: Concentration of a Dirichlet order.
        batch_size: Of a batch, and of NOTE's memory.
        label: What the axis calls it.
        visits: How often the protocol `recurring` goes through all domains.
    """

    stream: str = "correlated"
    delta: float = DELTA
    batch_size: int = 64
    label: str = ""
    visits: int = 1


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Attributes:
        id: The name on the command line.
        title: What it shows.
        kind: How it is laid out.
        datasets: The datasets it is defined for; columns of a table, in the paper's order.
        rows: Names of `VARIANTS`, in the paper's order.
        streams: `correlated`, `iid` or both.
        points: The axis of a sweep, or the streams of a picture.
        labels: Rows that this table calls by another name.
        more: The rows of the ablation, which come as a table of their own.
    """

    id: str
    title: str
    kind: Kind
    datasets: tuple[str, ...]
    rows: tuple[str, ...]
    streams: tuple[str, ...] = ("correlated",)
    points: tuple[Point, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    more: tuple[str, ...] = ()

    def label(self, variant: str) -> str:
        """The row's name as this table prints it."""
        return dict(self.labels).get(variant, VARIANTS[variant].title)

    def has(self, variant: str, stream: str) -> bool:
        """Whether the table has this row for this stream: NOTE* is for i.i.d. streams only."""
        return variant != "note_iid" or stream == "iid"

    def streams_of(self, dataset: str) -> tuple[str, ...]:
        """The streams of a dataset: what was recorded over time has one only."""
        return ("correlated",) if _correlated(dataset) == "chronological" else self.streams

    def points_of(self, dataset: str) -> tuple[Point, ...]:
        """The axis of a sweep, the protocols, or else one point per stream of a dataset."""
        return self.points or tuple(Point(stream) for stream in self.streams_of(dataset))

    def ablations_of(self, dataset: str) -> tuple[str, ...]:
        """The further rows, which the paper has for CIFAR only."""
        return self.more if dataset in ("cifar10", "cifar100") else ()

    def cells(
        self,
        dataset: str,
        targets: Sequence[str],
        seeds: Sequence[int],
        rows: Sequence[str] | None = None,
        streams: Sequence[str] | None = None,
        **fixed: Any,
    ) -> list[Job]:
        """Every cell of the experiment on one dataset.

        Args:
            dataset: One of `datasets`.
            targets: The domains to average over.
            seeds: One run of everything per seed.
            rows: Only these rows; None for all.
            streams: Only points of these streams; None for all.
            **fixed: Fields that all cells share: `model`, `width`, `samples`, `data_options`.
        """
        points = [p for p in self.points_of(dataset) if streams is None or p.stream in streams]
        if self.kind == "streams":
            fixed = {name: value for name, value in fixed.items() if name in _OF_STREAM}
            first = [(seed, point) for seed in seeds for point in points]
            return [stream_at(dataset, point, domain=targets[0], seed=seed, **fixed) for seed, point in first]
        domains = ["test", *targets] if self.kind == "source" else list(targets)
        places = [
            (domain, point)
            for point in points
            for domain in ([protocol_domain(point.stream, targets)] if point.stream in PROTOCOLS else domains)
        ]
        return [
            template_for(dataset, variant, point, domain=domain, seed=seed, **fixed)
            for seed in seeds
            for domain, point in places
            for variant in (*self.rows, *self.ablations_of(dataset))
            if self.has(variant, point.stream)
            and (rows is None or variant in rows)
            and _takes(variant, dataset)
        ]


def template_for(dataset: str, variant: str, point: Point | None = None, **fixed: Any) -> Cell:
    """The cell of a row at a point, for `fixed` fields (domain, seed, model, …).

    A method whose answers do not depend on the batch's boundaries has one cell for all batch sizes; for NOTE
    the size is that of its memory and the interval between updates.
    """
    from ..methods import method_class

    point, row = point or Point(), VARIANTS[variant]
    method_options = {**DATASET_OPTIONS.get((row.method, dataset), {}), **dict(row.method_options)}
    batch_size = point.batch_size
    inner = row.method.partition("+")[0]
    if inner == "note" and batch_size != 64:
        method_options |= {"capacity": batch_size, "interval": batch_size}
    if method_class(row.method).batch_free:
        batch_size = 64
    of_stream = {name: fixed.pop(name) for name in _OF_STREAM if name in fixed}
    return Cell(
        stream_at(dataset, point, **of_stream),
        method=row.method,
        norm=row.norm,
        batch_size=batch_size,
        method_options=options(method_options),
        norm_options=row.norm_options,
        **fixed,
    )


def stream_at(dataset: str, point: Point, **fixed: Any) -> Stream:
    """The stream at a point, for `fixed` fields (domain, seed, samples, data_options)."""
    order = _correlated(dataset) if point.stream == "correlated" else point.stream
    delta = point.delta if order == "dirichlet" else None
    return Stream(dataset, order=order, delta=delta, visits=point.visits, **{"domain": "", **fixed})


def protocol_domain(protocol: str, targets: Sequence[str]) -> str:
    """The domains of a protocol's stream in the order in which they come, joined as a `Stream` has them.

    The practical protocols have an order of their own for the fifteen corruptions.

    Example:
        >>> protocol_domain("ptta", ["fog", "motion_blur"]), protocol_domain("continual", ["fog", "motion_blur"])
        ('motion_blur+fog', 'fog+motion_blur')
    """
    from ..data.corruptions.names import PRACTICAL_ORDER

    if protocol in ("ptta", "recurring", "gli") and set(targets) <= set(PRACTICAL_ORDER):
        targets = sorted(targets, key=PRACTICAL_ORDER.index)
    return "+".join(targets)


_BOTH = ("correlated", "iid")
_CORRUPTED = ("cifar10", "cifar100", "imagenet")
_REAL = ("kitti", "harth", "extrasensory")
_DELTAS = (
    *(Point(delta=delta, label=f"{delta:g}") for delta in (0.001, 0.01, 0.1, 1.0, 10.0)),
    Point("iid", label="uniform"),
)
_RECURRING = (Point("recurring", visits=20),)
_SIZES = tuple(Point(batch_size=size, label=str(size)) for size in (16, 32, 64, 128, 256, 512))

EXPERIMENTS = {
    experiment.id: experiment
    for experiment in (
        Experiment(
            "table1",
            "Table 1: error on corrupted images",
            "table",
            _CORRUPTED,
            (*METHOD_ROWS, "note_iid"),
            _BOTH,
        ),
        Experiment("table2", "Table 2: error on real streams", "table", _REAL, METHOD_ROWS),
        Experiment(
            "table3",
            "Table 3: what IABN and PBRS each do",
            "table",
            ("cifar10", "cifar100"),
            ABLATION_ROWS,
            _BOTH,
            labels=AS_ABLATION,
        ),
        Experiment(
            "table-iabn-star",
            "Table IABN*: BatchNorm replaced by IABN at test time",
            "table",
            ("cifar10", "cifar100"),
            ("source", "iabn_star", "iabn", "iabn_star_pbrs", "in_star_pbrs", "note"),
            _BOTH,
            labels=AS_ABLATION,
        ),
        Experiment(
            "table-domains",
            "Tables by domain",
            "domains",
            (*_CORRUPTED, "harth", "extrasensory"),
            (*METHOD_ROWS, "note_iid"),
            _BOTH,
            more=("iabn", "pbrs", "iabn_rs", "in_pbrs", "in_star_pbrs"),
        ),
        Experiment(
            "table-mnist",
            "Table MNIST-C: error by corruption",
            "domains",
            ("mnist",),
            (*METHOD_ROWS, "note_iid"),
            _BOTH,
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
        Experiment(
            "table-hapt", "Table HAPT: error on real streams by user", "domains", ("hapt",), METHOD_ROWS
        ),
        Experiment(
            "table-filter",
            "Beyond the paper: correlation as evidence",
            "table",
            ("cifar10", "cifar100", "imagenet", "mnist", *_REAL, "hapt"),
            FILTER_ROWS,
            _BOTH,
        ),
        Experiment(
            "table-ptta",
            "Practical protocol (PTTA): all domains in one correlated stream",
            "domains",
            ("cifar10", "cifar100"),
            PROTOCOL_ROWS,
            points=(Point("ptta"),),
            labels=FORMS_OF_NOTE,
        ),
        Experiment(
            "table-continual",
            "Continual protocol: all domains in one stream, each shuffled",
            "domains",
            ("cifar10", "cifar100"),
            PROTOCOL_ROWS,
            points=(Point("continual"),),
            labels=FORMS_OF_NOTE,
        ),
        Experiment(
            "table-mixed",
            "Mixed protocol: all domains at once",
            "domains",
            ("cifar10", "cifar100"),
            PROTOCOL_ROWS,
            points=(Point("mixed"), Point("mixed-correlated")),
            labels=FORMS_OF_NOTE,
        ),
        Experiment(
            "table-recurring",
            "Recurring protocol: the practical stream twenty times over",
            "visits",
            ("cifar10", "cifar100"),
            RECURRING_ROWS,
            points=_RECURRING,
            labels=FORMS_OF_NOTE,
        ),
        Experiment(
            "figure-recurring",
            "Recurring protocol: error by visit",
            "visit curves",
            ("cifar10", "cifar100"),
            RECURRING_ROWS,
            points=_RECURRING,
            labels=FORMS_OF_NOTE,
        ),
        Experiment(
            "figure2", "Figure 2: i.i.d. against correlated streams", "bars", ("cifar10",), METHOD_ROWS, _BOTH
        ),
        Experiment(
            "figure4",
            "Figure 4: streams by concentration δ",
            "streams",
            ("cifar10",),
            (),
            points=_DELTAS,
        ),
        Experiment(
            "figure5a",
            "Figure 5a: error against concentration δ",
            "sweep",
            ("cifar10",),
            METHOD_ROWS,
            points=_DELTAS,
        ),
        Experiment(
            "figure5b",
            "Figure 5b: error against batch or memory size",
            "sweep",
            ("cifar10",),
            METHOD_ROWS,
            points=_SIZES,
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
}
"""Every table and figure, by id."""


def find(experiment_id: str) -> Experiment:
    """Return the experiment of an id.

    Raises:
        ValueError: There is none; the message lists those there are.
    """
    if experiment_id not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {experiment_id!r}; known are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[experiment_id]
