"""The API reference is complete: a public name without documentation fails here."""

import importlib
import inspect
import re

import pytest

import note_tta as tta

MODULES = ["nn", "data", "models", "streams", "train"]
CONSTANTS = {
    "AUTHORS_INPUT",
    "DATASETS",
    "METHODS",
    "MODELS",
    "NORMS",
    "PROTOCOLS",
    "__version__",
}


@pytest.fixture(scope="module")
def reference():
    from pathlib import Path

    folder = Path(__file__).resolve().parents[2] / "docs" / "api"
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md")))
    entries = "\n".join(f"::: note_tta.{kind.__name__}" for kind in tta.METHODS.values())
    assert text.count("<!-- method entries -->") == 1
    return text.replace("<!-- method entries -->", entries)


def names():
    found = [("", name) for name in tta.__all__]
    for module in MODULES:
        found += [(module, name) for name in importlib.import_module(f"note_tta.{module}").__all__]
    return found


@pytest.mark.parametrize(("module", "name"), names())
def test_the_reference_has_every_public_name(reference, module, name):
    home = importlib.import_module(f"note_tta.{module}" if module else "note_tta")
    value = getattr(home, name)
    if name in CONSTANTS or inspect.ismodule(value):
        path = f"note_tta.{module}.{name}" if module else f"note_tta.{name}"
        assert re.search(rf"`({re.escape(path)}|{re.escape(name)})`", reference), f"{path} is not documented"
        return
    entries = [entry.rpartition(".") for entry in re.findall(r"^::: (\S+)$", reference, re.MULTILINE)]
    documented = [getattr(importlib.import_module(where), own) for where, _, own in entries]
    assert any(value is entry for entry in documented), f"no `:::` line for {name}"
    assert inspect.getdoc(value), f"{name} has no docstring"


def _home(value):
    return value.fget.__module__ if isinstance(value, property) else value.__module__


@pytest.mark.parametrize("name", [name for name in tta.__all__ if inspect.isclass(getattr(tta, name))])
def test_public_methods_of_public_classes_have_docstrings(name):
    members = inspect.getmembers(
        getattr(tta, name), lambda v: inspect.isfunction(v) or isinstance(v, property)
    )
    undocumented = [
        member
        for member, value in members
        if not member.startswith("_") and _home(value).startswith("note_tta") and not inspect.getdoc(value)
    ]
    assert undocumented == []


@pytest.mark.parametrize("name", ["iid", "dirichlet", "sorted", "chronological", "mean_run_length"])
def test_the_reference_has_every_stream(reference, name):
    assert f"::: note_tta.streams.{name}\n" in reference


@pytest.mark.slow
def test_the_built_reference_shows_every_public_name(site):
    built = "".join(path.read_text(encoding="utf-8") for path in (site / "api").rglob("index.html"))
    wanted = [
        f"note_tta.{name}"
        for name in tta.__all__
        if name not in CONSTANTS and not inspect.ismodule(getattr(tta, name))
    ]
    assert [name for name in wanted if f'id="{name}"' not in built] == []
