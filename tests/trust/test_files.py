"""Damaged and crafted files: read or refused by name; never run, never unpacked without bound."""

import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks.trust.fuzz import FORMATS, KINDS, attempt, damage
from note_tta.checkpoint import load_checkpoint, load_state, load_weights
from note_tta.data import BadData, pictures, user_data
from note_tta.data import archives as archive_module
from note_tta.data import tables as table_module
from note_tta.data.archives import unpack
from note_tta.data.base import load_array
from note_tta.data.manifest import Manifest
from note_tta.data.pickles import read_pickled_dict
from note_tta.data.tables import read_columns
from note_tta.data.user_data import open_own
from note_tta.experiments.store import Store

EDITS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.floats(0, 1), st.binary(min_size=1, max_size=64)),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_damaged_file_is_read_or_refused_by_name(form, tmp_path):
    path = form.make(tmp_path)
    whole = path.read_bytes()
    form.read(path)

    @settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(edits=EDITS)
    def check(edits):
        path.write_bytes(damage(whole, edits))
        attempt(form, path)

    check()


class Evil:
    def __reduce__(self):
        return os.system, ("touch pwned",)


def evil_array():
    array = np.empty(1, dtype=object)
    array[0] = Evil()
    return array


def test_no_file_runs_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {"a": Evil()}}, "a.pt")
    np.savez("a.npz", x=evil_array(), y=np.zeros(1, int))
    np.save("a.npy", evil_array())
    (tmp_path / "a.safetensors").write_bytes(pickle.dumps(Evil()))
    method = next(form for form in FORMATS if form.name == "state of a method")
    for read in (
        lambda: load_weights(torch.nn.Linear(1, 1), "a.pt"),
        lambda: method.read(tmp_path / "a.pt"),
        lambda: open_own("a.npz"),
        lambda: load_array(tmp_path / "a.npy", dtype="uint8"),
        lambda: load_checkpoint("a.safetensors"),
        lambda: load_state("a.safetensors", None),
    ):
        with pytest.raises(ValueError, match=r"a\.(pt|npz|npy|safetensors)"):
            read()
    assert not (tmp_path / "pwned").exists()


def npy_header(shape):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return stream.getvalue()


def test_an_npz_that_claims_a_terabyte_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as bundle:
        bundle.writestr("x.npy", npy_header((10**12, 4, 4, 1)))
        bundle.writestr("y.npy", npy_header((3,)) + bytes(3))
    with pytest.raises(BadData, match=r"a\.npz: not a complete npz file"):
        open_own(tmp_path / "a.npz")


def test_a_packed_npz_bomb_is_refused_unopened(tmp_path, monkeypatch):
    monkeypatch.setattr(user_data, "ALLOWANCE", 1000)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((3, 1000, 1000, 1), np.uint8), y=np.zeros(3, int))
    with pytest.raises(BadData, match=r"a\.npz: it unpacks to far more than a dataset would"):
        open_own(tmp_path / "a.npz")


def test_a_picture_of_too_many_pixels_is_refused_undecoded(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "MAX_PIXELS", 99)
    (tmp_path / "cat").mkdir()
    Image.new("L", (10, 10)).save(tmp_path / "cat" / "big.png")
    with pytest.raises(BadData, match=r"big\.png: 10×10 pixels; at most 99 are read"):
        open_own(tmp_path)


def test_a_tar_header_that_would_fill_the_memory_is_refused(tmp_path):
    """A pax header is read into memory whole; packed zeros make one of any size."""
    member = tarfile.TarInfo("pax")
    member.type, member.size = tarfile.XHDTYPE, 2 << 20
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(member.tobuf() + bytes(2 << 20)))
    with pytest.raises(
        BadData, match=r"a\.tar\.gz: truncated or damaged archive \(.*header of 2,097,152 bytes"
    ):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")


def test_long_names_in_a_tar_are_still_read(tmp_path):
    name = "/".join(["folder" * 10] * 4) + "/file"
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        with tarfile.open(tmp_path / "a.tar", "w", format=form) as bundle:
            member = tarfile.TarInfo(name)
            member.size = 3
            bundle.addfile(member, io.BytesIO(b"abc"))
        assert [path.read_bytes() for path in unpack(tmp_path / "a.tar", tmp_path / "out")] == [b"abc"]


def test_a_million_empty_files_are_a_bomb_too(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_module, "ALLOWANCE", 5000)
    monkeypatch.setattr(archive_module, "EXPANSION", 0)
    with tarfile.open(tmp_path / "a.tar", "w") as bundle:
        for number in range(20):
            bundle.addfile(tarfile.TarInfo(f"{number}"))
        member = tarfile.TarInfo("last")
        member.size = 1
        bundle.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(BadData, match="unpacks to far more than a dataset would"):
        unpack(tmp_path / "a.tar", tmp_path / "out")


def test_a_full_disk_is_not_called_a_damaged_archive(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as bundle:
        bundle.writestr("a", b"text")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive_module, "_copy", full)
    with pytest.raises(OSError, match="No space left") as caught:
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert not isinstance(caught.value, BadData)


