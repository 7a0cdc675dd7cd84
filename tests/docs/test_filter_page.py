"""The tables of the page on the filter come from the study's file, and every mark on the page is one of them."""

import json
import re

import pytest


@pytest.fixture
def study(tool, tmp_path, monkeypatch):
    rows = [
        {"data": data, "layers": layers, "method": method, "order": order, "streams": 2, "samples": 2000}
        | {
            "run": 30.0,
            "error": 20.5,
            "filtered": 3.25,
            "doubled": 3.5,
            "after shuffled": 4.75,
            "worst": 0.125,
        }
        | {"filter": "start=100 balance=0.5" if data == "cifar100" else "start=100 balance=1.0"}
        for data, layers, method in (
            ("cifar10", "iabn", "note"),
            ("cifar100", "swapped", "source"),
            ("cifar10-2000", "bn", "note warm 10"),
            ("hapt", "iabn", "lame"),
        )
        for order in ("correlated", "shuffled")
    ]
    content = {
        "filter": "start=100 balance=1.0",
        "rows": rows,
        "varied": {"hapt correlated": 7},
        "variants": {"as chosen": {"hapt correlated": 9.5}, "prior 0.02": {"hapt correlated": 9.75}},
        "cost": {"10": 41.2, "1000": 150.4},
    }
    tables = tool("filter_tables")
    monkeypatch.setattr(tables, "STUDY", tmp_path / "filter.json")
    tables.STUDY.write_text(json.dumps(content))
    return tables


def test_gains_show_both_orders(study):
    assert (
        "| CIFAR-10, four extra corruptions | 2,000 | 30.0 | NOTE | 20.50 → 3.25 | 3.50 | 4.75 | 20.50 → 3.25 | +0.12 |"
        in study.gains()
    )
    assert "LAME" not in study.gains()


def test_figures_of_other_settings_are_marked(study):
    text = study.gains()
    assert "| Source | 20.50 → 3.25 † |" in text and "| NOTE | 20.50 → 3.25 |" in text
    assert text.endswith("† Measured with other settings: balance=0.5.")
    rows = [row for row in json.loads(study.STUDY.read_text())["rows"] if row["data"] != "cifar100"]
    study.STUDY.write_text(json.dumps({"filter": "start=100 balance=1.0", "rows": rows}))
    assert "†" not in study.gains()


def test_settings_choices_and_cost_have_their_figures(study):
    assert "| Setting | HAPT, correlated, 7 streams |" in study.variants()
    assert "| prior 0.02 | 9.75 |" in study.variants()
    assert "| BatchNorm | NOTE, warm start 10, filter | 3.25 |" in study.layers()
    assert "| 10 | 41 | 40 |" in study.cost() and "| 1,000 | 150 | 150 |" in study.cost()


def test_every_mark_of_the_page_is_filled_in(root, tool):
    pytest.importorskip("mkdocs", reason="the docs extra is not installed")
    marks = re.findall(r"<!-- .* -->", (root / "docs" / "filter.md").read_text())
    assert len(marks) == 4 and set(marks) <= tool("hooks").TABLES.keys()
    for mark in marks[:3:2]:
        assert tool("hooks").TABLES[mark]().count("\n") >= 3


def test_a_step_that_was_not_run_is_named(study):
    rows = json.loads(study.STUDY.read_text())["rows"]
    study.STUDY.write_text(json.dumps({"filter": "start=100 balance=1.0", "rows": rows}))
    assert (
        "benchmarks.filter_study cost" in study.cost() and "benchmarks.filter_study vary" in study.variants()
    )
