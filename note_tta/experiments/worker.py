"""What computes a cell: opens its data, loads its source model, builds its method, runs its stream."""

from __future__ import annotations

import copy
import hashlib
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import streams
from ..checkpoint import load_checkpoint, load_weights, weights_fingerprint
from ..data import DATASETS, Dataset, Domain, open_dataset, resolve_root
from ..data.own import open_own
from ..evaluation import Result, evaluate
from ..memory import FIFO, PBRS, Memory, Reservoir
from ..methods import Method, find_method
from ..models import MODELS, build_model
from ..models.own import make_model
from ..nn import IABN1d, IABN2d, IABN3d, convert_iabn
from ..provenance import provenance
from .cell import Cell, Job, Options, Stream
from .store import Record, count_wrong, thinned

__all__ = ["Settings", "Worker", "build_method", "find_checkpoint", "stream_order"]


@dataclass(frozen=True)
class Settings:
    """Where a worker finds things and what it may use.

    Attributes:
        data_root: The data root; None for the usual one.
        models: The folder of checkpoints; None for `models` in the data root.
        threads: Threads torch computes with; None leaves them alone.
        device: Where models run.
    """

    data_root: str | None = None
    models: str | None = None
    threads: int | None = None
    device: str = "cpu"

    @property
    def models_folder(self) -> Path:
        """The folder of checkpoints."""
        return Path(self.models) if self.models else resolve_root(self.data_root) / "models"


class Worker:
    """Runs cells one after another, keeping the domain and the source models it used last.

    Args:
        settings: Where to find things.

    Example:
        >>> stream = Stream("digits", "style", "dirichlet", delta=0.1)
        >>> Worker(Settings()).run(stream).result["samples"]
        2400
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._datasets: dict[tuple[str, Options], Dataset] = {}
        self._domain: tuple[Any, Domain] | None = None
        self._models: dict[Any, tuple[nn.Module, dict[str, Any]]] = {}
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        self._provenance = provenance()  # of the code that was loaded, whatever happens to the files later

    def dataset(self, name: str, options: Options = ()) -> Dataset:
        """A dataset, opened once."""
        key = (name, options)
        if key not in self._datasets:
            if name in DATASETS:
                self._datasets[key] = open_dataset(name, self.settings.data_root, **dict(options))
            else:
                unknown = [option for option, _ in options if option != "recorded"]
                if unknown:
                    raise ValueError(
                        f"your own data takes the option recorded only, got {', '.join(unknown)}"
                    )
                self._datasets[key] = open_own(name, **{key: str(value) for key, value in options})
        return self._datasets[key]

    def run(self, job: Job) -> Record:
        """Draw a stream and, for a cell, run its method over it.

        Raises:
            ValueError: The configuration does not fit the data or the model.
            FileNotFoundError: The data or the checkpoint is not there.
        """
        started = time.perf_counter()
        stream = job.stream if isinstance(job, Cell) else job
        domain = self._open(stream)
        order = stream_order(stream, domain.labels)
        labels = domain.labels[order]
        origin: dict[str, Any] = {"data": {"fingerprint": domain.fingerprint, "origin": domain.origin}}
        result: dict[str, Any] = {
            "samples": len(order),
            "labels": thinned(labels),
            "mean_run_length": round(streams.mean_run_length(labels), 3),
        }
        if isinstance(job, Cell):
            model, origin["checkpoint"] = self._source_model(job)
            _check_fit(job, model, self._dataset(stream), domain)
            method = build_method(job, model)
            loader = domain.batches(order, job.batch_size)
            result |= _summary(evaluate(method, loader, progress=False), method)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        origin |= {"device": self.settings.device, "time": now}
        origin["wall_seconds"] = round(time.perf_counter() - started, 2)
        return Record(job, result, {**self._provenance, **origin})

    def _dataset(self, stream: Stream) -> Dataset:
        return self.dataset(stream.dataset, stream.data_options)

    def _open(self, stream: Stream) -> Domain:
        key = (stream.dataset, stream.data_options, stream.domain)
        if self._domain is None or self._domain[0] != key:
            self._domain = None
            self._domain = (key, self._dataset(stream).domain(stream.domain))
        return self._domain[1]

    def _source_model(self, cell: Cell) -> tuple[nn.Module, dict[str, Any]]:
        """A fresh copy of the cell's source model on the device, and where it came from."""
        norm = "bn" if cell.norm == "iabn*" else cell.norm
        key = (cell.stream.dataset, cell.model, cell.width, norm, cell.stream.seed, cell.checkpoint)
        if key not in self._models:
            if len(self._models) >= 4:
                self._models.pop(next(iter(self._models)))
            self._models[key] = self._load(cell, norm)
        model, source = self._models[key]
        _check_norm(cell, model)
        model = copy.deepcopy(model)
        if cell.norm == "iabn*" or cell.norm_options:
            model = convert_iabn(model, **{**_iabn_settings(model), **dict(cell.norm_options)})
        return model.to(self.settings.device).eval(), source

    def _load(self, cell: Cell, norm: str) -> tuple[nn.Module, dict[str, Any]]:
        if ":" in cell.model:
            model = make_model(cell.model)
            if not cell.checkpoint:
                return model, {"name": cell.model, "fingerprint": weights_fingerprint(model)}
            path = Path(cell.checkpoint)
            return load_weights(model, path), _origin(path, {})
        if cell.model not in MODELS:
            raise ValueError(
                f"unknown model {cell.model!r}; known are {', '.join(MODELS)}, or your own module:function"
            )
        dataset = self._dataset(cell.stream)
        path = find_checkpoint(cell, self.settings.models_folder)
        if cell.checkpoint and not path.with_suffix(".json").is_file():
            channels = dataset.input_shape[0]
            model = build_model(
                cell.model, len(dataset.classes), norm=norm, width=cell.width, in_channels=channels
            )
            return load_weights(model, path).eval(), _origin(path, {})
        model, card = load_checkpoint(
            path, num_classes=len(dataset.classes), in_channels=dataset.input_shape[0]
        )
        held, wanted = card["architecture"], (cell.model, cell.width or MODELS[cell.model].width, norm)
        if (held["name"], held["width"], held["norm"]) != wanted:
            raise ValueError(
                f"{path} holds {held['name']} of width {held['width']} with {held['norm']}, "
                f"but {wanted[0]} of width {wanted[1]} with {wanted[2]} is asked for"
            )
        return model, _origin(path, card)


