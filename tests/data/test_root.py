from pathlib import Path

import pytest

from note_tta.data import open_dataset, resolve_root
from note_tta.data.root import cache_folder


def test_the_argument_wins_then_the_environment_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("NOTE_TTA_DATA", str(tmp_path / "environment"))
    assert resolve_root(tmp_path / "argument") == tmp_path / "argument"
    assert resolve_root() == tmp_path / "environment"
    monkeypatch.setenv("NOTE_TTA_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.platform", "linux")
    assert resolve_root() == tmp_path / "cache" / "note-tta"


@pytest.mark.parametrize(("platform", "part"), [("darwin", "Library"), ("win32", "AppData")])
def test_each_platform_has_its_cache_folder(monkeypatch, platform, part):
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    assert part in cache_folder().parts
    assert cache_folder().name == "note-tta"


def test_a_file_as_root_is_refused(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="must be a folder"):
        resolve_root(file)


def test_home_is_expanded():
    assert resolve_root("~/x") == Path.home() / "x"


@pytest.mark.parametrize(
    "name", ["cifar10", "cifar100", "imagenet", "mnist", "kitti", "harth", "extrasensory", "hapt"]
)
def test_missing_data_says_what_where_and_how(tmp_path, name):
    with pytest.raises(FileNotFoundError) as caught:
        open_dataset(name, tmp_path)
    message = str(caught.value)
    assert "not found; looked in" in message
    assert str(tmp_path) in message
    assert f"note-tta data download {name}" in message


def test_unknown_names_and_options_are_named():
    with pytest.raises(ValueError, match="unknown dataset 'cifar'; known are cifar10"):
        open_dataset("cifar")
    with pytest.raises(TypeError, match="dataset digits does not take severity; its options are: seed"):
        open_dataset("digits", severity=3)
