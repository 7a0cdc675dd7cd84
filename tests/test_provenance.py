import json
import subprocess
from datetime import datetime, timedelta, timezone

import torch

import note_tta
from note_tta import provenance as module
from note_tta.provenance import provenance


def test_provenance_is_plain_and_true():
    facts = provenance()
    json.dumps(facts, allow_nan=False)
    assert facts["version"] == note_tta.__version__
    assert facts["torch"] == torch.__version__
    assert facts["threads"] == torch.get_num_threads()
    age = datetime.now(timezone.utc) - datetime.fromisoformat(facts["time"])
    assert timedelta(seconds=-1) <= age < timedelta(minutes=5)


def test_commit_is_that_of_the_own_tree_only(tmp_path, monkeypatch):
    """A copy installed under somebody's repository must not report that repository's commit."""

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True)

    package = tmp_path / "note_tta"
    package.mkdir()
    (package / "code.py").write_text("x = 1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    monkeypatch.setattr(module, "_PACKAGE", package)
    facts = provenance()
    assert len(facts["commit"]) == 40
    assert facts["dirty"] is False
    (package / "code.py").write_text("x = 2\n")
    assert provenance()["dirty"] is True

    installed = tmp_path / "venv" / "note_tta"
    installed.mkdir(parents=True)
    monkeypatch.setattr(module, "_PACKAGE", installed)
    facts = provenance()
    assert facts["commit"] is None
    assert facts["dirty"] is None


def test_no_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert provenance()["commit"] is None