def find_checkpoint(cell: Cell, folder: Path) -> Path:
    """The file of the cell's source model: of its own seed where there is one, else of seed 0.

    Raises:
        FileNotFoundError: There is neither; the message has the command that trains one.
    """
    if cell.checkpoint:
        path = Path(cell.checkpoint)
        if not path.is_file():
            raise FileNotFoundError(f"no checkpoint {path}")
        return path
    norm = "bn" if cell.norm == "iabn*" else cell.norm
    widths = [""] if cell.width is None else [f"-w{cell.width}", ""]
    names = [
        f"{cell.stream.dataset}-{cell.model}{width}-{norm}-seed{seed}.safetensors"
        for seed in dict.fromkeys((cell.stream.seed, 0))
        for width in widths
    ]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    command = f"note-tta train --dataset {cell.stream.dataset} --model {cell.model} --norm {norm}"
    command += "" if cell.width is None else f" --width {cell.width}"
    raise FileNotFoundError(f"no source model {' or '.join(names)} in {folder}; train it with: {command}")


def stream_order(stream: Stream, labels: Tensor) -> Tensor:
    """The order in which a stream's samples come: the domain's first `samples`, put in order.

    The order is drawn from the seed and the domain's name, so that each domain has its own and every method
    meets the same.
    """
    labels = labels[: stream.samples]
    if len(labels) == 0:
        raise ValueError(f"{stream.dataset}/{stream.domain} has no samples")
    generator = _generator(stream, "order")
    if stream.order == "dirichlet":
        return streams.dirichlet(labels, delta=stream.delta or 0.0, generator=generator)
    if stream.order == "iid":
        return streams.iid(labels, generator)
    return streams.sorted(labels, generator) if stream.order == "sorted" else streams.chronological(labels)


