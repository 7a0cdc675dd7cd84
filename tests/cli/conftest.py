"""The command line, called in this process."""

import sys

import pytest

from note_tta.cli import main
from note_tta.experiments import runner
from note_tta.experiments.schedule import Failure
from note_tta.experiments.worker import Worker


class Here:
    """A backend in this process."""

    lanes = 1

    def __init__(self, settings, workers=None, ray=None):
        self.worker = Worker(settings)

    def submit(self, lane, cell):
        self.cell = cell

    def wait(self):
        try:
            return 0, self.worker.run(self.cell)
        except (ValueError, OSError) as error:
            return 0, Failure(str(error))

    def close(self):
        pass


@pytest.fixture
def program(monkeypatch, tmp_path):
    """Run `note-tta` with these words in an empty folder; its exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "make_backend", Here)
    monkeypatch.setenv("NOTE_TTA_DATA", str(tmp_path / "data"))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["note-tta", *map(str, arguments)])
        try:
            main()
        except SystemExit as stop:
            return stop.code or 0
        return 0

    return run
