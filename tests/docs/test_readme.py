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


def test_the_demonstration_is_as_soon_there_as_was_measured(tool, root):
    table, page = tool("readme_table"), (root / "README.md").read_text(encoding="utf-8")
    assert table.fill(page, tool("live_tables").demo_line(), *table.DEMO) == page, "run `make figures`"


def test_the_picture_shows_the_errors_of_the_example(tool, root):
    code = tool("code_blocks")
    picture = (root / "docs" / "pictures" / "drift.svg").read_text(encoding="utf-8")
    for name in ("README.md", "docs/index.md"):
        first = code.find_blocks((root / name).read_text(encoding="utf-8"))[0]
        errors = [line.split()[-3] for line in first.output.splitlines()]
        assert len(errors) == 4
        assert [error for error in errors if f" {error} %" not in picture] == [], "run `make figures`"


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
    Store(folder).save(Record(cell, {"error": error, "samples": 10, "mean_run_length": 7.0}, {}))


def test_the_table_marks_the_lowest_and_the_worse_and_names_the_runs(tool, tmp_path):
    for seed in (0, 1):
        save(tmp_path, "source", 50.0, seed=seed)
        save(tmp_path, "tent", 70.0 + 2 * seed, seed=seed)
        save(tmp_path, "note", 30.0, norm="iabn", seed=seed)
        save(tmp_path, "note+filter", 5.0, norm="iabn", seed=seed)
    save(tmp_path, "source", 50.0, stream="iid")
    save(tmp_path, "source", 9.0, dataset="hapt", domain="user22", stream="chronological")
    lines = tool("readme_table").table(tmp_path, "elsewhere.md").splitlines()
    assert lines[0] == "| Method | CIFAR10-C<br>images<br>runs of 7 | HAPT<br>phone sensors<br>runs of 7 |"
    assert lines[2:6] == [
        "| Source | 50.0 ± 0.0 | **9.0** |",
        "| TENT | 71.0 ± 1.0 ▲ | – |",
        "| NOTE | 30.0 ± 0.0 | – |",
        "| NOTE + filter (ours) | **5.0 ± 0.0** | – |",
    ]
    assert len(lines) == 8
    assert lines[7].endswith("NOTE alone is not the best method on any of them. [All results](elsewhere.md).")


def test_the_table_names_the_datasets_on_which_note_is_not_the_best(tool, tmp_path):
    save(tmp_path, "source", 50.0)
    save(tmp_path, "note", 30.0, norm="iabn")
    save(tmp_path, "source", 9.0, dataset="hapt", domain="user22", stream="chronological")
    legend = tool("readme_table").table(tmp_path).splitlines()[-1]
    assert "NOTE alone is not the best method on HAPT. " in legend


def test_a_row_that_covers_less_than_source_is_left_out(tool, tmp_path):
    save(tmp_path, "source", 50.0)
    save(tmp_path, "source", 50.0, domain="frost")
    save(tmp_path, "note", 40.0, norm="iabn")
    save(tmp_path, "tent", 40.0, samples=5)
    lines = tool("readme_table").table(tmp_path).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:-2]] == ["| Source"]


def test_rows_are_compared_over_the_seeds_that_all_have(tool, tmp_path):
    save(tmp_path, "source", 50.0)
    save(tmp_path, "source", 30.0, seed=1)
    save(tmp_path, "tent", 60.0)
    text = tool("readme_table").table(tmp_path)
    assert "| Source | **50.0** |" in text
    assert "| TENT | 60.0" in text


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