def build_method(cell: Cell, model: nn.Module) -> Method:
    """The cell's method over `model`, with its options and its own source of randomness.

    Beside the method's own keywords, `memory` (`pbrs`, `reservoir`, `fifo`) and `capacity` make NOTE's
    memory.

    Raises:
        ValueError: The method is unknown or does not take an option.
    """
    make = find_method(cell.method)
    keywords: dict[str, Any] = dict(cell.method_options)
    if cell.method.partition("+")[0] == "note":
        keywords["memory"] = _memory(
            keywords.pop("memory", "pbrs"), keywords.pop("capacity", 64), cell.stream
        )
    if cell.method == "cotta":
        keywords["generator"] = _generator(cell.stream, "method")
    try:
        return make(model, **keywords)
    except TypeError as error:
        raise ValueError(
            f"{cell.method} does not take these options: {', '.join(keywords)} ({error})"
        ) from error


def _memory(kind: Any, capacity: Any, stream: Stream) -> Memory:
    if kind == "fifo":
        return FIFO(capacity)
    if kind not in ("pbrs", "reservoir"):
        raise ValueError(f"memory must be pbrs, reservoir or fifo, got {kind!r}")
    return (PBRS if kind == "pbrs" else Reservoir)(capacity, generator=_generator(stream, "method"))


def _generator(stream: Stream, purpose: str) -> torch.Generator:
    digest = hashlib.sha256(f"{purpose}/{stream.domain}/{stream.seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def _summary(outcome: Result, method: Method) -> dict[str, Any]:
    predictions = outcome.predictions.to(torch.int32).numpy().tobytes()
    return {
        "error": round(outcome.error, 4),
        "seconds": round(outcome.seconds, 3),
        "samples_per_second": round(outcome.samples_per_second, 1),
        "latency_ms": {str(q): round(value, 3) for q, value in outcome.latency_ms.items()},
        "wrong": count_wrong(outcome.predictions != outcome.labels),
        "per_class_error": [
            _short(outcome.per_class_error.get(k))
            for k in range(max(outcome.per_class_error, default=-1) + 1)
        ],
        "predictions_sha256": hashlib.sha256(predictions).hexdigest()[:16],
        "counters": dict(method.counters),
    }


def _short(value: float | None) -> float | None:
    """A percentage to two digits, whole where it is whole."""
    return None if value is None else int(value) if value == int(value) else round(value, 2)


def _check_fit(cell: Cell, model: nn.Module, dataset: Dataset, domain: Domain) -> None:
    """One sample through a model of the user's own, so that a misfit is told before the stream starts."""
    if ":" not in cell.model:
        return
    sample = domain.inputs([0]).to(next((p.device for p in model.parameters()), torch.device("cpu")))
    try:
        with torch.no_grad():
            logits = model(sample)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ValueError(
            f"{cell.model} does not take samples of shape {tuple(sample.shape[1:])}: {error}"
        ) from error
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise ValueError(f"{cell.model} must map [B, ...] to logits [B, K]")
    classes, exact = len(dataset.classes), not cell.stream.dataset.endswith(".npz")
    if logits.shape[1] < classes or (exact and logits.shape[1] != classes):
        raise ValueError(
            f"{cell.model} tells {logits.shape[1]} classes apart, {cell.stream.dataset} has {classes}"
        )


def _check_norm(cell: Cell, model: nn.Module) -> None:
    """Refuse to call a run by norm layers that a model does not have; one of the user's own may have any."""
    has_iabn = bool(_iabn_settings(model))
    if cell.norm in ("iabn", "in") and not has_iabn:
        raise ValueError(f"{cell.model} has no IABN layers: --norm 'iabn*' converts its BatchNorm layers")
    if cell.norm == "bn" and has_iabn:
        raise ValueError(f"{cell.model} has IABN layers: run it with --norm iabn")


def _iabn_settings(model: nn.Module) -> dict[str, Any]:
    layer = next((m for m in model.modules() if isinstance(m, IABN1d | IABN2d | IABN3d)), None)
    return {} if layer is None else {"alpha": layer.alpha, "correction": layer.correction}


def _origin(path: Path, card: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in card.items() if isinstance(value, str | int | float | bool)}
    return {"name": path.name, "fingerprint": weights_fingerprint(path), "card": kept}
