import os
import pickle

import numpy as np
import pytest

from note_tta.data import BadData
from note_tta.data.pickles import read_pickled_dict


def written(path, content, protocol=2):
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_arrays_and_plain_values_come_out(tmp_path, protocol):
    content = {
        b"data": np.arange(6, dtype=np.uint8).reshape(2, 3),
        b"labels": [0, 1],
        "name": "x",
        b"raw": b"\xff",
    }
    read = read_pickled_dict(written(tmp_path / "batch", content, protocol))
    assert np.array_equal(read["data"], content[b"data"])
    assert read["labels"] == [0, 1]
    assert read["raw"] == b"\xff"


class Evil:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "evil",
    [
        Evil(os.system, "touch pwned"),
        Evil(eval, "__import__('os').system('touch pwned')"),
        Evil(getattr, "", "join"),
        Evil(bytearray, 10**12),
        Evil(bytes, 10**12),
        Evil(np.zeros, 10**12),
        Evil(np.ndarray, (10**12,)),
        Evil(np.ndarray([0]).__reduce__()[0], np.ndarray, (10**12,), b"b"),
        Evil(np.load, "/etc/passwd"),
    ],
)
def test_nothing_callable_is_reached(tmp_path, monkeypatch, evil):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadData, match=r"batch: not a readable batch of plain arrays"):
        read_pickled_dict(written(tmp_path / "batch", {b"data": evil}))
    assert not (tmp_path / "pwned").exists()


def test_the_forbidden_name_is_told(tmp_path):
    with pytest.raises(BadData, match=r"it asks for (posix|nt)\.system"):
        read_pickled_dict(written(tmp_path / "batch", Evil(os.system, "true")))


@pytest.mark.parametrize("keep", [0, 1, 20, -3])
def test_a_truncated_pickle_is_refused(tmp_path, keep):
    whole = pickle.dumps({b"data": np.zeros(100, np.uint8)}, protocol=2)
    (tmp_path / "batch").write_bytes(whole[:keep])
    with pytest.raises(BadData, match="batch: not a readable batch"):
        read_pickled_dict(tmp_path / "batch")


def test_anything_but_a_dict_is_refused(tmp_path):
    with pytest.raises(BadData, match="expected a dict, found list"):
        read_pickled_dict(written(tmp_path / "batch", [1]))
