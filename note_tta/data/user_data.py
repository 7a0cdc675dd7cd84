"""The user's own data: images in class folders, or an npz file."""

from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ..files import file_digest
from .archives import ALLOWANCE, EXPANSION
from .base import BadData, Dataset, Domain, Floats, IntArray, Pixels, check_labels, sensor_domain
from .pictures import class_names, list_pictures, read_picture_file

DOMAIN = "all"
"""The one domain of the user's own data."""

_IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm"}


def open_own(path: str | Path, *, recorded: str | None = None) -> Dataset:
    """Open a folder of images, one subfolder per class, or an npz file with the arrays `x` and `y`.

    Images must all have the same size, and are scaled to [0, 1]. In an npz file, `x` is uint8 images
    `[N, H, W, C]`, or floating-point inputs `[N, ...]` that are used as they are; `y` is the labels.

    Args:
        path: The folder or the file.
        recorded: How to find the recording order of a folder: by file `"name"` (with numbers compared as
            numbers, so that frame 10 follows frame 9) or by the `"time"` of the file. The images of all classes
            are then in this order. None: they are in order of class, and a stream is drawn from them. An npz
            file keeps its order.
    """
    path = Path(path)
    if recorded not in (None, "name", "time"):
        raise ValueError(f"recorded must be 'name' or 'time', got {recorded!r}")
    if path.is_dir():
        return _open_folder(path, recorded)
    if path.is_file() and path.suffix == ".npz":
        if recorded is not None:
            raise ValueError(f"recorded is for folders of images; {path} comes in its own order")
        return _open_npz(path)
    if path.exists():
        raise BadData(path, "expected a folder of images by class, or an .npz file")
    raise FileNotFoundError(f"no such data: {path}; --data is a folder of images by class, or an .npz file")


def _dataset(
    path: Path, classes: tuple[str, ...], shape: tuple[int, ...], domain: Domain, stream: Any
) -> Dataset:
    return Dataset(str(path), path.name, classes, shape, (DOMAIN,), stream, {DOMAIN: lambda: domain})


def _recorded_at(file: Path, recorded: str) -> tuple[Any, ...]:
    """The sort key of an image: the time of its file, then its name with numbers compared as numbers."""
    words = re.findall(r"[0-9]+|[^0-9]+", file.name)
    parts = tuple((not word.isdecimal(), int(word) if word.isdecimal() else word) for word in words)
    return (file.stat().st_mtime_ns, *parts) if recorded == "time" else parts


def _open_folder(folder: Path, recorded: str | None) -> Dataset:
    files = list_pictures(folder, None, _IMAGES)
    if recorded is not None:
        files.sort(key=lambda entry: _recorded_at(entry[0], recorded))
    size = _read_image(files[0][0]).shape

    def read(indices: IntArray) -> Floats:
        images = []
        for file, _ in (files[i] for i in indices.tolist()):
            image = _read_image(file)
            if image.shape != size:
                raise BadData(file, f"{_size(image.shape)} pixels, but {files[0][0].name} has {_size(size)}")
            images.append(image)
        return np.stack(images).transpose(0, 3, 1, 2) / np.float32(255)

    def digest() -> str:
        text = "".join(f"{file.relative_to(folder)} {file_digest(file)}\n" for file, _ in files)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    domain = Domain(DOMAIN, np.array([label for _, label in files]), read, digest, "own")
    stream = "chronological" if recorded else "dirichlet"
    return _dataset(folder, class_names(folder), (size[2], *size[:2]), domain, stream)


def _open_npz(path: Path) -> Dataset:
    try:
        with zipfile.ZipFile(path) as bundle:
            unpacked = sum(entry.file_size for entry in bundle.infolist())
        if unpacked > EXPANSION * path.stat().st_size + ALLOWANCE:
            raise BadData(path, "it unpacks to far more than a dataset would")
        with np.load(path, allow_pickle=False) as arrays:
            if not {"x", "y"} <= set(arrays.files):
                raise BadData(path, f"expected the arrays x and y, found {', '.join(arrays.files) or 'none'}")
            x, y = arrays["x"], arrays["y"]
            if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):  # numpy gives the bytes
                raise BadData(path, "x and y must be arrays in numpy's format")
    except BadData:
        raise
    except Exception as error:  # a damaged archive or header can raise nearly anything
        raise BadData(path, f"not a complete npz file ({error})") from error
    if y.ndim != 1 or x.ndim < 2 or len(x) != len(y) or len(x) == 0:
        raise BadData(path, f"expected x [N, ...] and y [N], found {list(x.shape)} and {list(y.shape)}")
    if not np.issubdtype(y.dtype, np.integer):
        raise BadData(path, f"y must be whole numbers, found {y.dtype}")
    if x.dtype == np.uint8:
        if x.ndim != 4 or x.shape[3] not in (1, 3):
            raise BadData(path, f"uint8 images are [N, H, W, 1 or 3], found {list(x.shape)}")
        scaled = x.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    elif np.issubdtype(x.dtype, np.floating):
        scaled = x.astype(np.float32)
    else:
        raise BadData(path, f"x must be uint8 or floating point, found {x.dtype}")
    count = int(y.max()) + 1
    labels = check_labels(y, count, path)
    domain = sensor_domain(DOMAIN, scaled, labels, origin="own")
    return _dataset(path, tuple(map(str, range(count))), tuple(scaled.shape[1:]), domain, "chronological")


def _read_image(file: Path) -> Pixels:
    image = read_picture_file(file, None)
    pixels = image.convert("L" if image.mode in ("1", "L") else "RGB")
    return np.asarray(pixels, dtype=np.uint8).reshape(image.height, image.width, -1)


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]}×{shape[0]}×{shape[2]}"
