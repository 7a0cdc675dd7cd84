import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from note_tta.serve.bodies import channels_of, samples
from note_tta.serve.limits import Limits, Refused


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def picture(mode, kind, size=(5, 4)):
    image = Image.fromarray(np.arange(size[0] * size[1] * 3, dtype=np.uint8).reshape(size[1], size[0], 3))
    file = io.BytesIO()
    image.convert(mode).save(file, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return file.getvalue()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_as_they_are(dtype, order):
    array = np.asarray(np.random.default_rng(0).normal(size=(3, 2, 5)), dtype, order=order)
    found = samples(npy(array), "application/x-npy", None, Limits())
    assert found.dtype == torch.float32
    assert torch.equal(found, torch.from_numpy(array.astype(np.float32)))


def test_bytes_are_values_from_0_to_1():
    found = samples(npy(np.array([[0, 51, 255]], np.uint8)), "application/octet-stream", None, Limits())
    assert torch.equal(found, torch.tensor([[0, 51 / 255, 1]]))


@pytest.mark.parametrize(("kind", "mime"), [("PNG", "image/png"), ("WEBP", "image/webp")])
def test_images_become_channels_of_values_from_0_to_1(kind, mime):
    found = samples(picture("RGB", kind), mime, 3, Limits())
    expected = torch.arange(60).float().view(4, 5, 3).permute(2, 0, 1)[None] / 255
    assert torch.allclose(found, expected)
    assert samples(picture("RGB", kind), mime, 1, Limits()).shape == (1, 1, 4, 5)
    assert samples(picture("L", kind), mime, 3, Limits()).shape == (1, 3, 4, 5)


def test_a_jpeg_is_an_image():
    assert samples(picture("RGB", "JPEG"), "image/jpeg", 3, Limits()).shape == (1, 3, 4, 5)


def test_json():
    body = json.dumps({"samples": [[1, 2.5], [3, float("nan")]]}).encode()
    found = samples(body, "application/json; charset=utf-8", None, Limits())
    assert torch.equal(found.isnan(), torch.tensor([[False, False], [False, True]]))
    assert found[0].tolist() == [1, 2.5]


LYING = npy(np.zeros((2, 2), np.float32)).replace(b"(2, 2)", b"(9, 9)")
OBJECTS = npy(np.array([{"a": 1}], dtype=object), allow_pickle=True)


@pytest.mark.parametrize(
    ("body", "kind", "status", "reason"),
    [
        (b"", "application/x-npy", 400, "no npy file"),
        (LYING, "application/x-npy", 400, "size is not what its header says"),
        (OBJECTS, "application/x-npy", 400, "dtype is object"),
        (npy(np.zeros((2, 2), ">f4")), "application/x-npy", 400, "dtype"),
        (npy(np.zeros((2, 2), "c8")), "application/x-npy", 400, "dtype is complex64"),
        (b"\x93NUMPY\x01\x00\x10\x00__import__('os')", "application/x-npy", 400, "no npy file"),
        (npy(np.zeros((0, 2))), "application/x-npy", 422, "at least one"),
        (npy(np.zeros(3)), "application/x-npy", 422, r"a batch \[B, ...\]"),
        (npy(np.zeros((2000, 1))), "application/x-npy", 413, "2000 samples are more than the 1024"),
        (b"[1, 2]", "application/json", 400, "no JSON of samples"),
        (b'{"samples": [[1], [1, 2]]}', "application/json", 400, "no JSON of samples"),
        (b'{"samples": [["a"]]}', "application/json", 400, "other than numbers"),
        (b'{"samples": ' + b"[" * 100_000, "application/json", 400, "no JSON of samples"),
        (b"not an image", "image/png", 400, "^the body is no PNG image$"),
        (picture("RGB", "PNG")[:-30], "image/png", 400, "no whole PNG image"),
        (picture("RGB", "PNG"), "image/jpeg", 400, "^the body is no JPEG image$"),
        (picture("RGB", "PNG", (3000, 2000)), "image/png", 413, "3000 x 2000 pixels are more"),
        (b"x", "text/html", 415, "Content-Type must be one of"),
        (b"x", "", 415, "Content-Type must be one of"),
    ],
)
def test_what_is_refused(body, kind, status, reason):
    with pytest.raises(Refused, match=reason) as refused:
        samples(body, kind, 3, Limits())
    assert refused.value.status == status


def test_a_model_without_images_takes_none():
    with pytest.raises(Refused, match="takes no images"):
        samples(picture("RGB", "PNG"), "image/png", None, Limits())


def test_channels_are_those_of_the_first_convolution():
    assert channels_of(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 1, 3))) == 3
    assert channels_of(nn.Sequential(nn.Conv1d(3, 4, 3))) is None
    assert channels_of(nn.Linear(3, 4)) is None


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="it counts threads, as Linux tells them")
def test_reading_an_array_leaves_no_threads_behind():
    """Threads of torch's that belong to the reader make those of the fleet sleep."""
    code = """
import io, os
import numpy as np, torch
from note_tta.serve import bodies
from note_tta.serve.limits import Limits

torch.set_num_threads(2)
file = io.BytesIO()
np.save(file, np.zeros((64, 3, 32, 32), np.uint8))
before = len(os.listdir("/proc/self/task"))
x = bodies.samples(file.getvalue(), "application/x-npy", 3, Limits())
after = len(os.listdir("/proc/self/task"))
x / 255
print(after - before, len(os.listdir("/proc/self/task")) > after)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 True\n"
