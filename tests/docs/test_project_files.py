"""The citation file is valid and cites the paper; versions agree; issue templates have what forms need."""

import re

import pytest
import tomllib

import note_tta


@pytest.fixture
def citation(root):
    return (root / "CITATION.cff").read_text(encoding="utf-8")


def test_the_citation_file_is_valid(citation):
    cffconvert = pytest.importorskip("cffconvert", reason="the docs extra is not installed")
    checked = cffconvert.Citation(citation)
    checked.validate()
    assert "Gong" in checked.as_bibtex() or "note-tta" in checked.as_bibtex()


def test_the_citation_file_cites_the_paper(citation):
    authors = re.findall(r"family-names: (\w+)", citation)
    assert authors == ["Gong", "Jeong", "Kim", "Kim", "Shin", "Lee"]
    assert "NOTE: Robust Continual Test-time Adaptation Against Temporal Correlation" in citation
    assert "year: 2022" in citation


def test_citation_changelog_and_package_are_of_one_version(citation, root):
    assert f"version: {note_tta.__version__}\n" in citation
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    latest = re.search(r"^## \[(\d\S+)\] - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)
    assert latest and latest[1] == note_tta.__version__
    assert f'date-released: "{latest[2]}"' in citation


def test_the_licence_is_the_one_that_is_declared(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "MIT" and (root / "LICENSE").read_text().startswith("MIT License")


def test_issue_templates_are_forms(root):
    yaml = pytest.importorskip("yaml", reason="the docs extra is not installed")
    forms = [p for p in (root / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if p.name != "config.yml"]
    assert len(forms) == 3
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert form["name"] and form["description"]
        for field in form["body"]:
            assert field["type"] in {"textarea", "input", "markdown", "dropdown", "checkboxes"}
            assert field["attributes"]["label"]
