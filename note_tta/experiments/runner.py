"""From an experiment to results: list its cells, find those without a result, and run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..checkpoint import weights_fingerprint
from ..data import DATASETS, MissingData, open_dataset
from ..names import check_known
from .cell import Cell, Job, options
from .experiment import Experiment
from .process_pool import ProcessPool, available_cores
from .schedule import Backend, Tally, schedule
from .source_models import find_checkpoint
from .store import Store
from .worker import Settings


@dataclass(frozen=True)
class Plan:
    """The cells of an experiment, and the datasets that were left out because their data is missing."""

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
    """List an experiment's cells on the available data.

    Args:
        experiment: A table or figure.
        settings: Where the data is.
        datasets: Which of the experiment's datasets to use; by default, all whose data is available.
        seeds: Each cell is run once per seed.
        domains: Which domains to use; by default, all.
        rows: Which rows to use; by default, all.
        streams: Which streams to use, `correlated` or `iid`; by default, all.
        samples: How many samples of each domain to use, from its start.
        model: A backbone in place of the paper's.
        width: A width to use instead of the published one.
        data_options: Keywords of the dataset.

    Raises:
        ValueError: A dataset, domain or row is not part of the experiment.
        MissingData: A dataset that was named is not in the data root, or none is.
    """
    known = (*experiment.rows, *experiment.more)
    chosen = {
        "dataset": (datasets, experiment.datasets),
        "row": (rows, known),
        "stream": (streams, ("correlated", "iid")),
    }
    for what, (names, choices) in chosen.items():
        for name in names:
            check_known(what, name, choices, of=experiment.id)
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
        for domain in domains:
            check_known("domain", domain, targets, of=name)
        wanted = [target for target in targets if target in domains or not domains]
        cells += experiment.cells(name, wanted, seeds, rows or known, streams or None, **fixed)
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
    """Run the cells that have no result yet, and save each result at once.

    A cell is done if the store has its result and the checkpoint has not changed since. Cells are sorted so
    that a worker can keep its data and models.

    Args:
        cells: What to run.
        store: Where results are read and saved.
        settings: Where data and models are.
        backend: Makes the workers; called only if there is something to run.
        report: Called with messages for the user.
        on_saved: Called after each result.
        again: Run all cells, including those that have a result.

    Raises:
        FileNotFoundError: A source model is missing. Nothing has been run.
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
    """Make the local pool, or the Ray backend at an address; by default with one worker per core."""
    if ray is None:
        return ProcessPool(workers or available_cores(), settings)
    from .ray_pool import LOCAL, RayPool

    return RayPool(workers or (available_cores() if ray == LOCAL else None), settings, ray)


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
