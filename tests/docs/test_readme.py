"""The README's table is what its generator makes of the results, and its links lead somewhere."""

import re

import pytest

from note_tta.experiments.cell import Cell, Stream
from note_tta.experiments.store import Record, Store


def test_the_table_is_that_of_the_results(tool, root):
    table = tool("readme_table")
    for name, link in table.PAGES.items():
        page = (root / name).read_text(encoding="utf-8")
        assert table.fill(page, table.table(tool("published").RESULTS, link)) == page, "run `make figures`"


def save(
    folder,
    method,
    error,
    *,
    stream="dirichlet",
    norm="bn",
    domain="fog",
    seed=0,
    dataset="cifar10",
    samples=None,
):
    delta = 0.1 if stream == "dirichlet" else None
    cell = Cell(
        Stream(dataset, domain, stream, delta, seed, samples),
        method,
        norm=norm,
        model="sensor_cnn4" if dataset == "hapt" else "resnet20",
    )
    Store(folder).save(Record(cell, {"error": error, "samples": 10}, {}))


def test_the_table_marks_the_lowest_and_the_worse_and_says_where_note_is_not_best(tool, tmp_path):
    for seed in (0, 1):
        save(tmp_path, "source", 50.0, seed=seed)
        save(tmp_path, "bn_stats", 70.0 + 2 * seed, seed=seed)
        save(tmp_path, "note", 30.0, norm="iabn", seed=seed)
    save(tmp_path, "source", 9.0, dataset="hapt", domain="user22", stream="chronological")
    save(tmp_path, "lame", 8.0, dataset="hapt", domain="user22", stream="chronological")
    lines = tool("readme_table").table(tmp_path, "elsewhere.md").splitlines()
    assert lines[0] == "| Method | CIFAR10-C<br>images in runs of one class | HAPT<br>a real stream |"
    rows = {line.split(" | ")[0]: line for line in lines}
    assert rows["| Source"] == "| Source | 50.0 ± 0.0 | 9.0 |"
    assert rows["| BN Stats"] == "| BN Stats | 71.0 ± 1.0 ▲ | – |"
    assert rows["| NOTE"] == "| NOTE | **30.0 ± 0.0** | – |"
    assert rows["| LAME"] == "| LAME | – | **8.0** |"
    assert "(elsewhere.md)" in lines[-5]
    assert lines[-3] == "NOTE is not the best everywhere: LAME has 8.0 on HAPT (a real stream)."
    assert "resnet20, 1 of 15 domains (Fog), seeds 0, 1; HAPT" in lines[-1]


def test_a_row_that_covers_less_is_left_out(tool, tmp_path):
    save(tmp_path, "source", 50.0)
    save(tmp_path, "tent", 40.0, samples=5)
    text = tool("readme_table").table(tmp_path)
    assert "| Source | **50.0** |" in text and "TENT" not in text


def test_without_results_a_sentence_stands_in_the_tables_place(tool, tmp_path):
    assert tool("readme_table").table(tmp_path / "none").startswith("No results are committed yet")


def test_a_readme_without_markers_is_refused(tool):
    with pytest.raises(ValueError, match="must have the markers"):
        tool("readme_table").fill("# Nothing", "table")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_to_files_lead_somewhere(root, name):
    text = (root / name).read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    missing = [target for target in targets if not (root / target.partition("#")[0]).exists()]
    assert [target for target in missing if target != "docs/results.md"] == []
