"""What `kills` kills: tiny runs of everything that writes files."""

from __future__ import annotations

import hashlib
import io
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from note_tta.checkpoint import load_checkpoint, load_state, save_checkpoint, save_state
from note_tta.data.manifest import Manifest
from note_tta.experiments.store import Store
from note_tta.models import build_model

from .common import MODELS
from .fuzz import small_method

READY = "ready"
TIMINGS = ("seconds", "samples_per_second", "latency_ms")
CORRUPTIONS = ("gaussian_noise", "fog", "contrast", "jpeg_compression")
STEPS = 400
_IMPORTS = (
    "import note_tta.cli, note_tta.train, note_tta.experiments.runner, note_tta.data.prepare\n"
    "import note_tta.report.build, sklearn.datasets\n"
)
_MAIN = f"{_IMPORTS}print({READY!r}, flush=True); note_tta.cli.main()"


@dataclass(frozen=True)
class Job:
    """Something that writes files and can be killed.

    Attributes:
        name: What a person would call it.
        prepare: Makes the folder that it works in.
        command: Python code that prints `ready` when its imports are done, and its arguments.
        check: Reads every file that is there under its final name, and raises where one is damaged.
        outcome: What came out, without times.
    """

    name: str
    prepare: Callable[[Path], None]
    command: Callable[[Path], list[str]]
    check: Callable[[Path], None]
    outcome: Callable[[Path], Any]


def _command(name: str, options: str, **paths: Path) -> list[str]:
    placed = [word for key, path in paths.items() for word in (f"--{key.replace('_', '-')}", str(path))]
    return [_MAIN, *name.split(), *options.split(), *placed]


def _train(folder: Path) -> list[str]:
    options = "--dataset digits --width 2 --epochs 6 --samples 128 --threads 1"
    return _command("train", options, out=folder / "m.safetensors")


def _check_training(folder: Path) -> None:
    if (folder / "m.safetensors").exists():
        load_checkpoint(folder / "m.safetensors")
    if (folder / "m.training.pt").exists():
        torch.load(folder / "m.training.pt", weights_only=True)


def _weights(folder: Path) -> dict[str, bytes]:
    return {name: t.numpy().tobytes() for name, t in load_file(folder / "m.safetensors").items()}


def _run(folder: Path) -> list[str]:
    options = "--dataset digits --method note --width 8 --samples 192 --workers 1"
    return _command("run", options, models=MODELS, results=folder / "results")


