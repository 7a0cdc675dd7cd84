import io
import tarfile
import zipfile

import pytest

from note_tta.data import BadData
from note_tta.data import archives as module
from note_tta.data.archives import unpack


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in members.items():
            bundle.writestr(name, content)
    return path


def make_tar(path, members, kind=tarfile.REGTYPE, mode="w:gz"):
    with tarfile.open(path, mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(content), kind, "/etc/passwd"
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_files_land_in_their_places(tmp_path, make):
    archive = make(tmp_path / "archive", {"a/b.txt": b"one", "c.txt": b"two"})
    out = tmp_path / "out"
    written = unpack(archive, out)
    assert sorted(written) == [out / "a" / "b.txt", out / "c.txt"]
    assert (out / "a" / "b.txt").read_bytes() == b"one"
    assert sorted(entry.name for entry in out.iterdir()) == ["a", "c.txt"]


@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..\\evil", "C:/evil"])
def test_paths_that_climb_out_are_refused_whole(tmp_path, make, name):
    archive = make(tmp_path / "archive", {"good.txt": b"x", name: b"x"})
    out = tmp_path / "deep" / "out"
    with pytest.raises(BadData, match=r"archive: .*evil' would be written outside the data folder"):
        unpack(archive, out)
    assert list(out.iterdir()) == []
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    archive = make_tar(tmp_path / "archive", {"link": b""}, kind)
    with pytest.raises(BadData, match="'link' is a link or a device"):
        unpack(archive, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_links_in_a_zip_are_refused(tmp_path):
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "archive", "w") as bundle:
        bundle.writestr(info, "/etc/passwd")
    with pytest.raises(BadData, match="'link' is a link"):
        unpack(tmp_path / "archive", tmp_path / "out")


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_a_truncated_archive_leaves_nothing(tmp_path, make):
    content = bytes(range(256)) * 300
    archive = make(tmp_path / "archive", {"a": content, "b": content[::-1]})
    archive.write_bytes(archive.read_bytes()[:-200])
    out = tmp_path / "out"
    with pytest.raises(BadData, match="archive: truncated or damaged archive"):
        unpack(archive, out)
    assert list(out.iterdir()) == []


def test_a_flipped_byte_is_noticed(tmp_path):
    archive = make_zip(tmp_path / "archive", {"a": b"hello" * 1000})
    damaged = bytearray(archive.read_bytes())
    damaged[40] ^= 0xFF
    archive.write_bytes(damaged)
    with pytest.raises(BadData, match="truncated or damaged archive"):
        unpack(archive, tmp_path / "out")


def test_a_bomb_and_an_empty_archive_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ALLOWANCE", 1000)
    monkeypatch.setattr(module, "EXPANSION", 2)
    archive = make_zip(tmp_path / "bomb", {"zeros": bytes(10**6)})
    with pytest.raises(BadData, match="unpacks to far more than a dataset would"):
        unpack(archive, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(BadData, match="the archive holds no files"):
        unpack(make_tar(tmp_path / "empty", {}), tmp_path / "out")
