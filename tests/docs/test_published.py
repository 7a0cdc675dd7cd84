"""The commands that the docs give for the published results make all of those results, and no others."""

import json
import re
import subprocess
import sys

import pytest

from note_tta.checkpoint import load_checkpoint, weights_fingerprint
from note_tta.cli import _cells, main
from note_tta.data import DATASETS, Dataset
from note_tta.data.corruptions.names import CORRUPTIONS
from note_tta.experiments import runner, worker
from note_tta.experiments.cell import Cell
from note_tta.experiments.store import Store


class Planned(Exception):
    """The program knows its cells and would run them now."""


def stream_of(job):
    return job.stream if isinstance(job, Cell) else job


@pytest.fixture
def published(tool):
    return {record.job for record in Store(tool("published").RESULTS)}


@pytest.fixture
def cells_of(published, monkeypatch):
    """What a command would run where the data of the published results is."""

    def open_dataset(name, root=None, **options):
        streams = [stream for stream in map(stream_of, published) if stream.dataset == name]
        there = {domain for stream in streams for domain in stream.domain.split("+")}
        targets = [*CORRUPTIONS, *sorted(there - set(CORRUPTIONS))]
        targets = tuple(domain for domain in targets if domain in there)
        return Dataset(
            name, name, ("a", "b"), (3, 8, 8), targets, DATASETS[name].stream, dict.fromkeys(targets)
        )

    def stop(cells, *_, **__):
        raise Planned(cells)

    monkeypatch.setattr(runner, "open_dataset", open_dataset)
    monkeypatch.setattr(worker, "open_dataset", open_dataset)
    monkeypatch.setattr(_cells, "run_and_report", stop)

    def cells(arguments):
        monkeypatch.setattr(sys, "argv", ["note-tta", *arguments])
        with pytest.raises(Planned) as planned:
            main()
        return set(planned.value.args[0])

    return cells


@pytest.fixture
def commands(root, tmp_path):
    """The arguments of every `note-tta` on the page's section, as a shell would pass them."""
    page = (root / "docs" / "reproduce.md").read_text(encoding="utf-8")
    section = page.split("## The published runs")[1].split("\n## ")[0]
    script = "".join(re.findall(r"^```bash\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))
    program = tmp_path / "note-tta"
    program.write_text(f"""#!{sys.executable}
import json, sys
print(json.dumps(sys.argv[1:]))
""")
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-eu", "-c", script], env=path, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_commands_make_the_published_results_and_no_others(commands, cells_of, published):
    made = set()
    for arguments in commands:
        if arguments[0] in ("run", "reproduce"):
            made |= cells_of(arguments)
    assert sorted(cell.describe() for cell in published - made) == []
    assert sorted(cell.describe() for cell in made - published) == []


def test_a_source_model_is_trained_for_every_result(commands, published):
    trained = set()
    for command in (arguments for arguments in commands if arguments[0] == "train"):
        words = [word for word in command[1:] if word != "--from-scratch"]
        given = dict(zip(words[::2], words[1::2], strict=True))
        width = int(given["--width"]) if "--width" in given else None
        trained.add((given["--dataset"], given["--norm"], width, int(given.get("--seed", 0))))
    needed = {
        (cell.stream.dataset, "bn" if cell.norm == "iabn*" else cell.norm, cell.width, cell.stream.seed)
        for cell in published
        if isinstance(cell, Cell)
    }
    assert trained == needed


def test_the_source_models_that_are_said_to_be_in_the_repository_are_there(root, tool):
    there = {weights_fingerprint(path) for path in (root / "checkpoints").glob("*.safetensors")}
    used = {
        record.provenance["checkpoint"]["name"]: record.provenance["checkpoint"]["fingerprint"]
        for record in Store(tool("published").RESULTS)
        if isinstance(record.job, Cell)
        and record.job.stream.dataset in ("cifar10", "cifar100", "mnist", "digits")
    }
    assert used and {name: print for name, print in used.items() if print not in there} == {}


def test_every_source_model_in_the_repository_loads_with_its_card(root):
    for path in sorted((root / "checkpoints").glob("*.safetensors")):
        _, card = load_checkpoint(path)
        norm, seed = path.stem.split("-")[-2:]
        assert (card["architecture"]["norm"], f"seed{card['seed']}") == (norm, seed)
