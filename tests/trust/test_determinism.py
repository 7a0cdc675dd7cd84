"""The same seed and thread count give the same result, whatever the runs, workers and resume points."""

import pytest
import torch
from networks import images, make

import note_tta as tta
from benchmarks.trust.common import MODELS
from benchmarks.trust.jobs import TIMINGS
from note_tta.experiments.cell import Cell, Stream, options
from note_tta.experiments.process_pool import ProcessPool
from note_tta.experiments.runner import run_cells
from note_tta.experiments.store import Store
from note_tta.experiments.worker import Settings, Worker

SETTINGS = Settings(models=str(MODELS), threads=1)


def cell(method, samples=96):
    return Cell(
        Stream("digits", "style", "dirichlet", delta=0.1, samples=samples),
        method,
        model="digits_cnn",
        width=8,
        norm="iabn" if method.startswith("note") else "bn",
        method_options=options({"augmentations": 2} if method == "cotta" else {}),
    )


def outcome(record):
    return {key: value for key, value in record.result.items() if key not in TIMINGS}


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(tta.METHODS))
def test_two_runs_of_a_method_give_the_same_result(method):
    first, second = (Worker(SETTINGS).run(cell(method)) for _ in range(2))
    assert outcome(first) == outcome(second) and "predictions_sha256" in first.result


@pytest.mark.slow
def test_worker_counts_and_resume_points_do_not_change_a_result(tmp_path):
    cells = [cell(method) for method in ("note", "onda", "tent", "lame")]
    stores = [Store(tmp_path / name) for name in ("one", "two")]
    for lanes, store in zip((1, 2), stores, strict=True):
        backend = lambda lanes=lanes: ProcessPool(lanes, SETTINGS)  # noqa: E731
        assert run_cells(cells, store, SETTINGS, backend, lambda line: None).done == 4
    one, two = ({record.job: outcome(record) for record in store} for store in stores)
    assert one == two
    path = stores[0].path(cells[1])
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))  # as if stopped before one
    shorter = Store(tmp_path / "one")
    resumed = run_cells(cells, shorter, SETTINGS, lambda: ProcessPool(1, SETTINGS), lambda line: None)
    assert resumed.done == 1
    assert {record.job: outcome(record) for record in shorter} == two


@pytest.mark.parametrize("name", ["source", "onda", "note"])
def test_predictions_do_not_depend_on_the_batch_size(name):
    x = images(300)
    predictions = []
    for size in (1, 7, 64, 300):
        method = make(name)
        predictions.append(torch.cat([method(part).argmax(dim=1) for part in x.split(size)]))
    assert len(predictions[0].unique()) > 1
    assert all(torch.equal(predictions[0], other) for other in predictions[1:])


@pytest.mark.parametrize("name", ["bn_stats", "tent", "pl", "cotta", "lame", "note_iid"])
def test_where_it_cannot_hold_across_batch_sizes_it_does_not(name):
    """The page says so: these methods look at the batch as a whole, and a test keeps the page honest."""
    x = images(64)
    keywords = {"augmentations": 2} if name == "cotta" else {}
    whole = make(name, **keywords)(x)
    method = make(name, **keywords)
    parts = torch.cat([method(part) for part in x.split(16)])
    assert not torch.allclose(whole, parts, rtol=1e-3, atol=1e-3)
