"""The paper's tables and figures as data: which rows, on which datasets, over which streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..names import DATASET_HOMES, METHOD_HOMES
from .cell import Cell, Job, Stream, options

__all__ = [
    "CORRELATED",
    "DELTA",
    "EXPERIMENTS",
    "TITLES",
    "VARIANTS",
    "Experiment",
    "Point",
    "Variant",
    "find",
]

Kind = Literal["table", "methods", "domains", "source", "bars", "streams", "sweep", "curves", "mean curves"]

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
    from ..methods import METHODS

    needs_images = METHODS[VARIANTS[variant].method.partition("+")[0]].needs_images
    return not (needs_images and DATASETS[dataset].network.startswith("sensor"))


def _correlated(dataset: str) -> str:
    from ..data import DATASETS

    return DATASETS[dataset].stream


@dataclass(frozen=True)
class Variant:
    """A row of a table: a method, the source model it starts from, and what differs from the defaults.

    Attributes:
        method: A name that `find_method` takes.
        called: What tables call it, where that is not the method's title.
        trained_with: The source model's norm layers, where they are not those that the method's class names.
        method_options: Keywords of the method.
        norm_options: `alpha` and `correction` of the IABN layers.
    """

    method: str
    called: str = ""
    trained_with: str = ""
    method_options: tuple[tuple[str, Any], ...] = ()
    norm_options: tuple[tuple[str, Any], ...] = ()

    @property
    def title(self) -> str:
        """What tables call it."""
        from ..methods import method_title

        return self.called or method_title(self.method)

    @property
    def norm(self) -> str:
        """The norm layers of its source model."""
        from ..methods import METHODS

        return self.trained_with or METHODS[self.method.partition("+")[0]].trained_with


VARIANTS = {name: Variant(name) for name in METHOD_HOMES} | {
    "iabn": Variant("source", "IABN", "iabn"),
    "pbrs": Variant("note", "PBRS", "bn"),
    "iabn_rs": Variant("note", "IABN+RS", method_options=options(memory="reservoir")),
    "in_pbrs": Variant("note", "IN+PBRS", "iabn*", norm_options=options(alpha=0.0)),
    "iabn_star": Variant("source", "IABN*", "iabn*"),
    "iabn_star_pbrs": Variant("note", "IABN*+PBRS", "iabn*"),
}
"""Every row of every table, by name: the methods and the ablations."""

BASELINES = ("source", "bn_stats", "onda", "pl", "tent", "lame", "cotta")
METHOD_ROWS = (*BASELINES, "note")
ABLATION_ROWS = ("source", "iabn", "pbrs", "iabn_rs", "note", "in_pbrs")

_AS_ABLATION = {"note": "IABN+PBRS"}

# What the paper (for ImageNet its authors' code) sets by dataset: CoTTA's threshold, TENT's optimizer.
_DATASET_OPTIONS: dict[tuple[str, str], Mapping[str, Any]] = {
    ("cotta", "cifar100"): {"p_th": 0.72},
    ("cotta", "imagenet"): {"p_th": 0.1},
    ("cotta", "kitti"): {"p_th": 0.55},
    ("tent", "imagenet"): {"optimizer": "sgd", "lr": 0.00025},
}


_OF_STREAM = ("domain", "seed", "samples", "data_options")


@dataclass(frozen=True)
class Point:
    """A place on a figure's axis: how correlated the stream is, how many samples a batch or memory holds."""

    stream: str = "correlated"
    delta: float = DELTA
    batch_size: int = 64
    label: str = ""


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper.

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

    def ablations_of(self, dataset: str) -> tuple[str, ...]:
        """The further rows, which the paper has for CIFAR only."""
        return self.more if dataset in ("cifar10", "cifar100") else ()

    def cells(
        self,
        dataset: str,
        targets: Sequence[str],
        seeds: Sequence[int],
        rows: Sequence[str] | None = None,
        **fixed: Any,
    ) -> list[Job]:
        """Every cell of the experiment on one dataset.

        Args:
            dataset: One of `datasets`.
            targets: The domains to average over.
            seeds: One run of everything a seed.
            rows: Only these rows; None for all.
            **fixed: Fields that all cells share: `model`, `width`, `samples`, `data_options`.
        """
        points = self.points or [Point(stream) for stream in self.streams_of(dataset)]
        if self.kind == "streams":
            fixed = {name: value for name, value in fixed.items() if name in _OF_STREAM}
            first = [(seed, point) for seed in seeds for point in points]
            return [stream_at(dataset, point, domain=targets[0], seed=seed, **fixed) for seed, point in first]
        domains = ["test", *targets] if self.kind == "source" else list(targets)
        return [
            template_for(dataset, variant, point, domain=domain, seed=seed, **fixed)
            for seed in seeds
            for domain in domains
            for point in points
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
    from ..methods import METHODS

    point, row = point or Point(), VARIANTS[variant]
    method_options = {**_DATASET_OPTIONS.get((row.method, dataset), {}), **dict(row.method_options)}
    batch_size = point.batch_size
    if row.method == "note" and batch_size != 64:
        method_options |= {"capacity": batch_size, "interval": batch_size}
    if METHODS[row.method.partition("+")[0]].batch_free:
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
    order = "iid" if point.stream == "iid" else _correlated(dataset)
    delta = point.delta if order == "dirichlet" else None
    return Stream(dataset, order=order, delta=delta, **{"domain": "", **fixed})


_BOTH = ("correlated", "iid")
_CORRUPTED = ("cifar10", "cifar100", "imagenet")
_REAL = ("kitti", "harth", "extrasensory")
_DELTAS = (
    *(Point(delta=delta, label=f"{delta:g}") for delta in (0.001, 0.01, 0.1, 1.0, 10.0)),
    Point("iid", label="uniform"),
)
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
            labels=tuple(_AS_ABLATION.items()),
        ),
        Experiment(
            "table-iabn-star",
            "Table IABN*: BatchNorm replaced by IABN at test time",
            "table",
            ("cifar10", "cifar100"),
            ("source", "iabn_star", "iabn", "iabn_star_pbrs", "note"),
            _BOTH,
            labels=tuple(_AS_ABLATION.items()),
        ),
        Experiment(
            "table-domains",
            "Tables by domain",
            "domains",
            (*_CORRUPTED, "harth", "extrasensory"),
            (*METHOD_ROWS, "note_iid"),
            _BOTH,
            more=("iabn", "pbrs", "iabn_rs", "in_pbrs"),
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
            labels=tuple(_AS_ABLATION.items()),
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
