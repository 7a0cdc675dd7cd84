"""The building blocks of experiments: streams and cells. A cell is one method with one source model on one stream.

A cell does not depend on its experiment, so a cell that two tables share is run only once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any

from ..names import check_known

NORMS = ("bn", "iabn", "in", "gn", "ln", "iabn*")
ORDERS = ("dirichlet", "iid", "sorted", "chronological")
PROTOCOLS = (
    *("continual", "ptta", "recurring", "mixed", "mixed-correlated"),
    *("class-sorted", "gli", "label-shift"),
)
"""The names of `note_tta.streams.PROTOCOLS`, repeated here so that listing experiments does not import torch."""

Scalar = str | int | float | bool | None
Options = tuple[tuple[str, Scalar], ...]


def options(mapping: Mapping[str, Any] | None = None, /, **more: Any) -> Options:
    """Return keywords in the form that a cell holds: sorted pairs of plain values.

    Example:
        >>> options({"lr": 0.001}, interval=64)
        (('interval', 64), ('lr', 0.001))
    """
    merged = {**(mapping or {}), **more}
    for name, value in merged.items():
        if not isinstance(value, str | int | float | bool | None):
            kind = type(value).__name__
            raise ValueError(f"option {name} must be a string, a number or a bool, got {kind}")
    return tuple(sorted(merged.items()))


@dataclass(frozen=True)
class Stream:
    """The samples of a dataset in some order."""

    dataset: str  # a name of `note_tta.data.DATASETS`, or a path to the user's own data
    domain: str  # a domain of the dataset; for a protocol, all of its domains joined by `+`
    order: str  # one of `ORDERS`, or the protocol that orders several domains
    delta: float | None = None  # concentration of a Dirichlet order
    seed: int = 0
    samples: int | None = None  # use only the first so many samples of each domain; None for all
    data_options: Options = ()  # keywords of the dataset, such as `severity`
    visits: int = 1  # how often the protocol `recurring` goes through all domains

    def __post_init__(self) -> None:
        check_known("stream", self.order, ORDERS + PROTOCOLS)
        if (self.delta is not None) != (self.order == "dirichlet"):
            raise ValueError(
                "a dirichlet stream needs a delta and others have none, "
                f"got delta {self.delta} for a {self.order} stream"
            )
        for name, value in (("samples", self.samples), ("visits", self.visits)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.visits > 1 and self.order != "recurring":
            raise ValueError(
                f"only a recurring stream has visits, got visits {self.visits} for a {self.order} stream"
            )

    def config(self) -> dict[str, Any]:
        """The fields that differ from their defaults, as plain values for JSON."""
        return _config(self)

    def describe(self) -> str:
        """Return a one-line description.

        Example:
            >>> Stream("cifar10", "fog", "dirichlet", delta=1).describe()
            'cifar10/fog, dirichlet 1, seed 0'
        """
        return f"{self.dataset}/{self.domain}, {self.order_text}, seed {self.seed}"

    @property
    def order_text(self) -> str:
        """The order in words, with its concentration or its number of visits."""
        delta = "" if self.delta is None else f" {self.delta:g}"
        return f"{self.order}{delta}" + ("" if self.visits == 1 else f" ×{self.visits}")


@dataclass(frozen=True)
class Cell:
    """One method on one stream."""

    stream: Stream  # its seed is also the method's, and selects the source model
    method: str  # a name of `note_tta.METHODS`, with its wrappers: `note+filter`
    model: str = ""  # a name of `note_tta.models.MODELS`, or `module:function` for the user's own
    norm: str = "bn"  # of the trained source model; `iabn*` means trained with BatchNorm, then converted
    batch_size: int = 64  # samples per call
    width: int | None = None  # channels of the model's first stage; None for the published width
    checkpoint: str = ""  # a weights file to use instead of the one for this model, norm and seed
    method_options: Options = ()  # keywords of the method that differ from its defaults
    norm_options: Options = ()  # `alpha` and `correction` of IABN, if they differ from the checkpoint's

    def __post_init__(self) -> None:
        check_known("norm", self.norm, NORMS)
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")

    def config(self) -> dict[str, Any]:
        """The fields of stream and cell that differ from their defaults, as plain values for JSON."""
        return {**self.stream.config(), **_config(self)}

    @property
    def text(self) -> str:
        """The cell's row in words.

        Example:
            >>> Cell(Stream("hapt", "user22", "iid"), "note", model="sensor_cnn4").text
            'hapt note on sensor_cnn4 (bn), iid'
        """
        model = f" on {self.model} ({self.norm})" if self.model else ""
        extra = "".join(f", {name}={value}" for name, value in (*self.method_options, *self.norm_options))
        return f"{self.stream.dataset} {self.method}{model}, {self.stream.order_text}{extra}"

    def describe(self) -> str:
        """Return a one-line description.

        Example:
            >>> stream = Stream("cifar10", "fog", "dirichlet", delta=1)
            >>> Cell(stream, "note", model="resnet20", norm="iabn").describe()
            'cifar10/fog note on resnet20 (iabn), dirichlet 1, seed 0'
        """
        dataset = self.stream.dataset
        return f"{dataset}/{self.stream.domain}{self.text[len(dataset) :]}, seed {self.stream.seed}"

    def row(self) -> Cell:
        """The cell without domain, seed and number of samples, over which a table averages."""
        return replace(self, stream=replace(self.stream, domain="", seed=0, samples=None))


Job = Cell | Stream
"""A task for a worker: a cell to run, or a stream to draw."""


def unfiltered(job: Job) -> Job:
    """Return the same cell without its outermost filter; any other job as it is.

    Example:
        >>> cell = Cell(Stream("cifar10", "fog", "iid"), "note+filter")
        >>> unfiltered(cell).method
        'note'
    """
    return replace(job, method=job.method.removesuffix("+filter")) if isinstance(job, Cell) else job


def job_from_config(config: Any) -> Job:
    """Return the cell of a configuration that `config` has made, or the stream if it names no method.

    Raises:
        ValueError: A field is missing, unknown or of the wrong type.

    Example:
        >>> cell = Cell(Stream("cifar10", "fog", "dirichlet", delta=0.1), "note", norm="iabn")
        >>> job_from_config(cell.config()) == cell
        True
    """
    if not isinstance(config, dict):
        raise ValueError(f"a configuration must be a dict, got {config!r}")
    wanted = _FIELDS[Stream] | (_FIELDS[Cell] if "method" in config else {})
    required = {name for name, field in wanted.items() if field.default is MISSING}
    if odd := {*config} - {*wanted} | required - {*config}:
        known = f"a cell has the fields {', '.join(wanted)}"
        raise ValueError(f"{known}; missing or unknown: {', '.join(sorted(odd))}")
    values = {name: _from_json(wanted[name], value) for name, value in config.items()}
    stream = Stream(**{name: value for name, value in values.items() if name in _FIELDS[Stream]})
    rest = {name: value for name, value in values.items() if name not in _FIELDS[Stream]}
    return Cell(stream, **rest) if rest else stream


def _config(record: Job) -> dict[str, Any]:
    found = {}
    for name, field in _FIELDS[type(record)].items():
        value = getattr(record, name)
        if value != field.default:
            found[name] = dict(value) if field.type == "Options" else value
    return found


def _from_json(field: Field[Any], value: Any) -> Any:
    if field.type == "Options" and isinstance(value, dict):
        return options(value)
    if isinstance(value, _KINDS.get(str(field.type), ())) and not isinstance(value, bool):
        return value
    raise ValueError(f"a cell's {field.name} cannot be {value!r}")


_FIELDS = {kind: {f.name: f for f in fields(kind) if f.name != "stream"} for kind in (Stream, Cell)}
_KINDS: dict[str, Any] = {"str": str, "int": int, "int | None": int, "float | None": (int, float)}