def test_a_packed_table_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(table_module, "MOST_ROWS", 1000)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"x\n" + b"1\n" * 5000))
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"x\n" + b"1" * (1 << 21)))
    for name in ("a.csv.gz", "b.csv.gz"):
        with pytest.raises(BadData, match=name):
            read_columns(tmp_path / name, ["x"])


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"schema": ' + "9" * 5000 + "}", "\x00", '{"schema": 1e999}']
)
def test_json_that_no_parser_likes_is_refused_by_name(tmp_path, text):
    for name, read in (
        ("cifar10-resnet20.jsonl", lambda path: list(Store(path.parent))),
        ("manifest.json", lambda path: Manifest.read(path.parent, "cifar")),
    ):
        (tmp_path / name).write_text(f"{text}\n")
        with pytest.raises(ValueError, match=name):
            read(tmp_path / name)


def test_a_result_of_absurd_numbers_is_refused(tmp_path):
    form = next(form for form in FORMATS if form.name == "results (json lines)")
    path = form.make(tmp_path)
    content = json.loads(path.read_text())
    for value in (float("nan"), float("inf"), -1, "21", None, True, []):
        content["result"]["error"] = value
        path.write_text(json.dumps(content) + "\n")
        with pytest.raises(ValueError, match=r"resnet20\.jsonl, line 1 is a damaged result: its error is"):
            list(Store(path.parent))


def test_a_crafted_type_of_array_never_reaches_numpy(tmp_path):
    """Its flags would make numpy take the file's bytes for pointers: the process died of it."""

    class Typed:
        def __init__(self, state, code="u1"):
            self.state, self.code = state, code

        def __reduce__(self):
            return np.dtype, (self.code, False, True), self.state

    class Array:
        def __init__(self, kind):
            self.kind = kind

        def __reduce__(self):
            rebuild, arguments, _ = np.zeros(0).__reduce__()
            return rebuild, arguments, (1, (2,), self.kind, False, b"\x01" * 2)

    plain = (3, "|", None, None, None, -1, -1, 0)
    path = tmp_path / "test_batch"
    flags_of_objects = Typed((3, "|", None, None, None, -1, -1, 63))
    path.write_bytes(pickle.dumps({b"data": Array(flags_of_objects)}, protocol=2))
    assert read_pickled_dict(path)["data"].tolist() == [1, 1]
    of_records = Typed((3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 27))
    for kind in (of_records, Typed(plain, "O8"), Typed(plain, "V8"), Typed(plain, "i4")):
        path.write_bytes(pickle.dumps({b"data": Array(kind), b"labels": [1]}, protocol=2))
        with pytest.raises(BadData, match="test_batch: not a readable batch of plain arrays"):
            read_pickled_dict(path)
    path.write_bytes(pickle.dumps({b"data": Array("u1")}, protocol=2))
    with pytest.raises(BadData, match="rebuilt from a type and its bytes"):
        read_pickled_dict(path)


def test_arrays_of_bytes_come_out_as_they_went_in(tmp_path):
    array = np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
    for protocol in (0, 2, 4):
        (tmp_path / "batch").write_bytes(pickle.dumps({b"a": array, b"b": array.T}, protocol=protocol))
        read = read_pickled_dict(tmp_path / "batch")
        assert np.array_equal(read["a"], array) and read["a"].dtype == array.dtype
        assert np.array_equal(read["b"], array.T)


def laughs(depth):
    """A tuple of the same tuple twice, and so on: its hash takes two to the power of `depth` steps."""
    return b"\x80\x02})q\x00" + b"".join(b"h%c\x86q%c" % (n, n + 1) for n in range(depth)) + b"K\x01s."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02}r\xff\xff\xff\x7f.", "its memo is not filled in order"),
        (laughs(60), "tuples of tuples of tuples without end"),
        (b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"K\x01s.", "tuples of tuples of tuples without end"),
        (b"\x80\x05\x96" + b"\xff" * 7 + b"\x00.", "not a readable batch"),
        (b"\x80\x02}2K\x01s.", "nothing plain needs the instruction DUP"),
        (b"\x80\x02cos\nsystem\n)R.", "it asks for os.system"),
    ],
    ids=[
        "memo far away",
        "tuples of tuples",
        "deep tuples",
        "a bytearray of exabytes",
        "duplicates",
        "a call",
    ],
)
def test_a_pickle_cannot_take_memory_or_time_without_bound(tmp_path, content, message):
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(
        BadData, match=f"test_batch: not a readable batch of plain arrays .*{message}|{message}"
    ):
        read_pickled_dict(tmp_path / "test_batch")


def test_a_member_without_a_name_is_a_damaged_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as bundle:
        bundle.writestr("name", b"text")
    damaged = (tmp_path / "a.zip").read_bytes().replace(b"name", b"\0ame")
    (tmp_path / "a.zip").write_bytes(damaged)
    with pytest.raises(BadData, match=r"a\.zip: "):
        unpack(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.parametrize("form", FORMATS[1:4], ids=lambda form: form.name)
def test_tuples_of_tuples_do_not_hang_what_reads_files_of_torch(form, tmp_path):
    path = form.make(tmp_path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, laughs(60) if name.endswith("data.pkl") else content)
    with pytest.raises(ValueError, match=rf"{path.name} .*tuples of tuples of tuples without end"):
        form.read(path)


def test_files_of_old_torch_are_read_and_looked_at_too(tmp_path):
    model, other = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    torch.save(model.state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    load_weights(other, tmp_path / "old.pt")
    assert torch.equal(model.weight, other.weight)
    (tmp_path / "old.pt").write_bytes(laughs(60))
    with pytest.raises(ValueError, match=r"old\.pt .*tuples of tuples of tuples without end"):
        load_weights(other, tmp_path / "old.pt")
