import re
from dataclasses import replace

import pytest

from note_tta.experiments.store import Store
from note_tta.report.build import build_report


@pytest.fixture(scope="module")
def folder(fakes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    store = Store(folder)
    for record in fakes.records(
        "table1", "table-source", "figure2", "figure4", "figure-realtime", seeds=(0,)
    ):
        store.save(record)
    return folder


@pytest.fixture(scope="module")
def built(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    build_report(folder, out)
    return out


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.mark.slow
def test_a_report_rebuilds_byte_for_byte(folder, built, tmp_path):
    written = build_report(folder, tmp_path)
    first = contents(built)
    assert first == contents(tmp_path)
    assert len(first) == len(written)
    assert {str(path) for path in first} >= {
        *("index.html", "results.md", "details-cifar10.md", "tables.tex", "figures/figure2.svg")
    }


def test_the_document_has_claims_tables_figures_orders_and_origin(built):
    text = (built / "details-cifar10.md").read_text()
    for heading in (
        "## The paper's claims",
        "### Table 1",
        "## The order of the methods",
        "## Source models",
    ):
        assert heading in text
    assert "(i) *held*: Source" in text
    assert "![Figure 2" in text
    assert "cifar10-resnet18-bn-seed0.safetensors | `sha256:2` | 8.27 %" in text
    assert "Commits: c0ffee" in text


def test_a_person_s_notes_are_taken_in(fakes, tmp_path):
    store = Store(tmp_path / "results")
    for record in fakes.records("table2", datasets=["kitti"], seeds=(0,)):
        store.save(record)
    (tmp_path / "results" / "notes.md").write_text("## Why KITTI differs\n\nThe rain is ours.\n")
    build_report(store.folder, tmp_path / "out")
    assert "## Why KITTI differs\n\nThe rain is ours." in (tmp_path / "out" / "results.md").read_text()


def test_the_numbers_of_notes_come_from_the_results(fakes, tmp_path):
    store = Store(tmp_path / "results")
    for cell in fakes.cells("table2", datasets=["kitti"], seeds=(0,), rows=["source", "note"]):
        store.save(fakes.record(cell, 12.34 if cell.method == "source" else 11.0))
    notes = tmp_path / "results" / "notes.md"
    notes.write_text("Source {source@kitti}, NOTE {note@kitti:rain}, runs of {run@kitti}.\n")
    build_report(store.folder, tmp_path / "out")
    assert "Source 12.3, NOTE 11.0, runs of 20.5." in (tmp_path / "out" / "results.md").read_text()
    for missing in ("{tent@kitti}", "{note@kitti:fog}", "{note@kitti/iid}", "{note@hapt}"):
        notes.write_text(missing)
        with pytest.raises(
            ValueError, match=rf"the notes ask for {re.escape(missing)}, and there is no such"
        ):
            build_report(store.folder, tmp_path / "out")


def test_notes_may_name_a_network_and_a_visit(fakes, tmp_path):
    store = Store(tmp_path / "results")
    for model, error in (("resnet20", 40.0), ("vit_tiny", 60.0)):
        for cell in fakes.cells("table1", datasets=["cifar10"], seeds=(0,), rows=["source"], model=model):
            store.save(fakes.record(cell, error))
    (cell,) = fakes.cells(
        "table-recurring", datasets=["cifar10"], seeds=(0,), rows=["rotta"], model="resnet20"
    )
    record = fakes.record(cell)
    record.result["visits"] = {name: [30.0 + i for i in range(20)] for name in record.result["visits"]}
    store.save(record)
    notes = tmp_path / "results" / "notes.md"
    notes.write_text(
        "ViT {source@cifar10.vit_tiny}, RoTTA {rotta@cifar10/recurring:visit1}, "
        "then {rotta@cifar10/recurring:visit20}.\n"
    )
    build_report(store.folder, tmp_path / "out")
    assert "ViT 60.0, RoTTA 30.0, then 49.0." in (tmp_path / "out" / "results.md").read_text()
    for missing in ("{source@cifar10.resnet56}", "{rotta@cifar10/recurring:visit21}"):
        notes.write_text(missing)
        with pytest.raises(ValueError, match="there is no such result"):
            build_report(store.folder, tmp_path / "out")


def test_notes_may_name_an_option_of_the_data(fakes, tmp_path):
    store = Store(tmp_path / "results")
    for data_options, error in (((), 40.0), ((("source_seed", 1),), 60.0)):
        for cell in fakes.cells("table2", datasets=["extrasensory"], seeds=(0,), rows=["source"]):
            job = replace(cell, stream=replace(cell.stream, data_options=data_options))
            store.save(fakes.record(job, error))
    notes = tmp_path / "results" / "notes.md"
    notes.write_text("Usual {source@extrasensory}, drawn {source@extrasensory[source_seed=1]}.\n")
    build_report(store.folder, tmp_path / "out")
    assert "Usual 40.0, drawn 60.0." in (tmp_path / "out" / "results.md").read_text()
    notes.write_text("{source@extrasensory[source_seed=2]}")
    with pytest.raises(ValueError, match="there is no such result"):
        build_report(store.folder, tmp_path / "out")
    notes.write_text("{source@extrasensory(source_seed=1)}")
    with pytest.raises(ValueError, match=r"\(source_seed=1\)\}, which is not of the form \{row@dataset\}"):
        build_report(store.folder, tmp_path / "out")


def test_a_dataset_s_notes_are_on_its_own_page(fakes, tmp_path):
    store = Store(tmp_path / "results")
    for record in fakes.records("table2", datasets=["kitti"], seeds=(0,)):
        store.save(record)
    (store.folder / "notes-kitti.md").write_text("## Findings\n\nRuns of {run@kitti}.\n")
    build_report(store.folder, tmp_path / "out")
    assert "## Findings\n\nRuns of 20.5." in (tmp_path / "out" / "details-kitti.md").read_text()
    assert "Findings" not in (tmp_path / "out" / "results.md").read_text()


def test_a_table_of_one_row_is_not_on_the_overview(fakes, tmp_path):
    store = Store(tmp_path / "results")
    for record in fakes.records("table-options", datasets=["cifar10"], rows=["note"], seeds=(0,)):
        store.save(record)
    build_report(store.folder, tmp_path / "out")
    assert "NOTE's options" not in (tmp_path / "out" / "results.md").read_text()


def test_an_earlier_version_is_shown_under_its_own_name(fakes, folder, tmp_path):
    store = Store(tmp_path / "results")
    for record in fakes.records("table2", datasets=["kitti"], seeds=(0,)):
        record.provenance["version"] = "0.2.0"
        store.save(record)
    build_report(store.folder, tmp_path / "out", archive=folder)
    page = (tmp_path / "out" / "results.md").read_text()
    now, then = page.split("## From the archive of version 0.1.0")
    assert "| CIFAR10-C |" in then and "CIFAR10-C" not in now
    assert "| Source | 12." in now
    assert "**Table 1" not in page
    assert "[KITTI](details-kitti.md)" in now
    assert sorted(path.name for path in (tmp_path / "out").glob("*.md")) == ["details-kitti.md", "results.md"]


def test_your_own_data_share_a_page(fakes, tmp_path):
    from dataclasses import replace

    store = Store(tmp_path / "results")
    (cell,) = fakes.cells("table2", datasets=["kitti"], seeds=(0,), rows=["note"])
    store.save(fakes.record(cell, 13.0))
    store.save(fakes.record(replace(cell, stream=replace(cell.stream, dataset="some/folder")), 12.0))
    build_report(store.folder, tmp_path / "out")
    assert "some/folder" in (tmp_path / "out" / "details-own.md").read_text()
    assert "[Your own data](details-own.md)" in (tmp_path / "out" / "results.md").read_text()


def test_each_dataset_has_a_page_of_its_own(built):
    pages = {path.stem.removeprefix("details-"): path.read_text() for path in built.glob("details-*.md")}
    assert {"cifar10", "imagenet", "kitti"} <= set(pages)
    assert pages["kitti"].startswith("# KITTI in detail") and "CIFAR10-C" not in pages["kitti"]
    assert "KITTI" not in pages["cifar10"]
    overview = (built / "results.md").read_text()
    assert all(f"(details-{name}.md)" in overview for name in pages)


def test_runs_outside_the_experiments_are_told_too(fakes, tmp_path):
    from dataclasses import replace

    store = Store(tmp_path / "results")
    for cell in fakes.cells("table2", datasets=["kitti"], seeds=(0,), rows=["note"]):
        odd = replace(cell, method_options=(("weight_decay", 0.0005),))
        store.save(fakes.record(cell, 13.0))
        store.save(fakes.record(odd, 12.25))
    build_report(store.folder, tmp_path / "out")
    line = "kitti note on resnet50_imagenet (iabn), chronological, weight_decay=0.0005"
    assert f"| {line} | 12.2 | 13.0 | seed 0 |" in (tmp_path / "out" / "details-kitti.md").read_text()
    assert f"<dt>{line}</dt><dd>12.2 %, seed 0</dd>" in (tmp_path / "out" / "index.html").read_text()


def test_every_image_of_the_document_is_there(built):
    pages = "".join(path.read_text() for path in built.glob("*.md"))
    names = re.findall(r"\]\((figures/[^)]+)\)", pages)
    assert len(names) > 4
    assert all((built / name).is_file() for name in names)


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"no results in .*; make some with: note-tta reproduce"):
        build_report(tmp_path, tmp_path / "out")


def test_a_damaged_result_is_named(folder, fakes, tmp_path):
    store = Store(tmp_path)
    (record,) = fakes.records("table2", datasets=["kitti"], seeds=(0,), rows=["note"])
    store.save(record)
    store.path(record.job).write_text("{\n")
    with pytest.raises(ValueError, match=r"kitti-resnet50_imagenet.jsonl, line 1 is a damaged result"):
        build_report(tmp_path, tmp_path / "out")


def test_the_overview_has_a_network_without_batch_norm_only_in_the_table_of_methods(fakes, tmp_path):
    store = Store(tmp_path / "results")
    for record in fakes.records(
        "table1", "table-methods", datasets=["cifar10"], seeds=(0,), model="vit_tiny"
    ):
        store.save(record)
    build_report(store.folder, tmp_path / "out")
    page = (tmp_path / "out" / "results.md").read_text()
    assert "Every method, every dataset: error on correlated streams** · vit_tiny" in page
    assert "Table 1" not in page
    assert "Table 1" in (tmp_path / "out" / "details-cifar10.md").read_text()
