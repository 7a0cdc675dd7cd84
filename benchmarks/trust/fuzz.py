"""Damage every kind of file that is read, thousands of times: each must be read or refused by name.

python -m benchmarks.trust.fuzz --inputs 500
"""

from __future__ import annotations

import argparse
import gzip
import io
import multiprocessing
import pickle
import random
import resource
import signal
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

import note_tta as tta
from note_tta.checkpoint import load_checkpoint, load_state, load_weights, save_checkpoint, save_state
from note_tta.data.archives import unpack
from note_tta.data.base import load_array
from note_tta.data.manifest import Manifest
from note_tta.data.mnist import read_clean as read_mnist
from note_tta.data.pickles import read_pickled_dict
from note_tta.data.tables import read_columns, read_numbers
from note_tta.data.user_data import open_own
from note_tta.experiments.cell import Cell, Stream
from note_tta.experiments.store import Record, Store
from note_tta.models import build_model
from note_tta.train.loop import _read_state

from .common import write

MEMORY_MB = 512
"""More than this no damaged file may make the process take."""

SECONDS = 10
"""Longer than this reading a damaged file of a few kilobytes may not take."""

Edit = tuple[str, float, bytes]
KINDS = ("flip", "insert", "delete", "truncate", "repeat", "zero", "overwrite")


@dataclass(frozen=True)
class Format:
    """A kind of file: its name, a whole one made in a folder, and what reads it."""

    name: str
    make: Callable[[Path], Path]
    read: Callable[[Path], Any]


def small_method() -> tta.NOTE:
    """A NOTE on a model of a few weights over inputs `[1, 4, 4]`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4)).eval()
    return tta.NOTE(model, tta.PBRS(8), interval=8)


def _state(folder: Path) -> Path:
    method = small_method()
    method(torch.rand(20, 1, 4, 4))
    save_state(folder / "state.pt", method)
    return folder / "state.pt"


def _read_method_state(path: Path) -> None:
    method = small_method()
    load_state(path, method)
    method(torch.rand(20, 1, 4, 4))


def _checkpoint(folder: Path) -> Path:
    path = folder / "a.safetensors"
    save_checkpoint(path, build_model("digits_cnn", 3, width=2), {"dataset": "digits"})
    return path


def _weights(folder: Path) -> Path:
    torch.save({"state_dict": small_method().model.state_dict()}, folder / "weights.pt")
    return folder / "weights.pt"


def _training(folder: Path) -> Path:
    torch.save(
        {"identity": {"seed": 0}, "model": small_method().model.state_dict()}, folder / "t.training.pt"
    )
    return folder / "t.training.pt"


def _npz(folder: Path) -> Path:
    np.savez_compressed(folder / "own.npz", x=np.zeros((9, 4, 4, 1), np.uint8), y=np.arange(9) % 3)
    return folder / "own.npz"


def _npy(folder: Path) -> Path:
    np.save(folder / "fog.npy", np.arange(5 * 12, dtype=np.uint8).reshape(5, 2, 2, 3))
    return folder / "fog.npy"


def _batch(folder: Path) -> Path:
    content = {b"data": np.arange(96, dtype=np.uint8).reshape(2, 48), b"labels": [1, 2]}
    (folder / "test_batch").write_bytes(pickle.dumps(content, protocol=2))
    return folder / "test_batch"


def _idx(folder: Path) -> Path:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    images = bytes([0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 28]) + bytes(3 * 28 * 28)
    (raw / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    (raw / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3])))
    return raw / "t10k-images-idx3-ubyte.gz"


def _zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "data.zip", "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("a/b.bin", b"payload" * 200)
        bundle.writestr("c.txt", b"text")
    return folder / "data.zip"


def _tar(suffix: str, mode: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / f"data.{suffix}"
        with tarfile.open(path, mode) as bundle:
            for name, content in {"a/b.bin": b"payload" * 200, "c.txt": b"text"}.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                bundle.addfile(member, io.BytesIO(content))
        return path

    return make


def _csv(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        text = "timestamp,x,y,label\n" + "".join(f"{t},{t / 7:.3f},{t % 5},walk\n" for t in range(40))
        content = text.encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return folder / name

    return make


def _numbers(folder: Path) -> Path:
    np.savetxt(folder / "acc.txt", np.arange(60.0).reshape(20, 3))
    return folder / "acc.txt"


def _result(folder: Path) -> Path:
    cell = Cell(Stream("cifar10", "fog", "iid"), "note", model="resnet20")
    result = {"error": 21.1, "samples": 10, "labels": [1, 2], "wrong": [1, 1]}
    Store(folder).save(Record(cell, result, {"commit": None}))
    return Store(folder).path(cell)


def _manifest(folder: Path) -> Path:
    Manifest("cifar10", 0, 1, "sha256:0", done={"fog": {"5": "0"}}, folder=folder).write()
    return folder / "manifest.json"


def _picture(folder: Path) -> Path:
    (folder / "pictures" / "cat").mkdir(parents=True, exist_ok=True)
    path = folder / "pictures" / "cat" / "1.png"
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(path)
    return path


FORMATS = [
    Format("checkpoint (safetensors)", _checkpoint, load_checkpoint),
    Format("weights (pt)", _weights, lambda path: load_weights(small_method().model, path)),
    Format("state of a method", _state, _read_method_state),
    Format("state of a training", _training, lambda p: _read_state(p, {"seed": 0}, torch.device("cpu"))),
    Format("npz", _npz, open_own),
    Format("npy", _npy, lambda path: np.asarray(load_array(path, dtype="uint8", tail=(2, 2, 3))).sum()),
    Format("pickled CIFAR batch", _batch, read_pickled_dict),
    Format("idx.gz", _idx, lambda path: read_mnist(path.parents[2], "test")),
    Format("zip", _zip, lambda path: unpack(path, path.parent / "out")),
    Format("tar", _tar("tar", "w"), lambda path: unpack(path, path.parent / "out")),
    Format("tar.gz", _tar("tar.gz", "w:gz"), lambda path: unpack(path, path.parent / "out")),
    Format("csv", _csv("walk.csv"), lambda path: read_columns(path, ["x", "y"], text=["label"])),
    Format("csv.gz", _csv("walk.csv.gz"), lambda path: read_columns(path, ["x", "y"], blank=True)),
    Format("table of numbers", _numbers, lambda path: read_numbers(path, 3)),
    Format("results (json lines)", _result, lambda path: list(Store(path.parent))),
    Format("manifest (json)", _manifest, lambda path: Manifest.read(path.parent, "cifar")),
    Format("picture", _picture, lambda path: open_own(path.parents[1]).domain("all").inputs()),
]


def damage(content: bytes, edits: Iterable[Edit]) -> bytes:
    """Apply edits to a file's bytes; a place is a share of the length."""
    for kind, place, extra in edits:
        at = int(place * len(content))
        head, tail = content[:at], content[at:]
        if kind == "flip":
            content = head + bytes(b ^ 0xFF for b in tail[:1]) + tail[1:]
        elif kind == "insert":
            content = head + extra + tail
        elif kind == "delete":
            content = head + tail[len(extra) :]
        elif kind == "truncate":
            content = head
        elif kind == "repeat":
            content = head + tail[:64] * 3 + tail
        elif kind == "zero":
            content = head + bytes(len(extra)) + tail[len(extra) :]
        else:
            content = head + extra + tail[len(extra) :]
    return content


