"""Regenerate a corrupted set from clean data: on every core, resumable, in the published layout.

Each file is written under a temporary name and renamed when it is whole; the manifest then lists it. A file
may hold some severities only (the others are holes in it): the manifest says which, and loaders refuse
the rest.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from . import cifar, mnist
from .base import IntArray, content_digest, load_array
from .corruptions.engine import BLOCK, ENGINE_VERSION, TABLES, Table, corrupt
from .corruptions.names import CORRUPTIONS, MNIST_CORRUPTIONS, SEVERITIES, check_severity
from .corruptions.textures import Texture, frost_textures
from .files import only_one, replacing
from .manifest import Manifest

CHUNK = 5 * BLOCK  # images of one job
Progress = Callable[[str, int, int], None]
PREPARABLE = ("cifar10", "cifar100", "mnist", "imagenet", "kitti")


@dataclass(frozen=True)
class Job:
    """A part of the work: some images through one corruption at one severity."""

    corruption: str
    severity: int
    table: Table
    seed: int
    first_block: int
    textures: Sequence[Texture] | None


def _work(images: npt.NDArray[np.uint8], job: Job) -> npt.NDArray[np.uint8]:
    return corrupt(
        images,
        job.corruption,
        job.severity,
        table=job.table,
        seed=job.seed,
        first_block=job.first_block,
        textures=job.textures,
    )


def prepare(
    name: str,
    root: Path,
    *,
    corruptions: Iterable[str] | None = None,
    severities: Iterable[int] | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Path:
    """Regenerate the corrupted set of `name` under `root` and return its folder.

    What the manifest lists is skipped, so a stopped run goes on where it was. Every corruption that results
    are reported on is made unless `corruptions` names some: the validation corruptions and `night` are made
    only when named. Every severity is made unless `severities` names some; MNIST-C has one.
    """
    if name not in PREPARABLE:
        raise ValueError(f"cannot regenerate {name!r}; these can be: {', '.join(PREPARABLE)}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    known = TABLES["mnist" if name == "mnist" else "imagenet" if name == "imagenet" else "cifar"]
    usual = MNIST_CORRUPTIONS if name == "mnist" else CORRUPTIONS
    chosen = tuple(usual if corruptions is None else corruptions)
    unknown = [corruption for corruption in chosen if corruption not in known]
    if unknown:
        raise ValueError(f"unknown corruption {unknown[0]!r} for {name}; known are: {', '.join(known)}")
    if name == "mnist" and severities is not None and set(severities) != {1}:
        raise ValueError("MNIST-C has a single severity; leave --severity out")
    levels = (1,) if name == "mnist" else tuple(sorted({check_severity(s) for s in severities or SEVERITIES}))
    if name == "kitti" and (corruptions is not None or severities is not None):
        raise ValueError("kitti is rendered in rain of 200 mm/hr; leave --corruption and --severity out")
    with _pool(workers or os.cpu_count() or 1) as run:
        if name == "kitti":
            from .kitti_rain import prepare_kitti

            return prepare_kitti(root, run, progress)
        if name == "imagenet":
            from .imagenet_c import prepare_imagenet

            return prepare_imagenet(root, chosen, levels, seed, run, progress)
        maker = _ArrayMaker(name, root, seed, run, progress)
        with only_one(maker.folder):
            for corruption in chosen:
                maker.make(corruption, levels)
        return maker.folder


Run = Callable[[Iterable[tuple[Any, ...]], Callable[..., Any]], Iterator[tuple[int, Any]]]


@contextmanager
def _pool(workers: int) -> Iterator[Run]:
    """A function that maps arguments to (number, result) on processes, a few jobs in flight at a time."""
    if workers == 1:
        yield lambda jobs, work: ((number, work(*arguments)) for number, arguments in enumerate(jobs))
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as executor:

        def run(jobs: Iterable[tuple[Any, ...]], work: Callable[..., Any]) -> Iterator[tuple[int, Any]]:
            pending: dict[Future[Any], int] = {}
            for number, arguments in enumerate(jobs):
                pending[executor.submit(work, *arguments)] = number
                if len(pending) >= 2 * workers:
                    yield from _collect(pending)
            while pending:
                yield from _collect(pending)

        try:
            yield run
        except BaseException:
            executor.shutdown(wait=True, cancel_futures=True)
            raise


def _collect(pending: dict[Future[Any], int]) -> Iterator[tuple[int, Any]]:
    for future in wait(pending, return_when=FIRST_COMPLETED).done:
        yield pending.pop(future), future.result()


class _ArrayMaker:
    """Makes the npy files of CIFAR-C and MNIST-C."""

    def __init__(self, name: str, root: Path, seed: int, run: Run, progress: Progress) -> None:
        self.table: Table = "mnist" if name == "mnist" else "cifar"
        self.images, self.labels = _clean(name, root)
        folders = mnist.corrupted_folders(root) if name == "mnist" else cifar.corrupted_folders(root, name)
        self.folder = folders[1]
        self.seed, self.run, self.progress = seed, run, progress
        self.textures, texture_origin = frost_textures(root)
        wanted = Manifest(name, seed, ENGINE_VERSION, content_digest(self.images), texture_origin)
        self.manifest = Manifest.open(self.folder, wanted)

    def make(self, corruption: str, severities: Sequence[int]) -> None:
        """Make one corruption's file, keeping the severities it already holds."""
        file, labels_file, blocks = self._layout(corruption)
        missing = [s for s in severities if not self.manifest.has(corruption, s) or not file.is_file()]
        if not missing:
            return
        kept = [int(s) for s in self.manifest.parts(corruption)] if file.is_file() else []
        kept = [s for s in kept if s not in missing]
        with replacing(labels_file) as temporary, temporary.open("wb") as stream:
            np.save(stream, np.tile(self.labels, blocks).astype(np.uint8))
        digests = {str(s): self.manifest.done[corruption][str(s)] for s in kept}
        with replacing(file) as temporary, temporary.open("wb+") as stream:
            count = len(self.images)
            start, size = self._allocate(stream, blocks), self.images[0].size * count
            if kept:
                old = load_array(file, dtype="uint8")
                for severity in kept:
                    stream.seek(start + (severity - 1) * size)
                    stream.write(old[(severity - 1) * count : severity * count].tobytes())
            for severity in missing:
                digests[str(severity)] = self._fill(
                    stream, start + (severity - 1) * size, corruption, severity
                )
        self.manifest.done[corruption] = dict(sorted(digests.items()))
        self.manifest.parameters[corruption] = {
            level: self.manifest.wanted(corruption, int(level)) for level in digests
        }
        self.manifest.write()

    def _layout(self, corruption: str) -> tuple[Path, Path, int]:
        if self.table == "mnist":
            folder = self.folder / corruption
            return folder / "test_images.npy", folder / "test_labels.npy", 1
        return self.folder / f"{corruption}.npy", self.folder / "labels.npy", len(SEVERITIES)

    def _allocate(self, stream: BinaryIO, blocks: int) -> int:
        """Write the npy header and set the file's whole size; returns where the values start."""
        shape = (blocks * len(self.images), *self.images.shape[1:])
        np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
        start = stream.tell()
        stream.truncate(start + int(np.prod(shape)))
        return start

    def _fill(self, stream: BinaryIO, offset: int, corruption: str, severity: int) -> str:
        """Write one severity block and return the SHA-256 of its bytes."""
        count, each = len(self.images), self.images[0].size
        textures = self.textures if corruption == "frost" else None
        jobs = (
            (
                self.images[first : first + CHUNK],
                Job(corruption, severity, self.table, self.seed, first // BLOCK, textures),
            )
            for first in range(0, count, CHUNK)
        )
        done = 0
        what = corruption if self.table == "mnist" else f"{corruption} {severity}"
        for number, images in self.run(jobs, _work):
            stream.seek(offset + number * CHUNK * each)
            stream.write(images.tobytes())
            done += len(images)
            self.progress(what, done, count)
        stream.seek(offset)
        digest = hashlib.sha256()
        for first in range(0, count, CHUNK):
            digest.update(stream.read(min(CHUNK, count - first) * each))
        return digest.hexdigest()


def _clean(name: str, root: Path) -> tuple[npt.NDArray[np.uint8], IntArray]:
    if name == "mnist":
        return mnist.read_clean(root, "test")
    return cifar.read_clean(root, name, "test")
