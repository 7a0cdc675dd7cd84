"""Runs a cell: opens its data, draws its stream, and builds its method on its source model."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import streams
from ..data import DATASETS, Dataset, Domain, open_dataset, resolve_root
from ..data.user_data import open_own
from ..memory import FIFO, PBRS, Memory, Reservoir
from ..methods import Method, find_method, method_class
from ..methods.note import NOTE
from ..methods.states import keywords as keywords_of
from ..provenance import provenance
from ..recommended import Adapted
from .cell import PROTOCOLS, Cell, Job, Options, Stream, unfiltered
from .replay import Run, run_filter, run_method
from .schedule import Failure
from .source_models import SourceModels, check_fit
from .store import Record, count_wrong, thinned


@dataclass(frozen=True)
class Settings:
    """Where a worker finds data and models, and which threads and device it uses."""

    data_root: str | None = None  # None for the default one
    models: str | None = None  # the folder of checkpoints; None for `models` in the data root
    threads: int | None = None  # torch's; None leaves them as they are
    device: str = "cpu"

    @property
    def models_folder(self) -> Path:
        """The folder of checkpoints."""
        return Path(self.models) if self.models else resolve_root(self.data_root) / "models"


class Worker:
    """Runs cells one after another, and keeps the most recently used domains and source models.

    Example:
        >>> stream = Stream("digits", "style", "dirichlet", delta=0.1)
        >>> Worker(Settings()).run(stream).result["samples"]
        2400
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._datasets: dict[tuple[str, Options], Dataset] = {}
        self._domains: tuple[Any, dict[str, Domain]] = ((), {})
        self._models = SourceModels(settings.models_folder, settings.device)
        self._last_run: Run | None = None
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        self._provenance = provenance()  # of the code as loaded now; its files may change later

    def dataset(self, name: str, options: Options = ()) -> Dataset:
        """Return a dataset, which is opened once."""
        key = (name, options)
        if key not in self._datasets:
            if name in DATASETS:
                self._datasets[key] = open_dataset(name, self.settings.data_root, **dict(options))
            else:
                if unknown := [option for option, _ in options if option != "recorded"]:
                    raise ValueError(f"your own data has only the option recorded, got {', '.join(unknown)}")
                self._datasets[key] = open_own(name, **{option: str(value) for option, value in options})
        return self._datasets[key]

    def run(self, job: Job) -> Record:
        """Draw a stream and, for a cell, run its method over it.

        Raises:
            ValueError: The configuration does not fit the data or the model.
            FileNotFoundError: The data or the checkpoint is missing.
        """
        started = time.perf_counter()
        stream = job.stream if isinstance(job, Cell) else job
        dataset = self.dataset(stream.dataset, stream.data_options)
        domains = self._open(stream, dataset)
        known = {name: domain.labels[: stream.samples] for name, domain in domains.items()}
        order = draw_stream(stream, known)
        labels = order.labels(known)
        origin: dict[str, Any] = {"data": _data_origin(domains)}
        result: dict[str, Any] = {
            "samples": len(order),
            "labels": thinned(labels),
            "mean_run_length": round(streams.mean_run_length(labels), 3),
        }
        if isinstance(job, Cell):
            model, origin["checkpoint"] = self._models.get(job, dataset)
            if ":" in job.model:
                check_fit(job, model, dataset, next(iter(domains.values())))
            if self._last_run is not None and unfiltered(job) == self._last_run.cell != job:
                run = run_filter(job, self._last_run)
            else:
                method = build_method(job, model, dataset)
                run = run_method(job, method, order.batches(domains, job.batch_size))
            self._last_run = run
            result |= _summary(run)
            if stream.order in PROTOCOLS:
                errors = order.errors(run.outcome.wrong).T.tolist()
                result["visits"] = {
                    name: [round(error, 4) for error in row if error == error]  # without NaN
                    for name, row in zip(order.names, errors, strict=True)
                }
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        origin |= {"device": self.settings.device, "time": now}
        origin["wall_seconds"] = round(time.perf_counter() - started, 2)
        return Record(job, result, {**self._provenance, **origin})

    def attempt(self, job: Job) -> Record | Failure:
        """Run a job and return its record, or the error as a `Failure`."""
        try:
            return self.run(job)
        except Exception as error:
            return Failure(f"{type(error).__name__}: {error}")

    def _open(self, stream: Stream, dataset: Dataset) -> dict[str, Domain]:
        key = (stream.dataset, stream.data_options, stream.domain)
        if self._domains[0] != key:
            self._domains = ((), {})
            names = stream.domain.split("+") if stream.order in PROTOCOLS else [stream.domain]
            self._domains = (key, {name: dataset.domain(name) for name in names})
        return self._domains[1]


