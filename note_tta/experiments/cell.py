"""A cell: one method on one stream of one domain, from one source model, with one seed.

Cells are what an experiment is made of and know nothing of experiments, so a cell that two tables share is
run once. A cell's id is a digest of its configuration.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

__all__ = ["NORMS", "STREAMS", "Cell", "Options", "options"]

NORMS = ("bn", "iabn", "in", "iabn*")
STREAMS = ("dirichlet", "iid", "sorted", "chronological")

Scalar = str | int | float | bool | None
Options = tuple[tuple[str, Scalar], ...]


def options(mapping: Mapping[str, Any] | None = None, /, **more: Any) -> Options:
    """Keywords in the form a cell holds them: sorted pairs of plain values.

    Example:
        >>> options({"lr": 0.001}, interval=64)
        (('interval', 64), ('lr', 0.001))
    """
    merged = {**(mapping or {}), **more}
    for name, value in merged.items():
        if not isinstance(value, str | int | float | bool | None):
            raise TypeError(
                f"option {name} must be a string, a number or a truth value, got {type(value).__name__}"
            )
    return tuple(sorted(merged.items()))


@dataclass(frozen=True)
class Cell:
    """One method on one stream of one domain.

    Attributes:
        dataset: A name of `note_tta.data.DATASETS`, or a path to the user's own data.
        domain: A domain of the dataset.
        method: A name of `note_tta.METHODS`, or `stream` to record the stream alone, without a model.
        stream: `dirichlet`, `iid`, `sorted` or `chronological`.
        seed: Draws the order of the stream and feeds the method; also chooses the source model.
        model: A name of `note_tta.models.MODELS`, or `module:function` for the user's own.
        norm: The source model: trained with `bn`, `iabn` or `in`, or `iabn*`, trained with BatchNorm and
            converted.
        delta: Concentration of the Dirichlet stream; None for the others.
        batch_size: Samples a call.
        samples: Only the domain's first so many samples, put in order; None for all.
        width: Channels of the model's first stage; None for the published width.
        checkpoint: A weights file in the place of the one that model, norm and seed name.
        method_options: Keywords of the method that differ from its defaults.
        norm_options: `alpha` and `correction` of the IABN layers where they differ from the checkpoint's.
        data_options: Keywords of the dataset, `severity` for one.
    """

    dataset: str
    domain: str
    method: str
    stream: str
    seed: int = 0
    model: str = ""
    norm: str = "bn"
    delta: float | None = None
    batch_size: int = 64
    samples: int | None = None
    width: int | None = None
    checkpoint: str = ""
    method_options: Options = ()
    norm_options: Options = ()
    data_options: Options = ()

    def __post_init__(self) -> None:
        if self.stream not in STREAMS:
            raise ValueError(f"unknown stream {self.stream!r}; known are {', '.join(STREAMS)}")
        if self.norm not in NORMS:
            raise ValueError(f"unknown norm {self.norm!r}; known are {', '.join(NORMS)}")
        if (self.delta is not None) != (self.stream == "dirichlet"):
            raise ValueError(
                f"delta belongs to a dirichlet stream, got delta {self.delta} for a {self.stream} one"
            )
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")
        if self.samples is not None and self.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}")

    @property
    def id(self) -> str:
        """A digest of the configuration; equal configurations have equal ids, on every machine."""
        config = self.config()
        for name in _OPTIONS:  # 1 and 1.0 are the same value
            config[name] = {key: _as_float(value) for key, value in config[name].items()}
        text = json.dumps(config | {"delta": _as_float(self.delta)}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def file_name(self) -> str:
        """The name of the cell's result file, told by what it is and made unique by the id."""
        words = (
            self.dataset,
            self.domain,
            self.model,
            self.norm,
            self.method,
            self.stream,
            f"seed{self.seed}",
        )
        name = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", word).strip("_.")[-40:] for word in words if word)
        return f"{name}-{self.id}.json"

    def config(self) -> dict[str, Any]:
        """The configuration as plain values, for JSON."""
        config = asdict(self)
        for name in _OPTIONS:
            config[name] = dict(getattr(self, name))
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Cell:
        """The cell of a configuration that `config` made.

        Raises:
            ValueError: A field is missing, unknown or of the wrong type.

        Example:
            >>> cell = Cell("cifar10", "fog", "note", "dirichlet", delta=0.1, norm="iabn")
            >>> Cell.from_config(cell.config()) == cell
            True
        """
        known = {field.name for field in fields(cls)}
        if config.keys() != known:
            odd = ", ".join(sorted(config.keys() ^ known))
            raise ValueError(f"a cell has the fields {', '.join(sorted(known))}; missing or unknown: {odd}")
        values = dict(config)
        for name, kinds in _KINDS.items():
            if not isinstance(values[name], kinds) or isinstance(values[name], bool):
                raise ValueError(f"a cell's {name} cannot be {values[name]!r}")
        for name in _OPTIONS:
            if not isinstance(values[name], dict):
                raise ValueError(f"a cell's {name} cannot be {values[name]!r}")
            try:
                values[name] = options(values[name])
            except TypeError as error:
                raise ValueError(f"a cell's {name}: {error}") from error
        return cls(**values)

    def describe(self) -> str:
        """One line for a person.

        Example:
            >>> Cell("cifar10", "fog", "note", "dirichlet", model="resnet20", norm="iabn", delta=1).describe()
            'cifar10/fog note on resnet20 (iabn), dirichlet 1, seed 0'
        """
        model = f" on {self.model} ({self.norm})" if self.model else ""
        delta = "" if self.delta is None else f" {self.delta:g}"
        extra = "".join(f", {name}={value}" for name, value in (*self.method_options, *self.norm_options))
        stream = f"{self.stream}{delta}{extra}, seed {self.seed}"
        return f"{self.dataset}/{self.domain} {self.method}{model}, {stream}"

    def row(self) -> Cell:
        """The cell without what a table averages over: domain, seed and the number of samples."""
        return replace(self, domain="", seed=0, samples=None)


_OPTIONS = ("method_options", "norm_options", "data_options")


def _as_float(value: Scalar) -> Scalar:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("dataset", "domain", "method", "stream", "model", "norm", "checkpoint"), (str,)),
    **dict.fromkeys(("seed", "batch_size"), (int,)),
    **dict.fromkeys(("samples", "width"), (int, type(None))),
    "delta": (int, float, type(None)),
}
