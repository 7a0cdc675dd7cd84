"""Every dataset says what it is once, and everything reads it there."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from note_tta import cli
from note_tta.data import DATASETS, find_dataset, open_dataset
from note_tta.data.prepare import prepare
from note_tta.models import MODELS


@pytest.mark.parametrize("record", DATASETS.values(), ids=lambda record: record.name)
def test_a_record_is_whole(record):
    assert DATASETS[record.name] is record
    assert record.network in MODELS
    assert record.targets
    assert record.classes > 1
    assert record.stream in ("dirichlet", "sorted", "chronological")


def test_an_opened_dataset_is_what_its_record_says():
    record, dataset = DATASETS["digits"], open_dataset("digits")
    assert (dataset.name, dataset.title, dataset.stream) == (record.name, record.title, record.stream)
    assert dataset.targets == record.targets
    assert len(dataset.classes) == record.classes


def test_names_and_options_that_are_not_there():
    with pytest.raises(ValueError, match="unknown dataset 'svhn'; known are cifar10, cifar100"):
        find_dataset("svhn")
    with pytest.raises(TypeError, match="dataset digits does not take severity; its options are: seed"):
        open_dataset("digits", severity=3)
    with pytest.raises(TypeError, match="dataset harth does not take seed; its options are: none"):
        open_dataset("harth", seed=3)


@pytest.fixture
def letters(monkeypatch):
    """A dataset of one's own: one record in the registry, and nothing else."""
    record = replace(
        DATASETS["digits"],
        name="letters",
        title="Letters",
        note="made for a test",
        prepares=lambda root, wanted: root / "letters-C",
    )
    monkeypatch.setitem(DATASETS, record.name, record)
    return record


def test_a_new_dataset_is_one_record(letters, tmp_path):
    assert len(open_dataset("letters").domain("style")) == 2400
    assert all(check.ok for check in DATASETS["letters"].verify(tmp_path))
    assert prepare("letters", tmp_path) == tmp_path / "letters-C"
    listed = CliRunner().invoke(cli.app, ["data", "list"]).output
    assert "letters       downloads nothing; its targets can be regenerated" in listed
    assert "made for a test" in listed
    status = CliRunner().invoke(cli.app, ["data", "status", "--data-root", str(tmp_path)]).output
    assert "yes letters       3 of 3 target domains (embedded)" in status


def test_a_new_dataset_can_be_trained_on(letters, tmp_path):
    out = tmp_path / "letters.safetensors"
    command = "train --dataset letters --width 2 --epochs 1 --samples 64 --out"
    result = CliRunner().invoke(cli.app, [*command.split(), str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    assert out.is_file()


def test_every_option_is_on_the_page_that_tells_of_them():
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    for record in DATASETS.values():
        for option in record.options:
            line = next((line for line in page.splitlines() if line.startswith(f"| `{option}=")), "")
            assert record.name in line, f"{option} of {record.name} is not on the page"
