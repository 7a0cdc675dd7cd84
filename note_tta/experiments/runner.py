"""From an experiment to results: list its cells, find those without a result, and run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

from ..checkpoint import weights_fingerprint
from ..data import DATASETS, MissingData, open_dataset
from ..names import check_known
from .cell import Cell, Job, options, unfiltered
from .experiment import Experiment
from .process_pool import ProcessPool, available_cores
from .schedule import Backend, Tally, schedule
from .source_models import find_checkpoint
from .store import Store
from .worker import Settings


class Plan(NamedTuple):
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

    All datasets, domains, rows and streams (`correlated`, `iid`) are used unless some are named. `samples` is how many
    samples of each domain to use, from its start. `model` and `width` replace the published ones.

    Raises:
        ValueError: A dataset, domain or row is not part of the experiment.
        MissingData: A dataset that was named is not in the data root, or none is.
    """
    known = (*experiment.rows, *experiment.more)
    choices = {"dataset": experiment.datasets, "row": known, "stream": ("correlated", "iid")}
    for (what, names), chosen in zip(choices.items(), (datasets, rows, streams), strict=True):
        for name in chosen:
            check_known(what, name, names, of=experiment.id)
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
        backbone = {"model": model or DATASETS[name].network, "width": width}
        fixed = {**backbone, "samples": samples, "data_options": options(data_options)}
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
    on_saved: Callable[[int, int], None] = lambda done, total: None,
    *,
    again: bool = False,
) -> Tally:
    """Run the cells that have no result yet, and save each result at once.

    A cell is done if the store has its result and the checkpoint has not changed since; with `again` none is. Cells
    are sorted so that a worker can keep its data and models. `backend` makes the workers, and is called only if there
    is something to run; `report` is called with messages for the user, `on_saved` after each result
    with the number of results so far and of all.

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

    numbers = count(1)

    def save(record: Any) -> None:
        store.save(record)
        on_saved(next(numbers), len(waiting))

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
    place = stream.dataset, stream.data_options, stream.domain, stream.seed
    return (*place, str(unfiltered(job)), str(job))


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
