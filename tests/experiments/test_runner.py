from dataclasses import replace

import pytest

from note_tta.checkpoint import load_checkpoint, save_checkpoint
from note_tta.data import DATASETS, MissingData
from note_tta.experiments.catalog import find
from note_tta.experiments.runner import plan, run_cells
from note_tta.experiments.store import Store


def table2(tiny, **options):
    return plan(find("table2"), tiny.settings, datasets=["kitti"], width=tiny.width, **options)


def run(tiny, cells, store=None):
    lines, backends = [], []

    def backend():
        backends.append(tiny.serial())
        return backends[-1]

    store = store or Store(tiny.folder / "results")
    tally = run_cells(cells, store, tiny.settings, backend, lines.append)
    return tally, lines, [cell for one in backends for cell in one.seen]


def test_done_cells_are_skipped(tiny):
    tiny.save_models("kitti")
    cells = table2(tiny, seeds=[0]).cells
    first, lines, seen = run(tiny, cells)
    assert first.done == len(cells) == len(seen) == 8
    assert lines == ["8 cells, 0 done before, 8 to run"]
    second, lines, seen = run(tiny, cells)
    assert (second.done, seen) == (0, [])
    assert lines == ["8 cells, 8 done before, 0 to run"]


def test_a_stopped_run_goes_on_with_what_is_left(tiny):
    tiny.save_models("kitti")
    cells = table2(tiny, seeds=[0]).cells
    run(tiny, cells[:3])
    _, lines, seen = run(tiny, cells)
    assert lines == ["8 cells, 3 done before, 5 to run"]
    assert set(seen) == set(cells[3:])


def test_a_new_checkpoint_makes_its_cells_new(tiny):
    tiny.save_models("kitti")
    cells = table2(tiny, seeds=[0], rows=["source", "note"]).cells
    run(tiny, cells)
    tiny.save_models("kitti", norms=("iabn",), seeds=(3,))
    models = tiny.folder / "models"
    (models / "kitti-resnet50_imagenet-w4-iabn-seed3.safetensors").replace(
        models / "kitti-resnet50_imagenet-w4-iabn-seed0.safetensors"
    )
    _, _, seen = run(tiny, cells)
    assert {cell.method for cell in seen} == {"note"}


def test_the_same_weights_trained_again_leave_their_cells_done(tiny):
    tiny.save_models("kitti", norms=("iabn",))
    cells = table2(tiny, seeds=[0], rows=["note"]).cells
    run(tiny, cells)
    path = tiny.folder / "models" / "kitti-resnet50_imagenet-w4-iabn-seed0.safetensors"
    before = path.read_bytes()
    network, card = load_checkpoint(path)
    save_checkpoint(path, network, {**card, "seconds": 7.5})
    assert path.read_bytes() != before
    _, _, seen = run(tiny, cells)
    assert seen == []


def test_results_stay_usable_where_the_models_are_gone(tiny):
    tiny.save_models("kitti")
    cells = table2(tiny, seeds=[0], rows=["source"]).cells
    run(tiny, cells)
    for path in (tiny.folder / "models").iterdir():
        path.unlink()
    tally, _, seen = run(tiny, cells)
    assert (tally.done, tally.failed, seen) == (0, [], [])


def test_a_missing_model_stops_before_anything_runs(tiny):
    tiny.save_models("kitti", norms=("bn",))
    with pytest.raises(FileNotFoundError, match="kitti-resnet50_imagenet-w4-iabn-seed0"):
        run(tiny, table2(tiny, seeds=[0]).cells)
    assert len(Store(tiny.folder / "results")) == 0


def test_cells_of_one_domain_run_together(tiny):
    cells = plan(find("table2"), tiny.settings, datasets=["harth"], seeds=[0, 1], width=tiny.width).cells
    tiny.save_models("harth")
    _, _, seen = run(tiny, cells)
    domains = [cell.stream.domain for cell in seen]
    assert domains == sorted(domains)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"datasets": ["hapt"]}, "unknown dataset 'hapt' of table2; known are kitti, harth, extrasensory"),
        ({"rows": ["iabn"]}, "unknown row 'iabn' of table2; known are source, bn_stats"),
        (
            {"datasets": ["harth"], "domains": ["S099"]},
            "unknown domain 'S099' of harth; known are S008, S018",
        ),
    ],
)
def test_what_is_not_part_of_the_experiment_is_told(tiny, options, message):
    with pytest.raises(ValueError, match=message):
        plan(find("table2"), tiny.settings, **options)


def test_missing_data_is_left_out_unless_it_was_asked_for(tiny, monkeypatch):
    def absent(root, **options):
        raise MissingData("KITTI", [root], "note-tta data download kitti")

    monkeypatch.setitem(DATASETS, "kitti", replace(DATASETS["kitti"], opens=absent))
    made = plan(find("table2"), tiny.settings, seeds=[0])
    assert {cell.stream.dataset for cell in made.cells} == {"harth", "extrasensory"}
    assert made.missing[0].startswith("KITTI not found")
    with pytest.raises(MissingData):
        plan(find("table2"), tiny.settings, datasets=["kitti"])
    for name in ("harth", "extrasensory"):
        monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], opens=absent))
    with pytest.raises(FileNotFoundError, match=r"KITTI not found; looked in .*; get it with: note-tta data"):
        plan(find("table2"), tiny.settings)
