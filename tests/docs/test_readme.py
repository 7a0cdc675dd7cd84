"""The README's table is what its generator makes of the results, and its links lead somewhere."""

import re

import pytest

from note_tta.experiments.cell import Cell, Stream
from note_tta.experiments.store import Record, Store


def test_the_table_is_that_of_the_results(tool, root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    table = tool("readme_table")
    assert table.fill(readme, table.table(tool("published").RESULTS)) == readme, "run `make figures`"


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


def test_the_table_has_ours_beside_the_papers(tool, tmp_path):
    for seed in (0, 1):
        save(tmp_path, "source", 50.0, seed=seed)
        save(tmp_path, "bn_stats", 70.0 + 2 * seed, seed=seed)
        save(tmp_path, "note", 30.0, norm="iabn", seed=seed)
    save(tmp_path, "source", 50.0, stream="iid")
    save(tmp_path, "source", 9.0, dataset="hapt", domain="user22", stream="chronological")
    lines = tool("readme_table").table(tmp_path).splitlines()
    assert lines[0] == "| Method | CIFAR10-C<br>correlated | CIFAR10-C<br>i.i.d. | HAPT<br>real stream |"
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:5]] for line in lines[2:11]
    }
    assert rows["Source"] == ["50.0 ± 0.0 (42.3)", "**50.0** (42.3)", "**9.0**"]
    assert rows["BN Stats"][0] == "71.0 ± 1.0 ▲ (73.4)"
    assert rows["NOTE"] == ["**30.0 ± 0.0** (21.1)", "–", "–"]
    assert rows[r"NOTE\*"] == ["–", "–", "–"]
    fog = "1 of 15 domains (Fog)"
    assert f"resnet20, correlated {fog}, seeds 0, 1, i.i.d. {fog}, seed 0; HAPT" in lines[-1]


def test_a_row_that_covers_less_is_marked(tool, tmp_path):
    save(tmp_path, "source", 50.0)
    save(tmp_path, "cotta", 40.0, samples=5)
    lines = tool("readme_table").table(tmp_path).splitlines()
    assert "| 40.0° (75.5) |" in lines[8]
    assert "° over less than its column's Source" in lines[-1]


def test_a_row_that_covers_less_is_held_against_source_over_the_same(tool, tmp_path):
    for domain, error in (("fog", 60.0), ("frost", 20.0)):
        save(tmp_path, "source", error, domain=domain)
        save(tmp_path, "note", 30.0, norm="iabn", domain=domain)
    save(tmp_path, "cotta", 55.0)
    save(tmp_path, "pl", 10.0, domain="frost")
    rows = {line.split(" | ")[0]: line for line in tool("readme_table").table(tmp_path).splitlines()}
    assert rows["| CoTTA"].startswith("| CoTTA | 55.0° (")
    assert rows["| PL"].startswith("| PL | 10.0° (")
    assert rows["| NOTE"].startswith("| NOTE | **30.0** (")


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