def _cifar(folder: Path) -> None:
    """A CIFAR-10 of 120 random test images, one corruption of it, and source models of random weights."""
    clean = folder / "cifar-10-batches-py"
    clean.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (120, 3072), dtype=np.uint8)
    content = {b"labels": [i % 10 for i in range(120)], b"data": images}
    (clean / "test_batch").write_bytes(pickle.dumps(content, protocol=2))
    corrupted = folder / "CIFAR-10-C"
    corrupted.mkdir()
    pixels = images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    np.save(corrupted / "fog.npy", np.tile(pixels // 2 + 100, (5, 1, 1, 1)))
    np.save(corrupted / "labels.npy", np.tile(np.arange(120) % 10, 5))
    for norm in ("bn", "iabn", "in"):
        torch.manual_seed(0)
        model = build_model("resnet20", 10, norm=norm, width=4)
        save_checkpoint(folder / "models" / f"cifar10-resnet20-w4-{norm}-seed0.safetensors", model, {})


def _clean_cifar(folder: Path) -> None:
    _cifar(folder)
    for file in (folder / "CIFAR-10-C").iterdir():
        file.unlink()


def _reproduce(folder: Path) -> list[str]:
    options = "--dataset cifar10 --model resnet20 --width 4 --domains fog --seeds 0 --workers 1"
    where = {"data_root": folder, "results": folder / "results"}
    return _command("reproduce table3", options, **where)


def _check_results(folder: Path) -> None:
    list(Store(folder / "results"))


def _results(folder: Path) -> dict[str, Any]:
    return {
        record.job.describe(): {key: value for key, value in record.result.items() if key not in TIMINGS}
        for record in Store(folder / "results")
    }


def _prepare(folder: Path) -> list[str]:
    chosen = " ".join(f"--corruption {name}" for name in CORRUPTIONS)
    options = f"--severity 5 --workers 1 {chosen}"
    return _command("data prepare cifar10", options, data_root=folder)


def _check_prepared(folder: Path) -> None:
    made = folder / "CIFAR-10-C-regenerated"
    if not (made / "manifest.json").exists():
        return
    for corruption, parts in Manifest.read(made, "cifar").done.items():
        block = np.load(made / f"{corruption}.npy")[4 * 120 :]
        if hashlib.sha256(block.tobytes()).hexdigest() != parts["5"]:
            raise RuntimeError(f"{corruption} is listed as done and is not what the manifest says")


def _contents(part: str) -> Callable[[Path], dict[str, bytes]]:
    def read(folder: Path) -> dict[str, bytes]:
        files = sorted(file for file in (folder / part).rglob("*") if file.is_file() and file.name != ".lock")
        return {str(file.relative_to(folder)): file.read_bytes() for file in files}

    return read


_DOWNLOAD = f"""
import hashlib, io, sys, time, urllib.request
from pathlib import Path
from note_tta.data.download import download_archive
from note_tta.data.record import Archive
folder = Path(sys.argv[1])
body = (folder / "served.zip").read_bytes()

class Response(io.BytesIO):
    def __init__(self, start):
        super().__init__(body[start:])
        self.status = 206 if start else 200
        self.headers = {{"Content-Length": str(len(body) - start), "Content-Range": f"bytes {{start}}-"}}
    def read(self, size=-1):
        time.sleep(0.01)
        return super().read(min(size, 1 << 15))

def opener(request):
    asked = request.get_header("Range")
    start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
    if start >= len(body):
        raise urllib.error.HTTPError(request.full_url, 416, "whole", None, None)
    return Response(start)

md5 = hashlib.md5(body).hexdigest()
archive = Archive("https://example.org/served.zip", "place/inner/0.bin", "2 MB", md5, into="place")
print({READY!r}, flush=True)
download_archive(archive, folder / "root", opener=opener)
"""


def _served(folder: Path) -> None:
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0).bytes(1 << 18)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        for number in range(6):
            bundle.writestr(f"inner/{number}.bin", noise)
    (folder / "served.zip").write_bytes(buffer.getvalue())


def _check_download(folder: Path) -> None:
    for file in (folder / "root" / "place").rglob("[0-9].bin"):
        if ".unpack-" not in str(file) and file.stat().st_size != 1 << 18:
            raise RuntimeError(f"{file.name} is in its place and not whole")


_ADAPT = f"""
import sys
from pathlib import Path
from benchmarks.trust.jobs import adapt
print({READY!r}, flush=True)
adapt(Path(sys.argv[1]))
"""


def adapt(folder: Path) -> None:
    """Adapt to a stream, saving the state after every batch; go on from the state that is there."""
    method, path = small_method(), folder / "state.pt"
    if path.exists():
        load_state(path, method)
    generator = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        x = torch.rand(8, 1, 4, 4, generator=generator)
        if step * 8 >= method.counters["samples"]:
            method(x)
            save_state(path, method)


def _check_state(folder: Path) -> None:
    if (folder / "state.pt").exists():
        method = small_method()
        load_state(folder / "state.pt", method)
        if method.counters["samples"] % 8:
            raise RuntimeError("the state is of the middle of a batch")


def _state(folder: Path) -> Any:
    return _plain(torch.load(folder / "state.pt", weights_only=True))


def _plain(state: Any) -> Any:
    """The state with its tensors as bytes."""
    if isinstance(state, torch.Tensor):
        return state.contiguous().numpy().tobytes()
    if isinstance(state, dict):
        return {str(key): _plain(value) for key, value in state.items()}
    return [_plain(value) for value in state] if isinstance(state, list | tuple) else state


def _empty(folder: Path) -> None:
    folder.mkdir(parents=True)


JOBS = [
    Job("train", _empty, _train, _check_training, _weights),
    Job("run", _empty, _run, _check_results, _results),
    Job("reproduce", _cifar, _reproduce, _check_results, _results),
    Job("data prepare", _clean_cifar, _prepare, _check_prepared, _contents("CIFAR-10-C-regenerated")),
    Job("data download", _served, lambda f: [_DOWNLOAD, str(f)], _check_download, _contents("root")),
    Job("save state", _empty, lambda folder: [_ADAPT, str(folder)], _check_state, _state),
]
