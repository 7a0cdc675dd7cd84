"""The page of guarantees is what the figures say, and every test it names is there."""

import ast
import json
import re
from pathlib import Path

import pytest

from benchmarks.trust.guarantees import PAGE, RESULTS, page
from benchmarks.trust.lowest import lowest, project

TREE = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_figures_say():
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_test_the_page_names_is_there():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page())
    assert len(named) > 25
    for file, function in named:
        tree = ast.parse((TREE / file).read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, function


def test_every_promise_names_a_test_or_a_script():
    promises = re.split(r"\n(?=- )", page())[1:]
    for promise in promises:
        text = promise.split("\n\n")[0]
        assert "`tests/" in text or "`benchmarks/" in text or "pip-audit" in text, text


def test_every_figure_says_where_it_comes_from():
    for path in RESULTS.glob("*.json"):
        assert {"commit", "time", "machine"} <= json.loads(path.read_text())["provenance"].keys(), path


def test_every_dependency_has_a_lower_bound():
    needs, tests, held = project()
    assert "numpy" in " ".join(lowest(needs, held)) and all(
        "==" in pin for pin in lowest(needs + tests, held)
    )
    assert f"torch=={held['torch']}" in lowest(needs, held)
    with pytest.raises(ValueError, match=r"expected name>=version in pyproject\.toml, got 'numpy'"):
        lowest(["numpy"], {})