def draw_stream(stream: Stream, labels: dict[str, Tensor]) -> streams.DomainOrder:
    """Draw the order of a stream's samples.

    The order depends on the seed and the domain's name. So each domain has its own order, and all methods see the
    same order. `labels` are the labels of the used samples, by domain.
    """
    for name, values in labels.items():
        if len(values) == 0:
            raise ValueError(f"{stream.dataset}/{name} has no samples")
    generator = _generator(stream, "order")
    if stream.order in PROTOCOLS:
        settings = {"visits": stream.visits} if stream.order == "recurring" else {}
        return streams.PROTOCOLS[stream.order](labels, generator=generator, **settings)
    return streams.in_turn(labels, partial(_one_order, stream), generator=generator)


def _one_order(stream: Stream, labels: Tensor, generator: torch.Generator) -> Tensor:
    if stream.order == "dirichlet":
        return streams.dirichlet(labels, delta=stream.delta or 0.0, generator=generator)
    if stream.order == "iid":
        return streams.iid(labels, generator)
    return streams.sorted(labels, generator) if stream.order == "sorted" else streams.chronological(labels)


def build_method(cell: Cell, model: nn.Module, dataset: Dataset | None = None) -> Method:
    """Build the cell's method on the source model, with its options and its own generator.

    Besides the method's own keywords, the options `memory` (`pbrs`, `reservoir`, `fifo`) and `capacity` set
    NOTE's memory. The dataset's domain `test` provides source samples for a method that needs them.

    Raises:
        ValueError: The method is unknown or does not have one of the options.
    """
    make, inner = find_method(cell.method), find_method(cell.method.partition("+")[0])
    facts = method_class(cell.method)
    keywords: dict[str, Any] = dict(cell.method_options)
    if facts in (NOTE, Adapted):
        kind, capacity = keywords.pop("memory", "pbrs"), keywords.pop("capacity", 64)
        keywords["memory"] = _memory(kind, capacity, cell.stream)
    if "generator" in keywords_of(inner):
        keywords["generator"] = _generator(cell.stream, "method")
    if facts.needs_source and dataset is not None:
        clean = dataset.domain("test")
        few = facts.source_samples
        order = (
            slice(None) if few is None else streams.iid(clean.labels, _generator(cell.stream, "source"))[:few]
        )
        keywords["source"] = (x for x, _ in clean.batches(order))
    try:
        return make(model, **keywords)
    except TypeError as error:
        names = ", ".join(keywords)
        raise ValueError(f"{cell.method} does not accept these options: {names} ({error})") from error


def _memory(kind: Any, capacity: Any, stream: Stream) -> Memory:
    if kind == "fifo":
        return FIFO(capacity)
    if kind not in ("pbrs", "reservoir"):
        raise ValueError(f"memory must be pbrs, reservoir or fifo, got {kind!r}")
    return (PBRS if kind == "pbrs" else Reservoir)(capacity, generator=_generator(stream, "method"))


def _generator(stream: Stream, purpose: str) -> torch.Generator:
    digest = hashlib.sha256(f"{purpose}/{stream.domain}/{stream.seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def _data_origin(domains: dict[str, Domain]) -> dict[str, str]:
    """Return the origin of the data; for several domains, a hash of their fingerprints."""
    prints = [domain.fingerprint for domain in domains.values()]
    if len(prints) > 1:
        prints = [f"sha256:{hashlib.sha256(' '.join(prints).encode()).hexdigest()[:16]}"]
    return {"fingerprint": prints[0], "origin": "+".join(sorted({d.origin for d in domains.values()}))}


def _summary(run: Run) -> dict[str, Any]:
    outcome = run.outcome
    predictions = outcome.predictions.to(torch.int32).numpy().tobytes()
    by_class = outcome.per_class_error
    return {
        "error": round(outcome.error, 4),
        "seconds": round(outcome.seconds, 3),
        "samples_per_second": round(outcome.samples_per_second, 1),
        "latency_ms": {str(q): round(value, 3) for q, value in outcome.latency_ms.items()},
        "wrong": count_wrong(outcome.wrong),
        "per_class_error": [_short(by_class.get(k)) for k in range(max(by_class, default=-1) + 1)],
        "predictions_sha256": hashlib.sha256(predictions).hexdigest()[:16],
        "counters": run.counters,
    }


def _short(value: float | None) -> float | None:
    """Round a percentage to two digits; a whole number becomes an int."""
    return None if value is None else int(value) if value == int(value) else round(value, 2)