def attempt(form: Format, path: Path) -> bool:
    """Read a damaged file: True where it was taken, False where it was refused by name.

    Raises:
        Exception: Anything else than a refusal that names the file.
    """
    try:
        form.read(path)
    except (ValueError, OSError) as error:
        # A damaged picture or idx file may be refused under the name of its neighbour that does not fit.
        if path.name not in str(error) and path.parent.name not in str(error):
            raise RuntimeError(f"{form.name}: the refusal does not name the file: {error!r}") from error
        return False
    return True


def _edits(rng: random.Random) -> list[Edit]:
    return [
        (rng.choice(KINDS), rng.random(), rng.randbytes(rng.choice((1, 2, 4, 8, 64))))
        for _ in range(rng.choice((1, 1, 2, 5)))
    ]


def fuzz(form: Format, inputs: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Damage a file of one format `inputs` times; what came of it, and what was neither read nor refused."""
    rng, failures, taken, slowest = random.Random(f"{seed} {form.name}"), [], 0, 0.0
    signal.signal(signal.SIGALRM, _too_long)
    with tempfile.TemporaryDirectory() as name:
        path = form.make(Path(name))
        whole = path.read_bytes()
        form.read(path)
        before = _peak_mb()
        for _ in range(inputs):
            edits = _edits(rng)
            path.write_bytes(damage(whole, edits))
            start = time.perf_counter()
            signal.alarm(SECONDS)
            try:
                taken += attempt(form, path)
            except BaseException as error:
                failures.append(f"{form.name}: {type(error).__name__}: {error} {edits}")
            signal.alarm(0)
            slowest = max(slowest, time.perf_counter() - start)
    row = {
        "inputs": inputs,
        "refused_by_name": inputs - taken - len(failures),
        "slowest_seconds": round(slowest, 3),
        "peak_growth_mb": round(_peak_mb() - before, 1),
    }
    return row, failures


def _apart(form: Format, inputs: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """`fuzz` in a process of its own, whose death is a failure like any other."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=lambda: there.send(fuzz(form, inputs, seed)))
    process.start()
    there.close()
    try:
        row, failures = here.recv()
    except EOFError:
        row = {"inputs": inputs, "refused_by_name": 0, "slowest_seconds": 0.0, "peak_growth_mb": 0.0}
        process.join()
        failures = [f"{form.name}: the process died with exit code {process.exitcode}"]
    process.join()
    return row, failures


def main() -> int:
    """Fuzz every format; the exit code is 1 where a file was neither read nor refused by name in bounds."""
    parser = argparse.ArgumentParser(prog="benchmarks.trust.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, help="damaged files of each format")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows, failures = {}, []
    for form in FORMATS:
        rows[form.name], failed = _apart(form, arguments.inputs, arguments.seed)
        failures += failed
        print(f"{form.name}: {rows[form.name]}", *failed[:3], sep="\n  ", file=sys.stderr, flush=True)
    growth = max(row["peak_growth_mb"] for row in rows.values())
    write(
        "fuzz",
        {
            "inputs": sum(row["inputs"] for row in rows.values()),
            "formats": rows,
            "failures": len(failures),
            "largest_growth_mb": growth,
            "limit_mb": MEMORY_MB,
            "seed": arguments.seed,
        },
    )
    return int(bool(failures) or growth > MEMORY_MB)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _too_long(*_: object) -> None:
    raise TimeoutError(f"reading took over {SECONDS} s")


if __name__ == "__main__":
    sys.exit(main())
