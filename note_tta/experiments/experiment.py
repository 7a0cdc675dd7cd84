"""An experiment: a table or a figure as data, and the cells that it consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .cell import PROTOCOLS, Cell, Job, Stream, options
from .variants import DATASET_OPTIONS, PROTOCOL_OPTIONS, VARIANTS

_Tables = Literal["table", "methods", "domains", "source", "visits"]
_Figures = Literal["bars", "sweep", "streams", "curves", "mean curves", "visit curves"]
Kind = _Tables | _Figures

DELTA = 0.1
"""The paper's concentration of the Dirichlet stream."""

_OF_STREAM = ("domain", "seed", "samples", "data_options")


@dataclass(frozen=True)
class Point:
    """A point on a figure's axis: how correlated the stream is, and how large a batch or memory is."""

    stream: str = "correlated"  # or `iid`, or a name of `PROTOCOLS`
    delta: float = DELTA  # concentration of a Dirichlet order
    batch_size: int = 64  # of a batch, and of NOTE's memory
    label: str = ""  # its name on the axis
    visits: int = 1  # how often the protocol `recurring` goes through all domains


@dataclass(frozen=True)
class Experiment:
    """A table or a figure."""

    id: str  # the name on the command line
    title: str
    kind: Kind  # its layout
    datasets: tuple[str, ...]  # in the paper's order, as are the rows
    rows: tuple[str, ...]  # names of `VARIANTS`
    points: tuple[Point, ...] = (Point(),)  # its streams: one or two, protocols, or the axis of a sweep
    labels: tuple[tuple[str, str], ...] = ()  # other names of some rows in this table
    more: tuple[str, ...] = ()  # the rows of the ablation, which are a second table

    def label(self, variant: str) -> str:
        """Return the name of a row in this table."""
        return dict(self.labels).get(variant, VARIANTS[variant].title)

    def has(self, variant: str, stream: str) -> bool:
        """Whether the table has this row for this stream: NOTE* is only for i.i.d. streams."""
        return variant != "note_iid" or stream == "iid"

    def points_of(self, dataset: str) -> tuple[Point, ...]:
        """Return the points for a dataset. A dataset that was recorded over time has no i.i.d. stream."""
        recorded = _correlated_order(dataset) == "chronological"
        return tuple(point for point in self.points if not (recorded and point.stream == "iid"))

    def ablations_of(self, dataset: str) -> tuple[str, ...]:
        """Return the rows of the ablation, which the paper has only for CIFAR."""
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
        """Return every cell on one dataset and these target domains, or only those of some rows and streams.

        Cells share the `fixed` fields: `model`, `width`, `samples`, `data_options`.
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
            and _takes(variant, dataset, fixed.get("model", ""))
        ]


def template_for(dataset: str, variant: str, point: Point | None = None, **fixed: Any) -> Cell:
    """Return the cell of a row at a point, with `fixed` fields (domain, seed, model, …).

    A batch-free method has one cell for all batch sizes. For NOTE, the size sets the capacity of the memory and the
    interval between updates. On a network without BatchNorm the source model has the network's own norm layers.
    """
    from ..methods import method_class

    point, row = point or Point(), VARIANTS[variant]
    method_options = {
        **DATASET_OPTIONS.get((row.method, dataset), {}),
        **PROTOCOL_OPTIONS.get((row.method, point.stream), {}),
        **dict(row.method_options),
    }
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
        norm=row.norm if row.trained_with else norm_for(row.norm, fixed.get("model", "")),
        batch_size=batch_size,
        method_options=options(method_options),
        norm_options=row.norm_options,
        **fixed,
    )


def stream_at(dataset: str, point: Point, **fixed: Any) -> Stream:
    """Return the stream at a point, with `fixed` fields (domain, seed, samples, data_options)."""
    order = _correlated_order(dataset) if point.stream == "correlated" else point.stream
    delta = point.delta if order == "dirichlet" else None
    return Stream(dataset, order=order, delta=delta, visits=point.visits, **{"domain": "", **fixed})


def protocol_domain(protocol: str, targets: Sequence[str]) -> str:
    """Return the domains of a protocol's stream in their order, joined as in a `Stream`.

    The practical protocols have their own order of the fifteen corruptions.

    Example:
        >>> protocol_domain("ptta", ["fog", "motion_blur"]), protocol_domain("continual", ["fog", "motion_blur"])
        ('motion_blur+fog', 'fog+motion_blur')
    """
    from ..data.corruptions.names import PRACTICAL_ORDER

    if protocol in ("ptta", "recurring", "gli") and set(targets) <= set(PRACTICAL_ORDER):
        targets = sorted(targets, key=PRACTICAL_ORDER.index)
    return "+".join(targets)


def _correlated_order(dataset: str) -> str:
    """Return the order of a dataset's correlated stream. The import is late: listing experiments needs no datasets."""
    from ..data import DATASETS

    return DATASETS[dataset].stream


def _takes(variant: str, dataset: str, model: str) -> bool:
    """Whether a row's method accepts the samples of a dataset and the norm layers of a network."""
    from ..data import DATASETS
    from ..methods import method_class

    row = VARIANTS[variant]
    method = method_class(row.method)
    if norm_for("bn", model) != "bn" and (row.trained_with or method.needs_norm in ("batch", "IABN")):
        return False
    return not (method.needs_images and DATASETS[dataset].network.startswith("sensor"))


def norm_for(norm: str, model: str) -> str:
    """Return the norm layers of a network that is to have these: its own if it cannot have them."""
    from ..models import MODELS

    return norm if model not in MODELS or norm in MODELS[model].norms else MODELS[model].norms[0]
