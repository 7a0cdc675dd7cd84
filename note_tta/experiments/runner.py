"""From an experiment to results: which cells there are, which are still to do, and doing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..checkpoint import weights_fingerprint
from ..data import DATASETS, MissingData, open_dataset
from .catalog import Experiment
from .cell import Cell, Job, options
from .process_pool import ProcessPool, available_cores
from .schedule import Backend, Tally, schedule
from .source_models import find_checkpoint
from .store import Store
from .worker import Settings

__all__ = ["Plan", "make_backend", "plan", "run_cells"]


@dataclass(frozen=True)
class Plan:
    """The cells of an experiment, and what was left out because its data is not there."""

    cells: list[Job]
    missing: list[str]


def plan(
    experiment: Experiment,
    settings: Settings,
    *,
    datasets: Sequence[str] = (),
    seeds: Sequence[int] = (0, 1, 2),
    domains: Sequence[str] = (),
    rows: Sequence[str] = (),
    streams: Sequence[str] = (),
    samples: int | None = None,
    model: str | None = None,
    width: int | None = None,
    data_options: dict[str, Any] | None = None,
) -> Plan:
    """List an experiment's cells on the data that is there.

    Args:
        experiment: A table or figure.
        settings: Where the data is.
        datasets: Only these of the experiment's datasets; where none is named, those whose data is there.
        seeds: One run of everything per seed.
        domains: Only these domains; all where none is named.
        rows: Only these rows; all where none is named.
        streams: Only these streams, `correlated` or `iid`; all where none is named.
        samples: Only the first so many samples of each domain.
        model: Another backbone than the paper's.
        width: Another width than the published one.
        data_options: Keywords of the dataset.

    Raises:
        ValueError: A dataset, domain or row is not part of the experiment.
        MissingData: A dataset that was named, or every one, is not in the data root.
    """
    for name in datasets:
        if name not in experiment.datasets:
            raise ValueError(f"{experiment.id} is about {', '.join(experiment.datasets)}, not {name}")
    known = (*experiment.rows, *experiment.more)
    for name in rows:
        if name not in known:
            raise ValueError(f"{experiment.id} has no row {name!r}; it has {', '.join(known)}")
    for name in streams:
        if name not in ("correlated", "iid"):
            raise ValueError(f"unknown stream {name!r}; a table has correlated and iid ones")
    cells: list[Job] = []
    missing: list[str] = []
    for name in datasets or experiment.datasets:
        try:
            targets = open_dataset(name, settings.data_root, **(data_options or {})).targets
        except MissingData as error:
            if datasets:
                raise
            missing.append(str(error))
            continue
        fixed = {
            "model": model or DATASETS[name].network,
            "width": width,
            "samples": samples,
            "data_options": options(data_options),
        }
        chosen = _chosen(name, targets, domains, experiment)
        cells += experiment.cells(name, chosen, seeds, rows or known, streams or None, **fixed)
    if not cells:
        raise FileNotFoundError(missing[0] if missing else f"{experiment.id}: nothing to run")
    return Plan(list(dict.fromkeys(cells)), missing)


def run_cells(
    cells: Sequence[Job],
    store: Store,
    settings: Settings,
    backend: Callable[[], Backend],
    report: Callable[[str], None],
    on_saved: Callable[[], None] = lambda: None,
    *,
    again: bool = False,
) -> Tally:
    """Run the cells that have no result yet and save each as it comes.

    A cell is done where its result is in the store and was computed from the checkpoint that is there now.
    Cells start in an order that lets a worker keep its data and models.

    Args:
        cells: What to run.
        store: Where results are and go.
        settings: Where data and models are.
        backend: Makes the workers; called only where something is to do.
        report: Called with a line for a person now and then.
        on_saved: Called after each result.
        again: Run all of them, also those that have a result.

    Raises:
        FileNotFoundError: A source model is not there; nothing has been run then.
    """
    digests: dict[Any, str] = {}
    waiting = [cell for cell in cells if again or not _is_done(cell, store, settings, digests)]
    for cell in waiting:
        if isinstance(cell, Cell) and ":" not in cell.model:
            find_checkpoint(cell, settings.models_folder)
    report(f"{len(cells)} cells, {len(cells) - len(waiting)} done before, {len(waiting)} to run")
    if not waiting:
        return Tally()

    def save(record: Any) -> None:
        store.save(record)
        on_saved()

    waiting.sort(key=_neighbourhood)
    return schedule(waiting, backend(), save, report)


def make_backend(settings: Settings, workers: int | None = None, ray: str | None = None) -> Backend:
    """The local pool, or Ray at an address; one worker per core where no number is given."""
    if ray is None:
        return ProcessPool(workers or available_cores(), settings)
    from .ray_pool import LOCAL, RayPool

    return RayPool(workers or (available_cores() if ray == LOCAL else None), settings, ray)


def _chosen(
    dataset: str, targets: Sequence[str], domains: Sequence[str], experiment: Experiment
) -> Sequence[str]:
    if not domains:
        return targets
    for name in domains:
        if name not in targets:
            raise ValueError(
                f"{dataset} has no domain {name!r} for {experiment.id}; it has {', '.join(targets)}"
            )
    return [name for name in targets if name in domains]


def _neighbourhood(job: Job) -> Any:
    stream = job.stream if isinstance(job, Cell) else job
    return stream.dataset, stream.data_options, stream.domain, stream.seed


def _is_done(cell: Job, store: Store, settings: Settings, digests: dict[Any, str]) -> bool:
    if cell not in store:
        return False
    if not isinstance(cell, Cell):
        return True
    record = store.load(cell)
    try:
        path = find_checkpoint(cell, settings.models_folder)
    except FileNotFoundError:
        return True
    if path not in digests:
        digests[path] = weights_fingerprint(path)
    then = record.provenance.get("checkpoint", {}).get("fingerprint")
    return then is None or bool(then == digests[path])
