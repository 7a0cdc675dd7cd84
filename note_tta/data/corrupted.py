"""Images with corrupted copies in npy files: where they are, and how they are opened, checked and regenerated.

The published set is beside the clean images. A regenerated set is in another folder with the same layout, and has
a manifest that lists the complete parts. If both exist, the published files are used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..files import only_one, replacing
from ..names import check_known
from .base import (
    BadData,
    Dataset,
    Domain,
    IntArray,
    MissingData,
    Origin,
    Pixels,
    check_labels,
    content_digest,
    image_domain,
    load_array,
)
from .corruptions.engine import BLOCK, ENGINE_VERSION, corrupt
from .corruptions.names import SEVERITIES, TABLES, Table, check_severity
from .corruptions.textures import frost_textures
from .imbalance import thin_out
from .manifest import Manifest
from .pool import Map, pool
from .record import Check, DatasetRecord, Progress, Wanted, attempt, count

CHUNK = 5 * BLOCK  # images of one job
CleanReader = Callable[[Path, str], tuple[Pixels, IntArray]]
"""Reads the clean images and the labels of a split (`train`, `test`) under a data root."""


@dataclass(frozen=True, kw_only=True)
class CorruptedSet:
    """A set of images whose test images were published in corrupted copies too."""

    name: str
    title: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]  # of an image, channels last
    clean: tuple[str, ...]  # the folders under the data root that may hold the clean images
    read_clean: CleanReader
    published: Mapping[str, int]  # the number of clean images by split
    table: Table  # which benchmark's parameters the corruptions have
    usual: tuple[str, ...]  # the corruptions that results are reported on
    validation: tuple[str, ...] = ()  # those for choosing settings
    own: tuple[str, ...] = ()  # those that the benchmark does not have
    folder: str  # of the published corrupted images under the data root
    images: str  # the file of a corruption in that folder
    labels: str  # the file of its labels

    def record(self, **facts: Any) -> DatasetRecord:
        """The record of the dataset, with these further facts."""
        options = {"imbalance": "the first class has this many times as many samples as the last"}
        if len(self.severities) > 1:
            options = {"severity": "corruptions of that severity, 1 to 5", **options}
        return DatasetRecord(
            name=self.name,
            title=self.title,
            classes=len(self.classes),
            targets=self.usual,
            stream="dirichlet",
            network="resnet18",
            opens=self.open,
            checks=self.checks,
            prepares=self.prepare,
            table=self.table,
            options=options,
            **facts,
        )

    def open(self, root: Path, *, severity: int | None = None, imbalance: float = 1) -> Dataset:
        """Open the clean images and the corruptions at one severity, the last by default, all classes alike or not."""
        severity = check_severity(self.severities[-1] if severity is None else severity)
        places = [*(root / folder for folder in self.clean), *self.folders(root)]
        if not any(place.is_dir() for place in places):
            raise MissingData(f"{self.name} data", places, f"note-tta data download {self.name}")
        openers = {split: partial(self._open_clean, root, split) for split in ("train", "test")}
        for corruption in (*self.usual, *self.validation, *self.own):
            openers[corruption] = partial(self._open_corruption, root, corruption, severity)
        shape = (self.shape[2], *self.shape[:2])
        facts = self.name, self.title, self.classes, shape, self.usual
        return thin_out(Dataset(*facts, "dirichlet", openers, validation=self.validation), imbalance)

    @property
    def severities(self) -> tuple[int, ...]:
        """The severities that a file holds, in equal blocks; MNIST-C has one."""
        return (1,) if self.table == "mnist" else SEVERITIES

    def folders(self, root: Path) -> tuple[Path, Path]:
        """The folders of the published and the regenerated set."""
        return root / self.folder, root / f"{self.folder}-regenerated"

    def files(self, folder: Path, corruption: str) -> tuple[Path, Path]:
        """The images and the labels of a corruption in one of these folders."""
        return folder / self.images.format(corruption), folder / self.labels.format(corruption)

    def _open_clean(self, root: Path, split: str) -> Domain:
        return image_domain(split, *self.read_clean(root, split), origin="published")

    def _open_corruption(self, root: Path, corruption: str, severity: int) -> Domain:
        published, regenerated = self.folders(root)
        at = "" if self.table == "mnist" else f" --severity {severity}"
        named = "" if corruption in self.usual else f" --corruption {corruption}"
        making = f"note-tta data prepare {self.name}{at}{named}"
        for folder in (published, regenerated):
            file, labels_file = self.files(folder, corruption)
            if not file.is_file():
                continue
            if folder == regenerated:
                Manifest.read(folder, self.table).require(corruption, severity, making)
            images = load_array(file, dtype="uint8", tail=self.shape)
            codes = load_array(labels_file, dtype="integer", tail=())
            labels = check_labels(codes, len(self.classes), labels_file)
            if len(images) != len(labels) or len(images) % len(self.severities):
                blocks = "" if self.table == "mnist" else " in five equal severity blocks"
                raise BadData(file, f"{len(images)} images for {len(labels)} labels{blocks}")
            size = len(images) // len(self.severities)
            block = slice((severity - 1) * size, severity * size)
            origin: Origin = "published" if folder == published else "regenerated"
            return image_domain(corruption, images[block], labels[block], origin=origin)
        places = [self.files(folder, corruption)[0] for folder in (published, regenerated)]
        command = f"note-tta data download {self.name} (or: {making})"
        what = f"{self.name} {corruption}" + ("" if self.table == "mnist" else f" at severity {severity}")
        raise MissingData(what, places, making if corruption in self.own else command)

    def checks(self, root: Path) -> Iterator[Check]:
        """Count the clean and the corrupted samples; if there is only a regenerated set, hash it instead."""
        dataset = self.open(root)
        for split, expected in self.published.items():
            yield count(dataset, split, expected)
        folder, regenerated = self.folders(root)
        if regenerated.is_dir() and not folder.is_dir():
            yield from self.check_regenerated(root)
            return
        for corruption in self.usual if folder.is_dir() else self.usual[:1]:
            yield count(dataset, corruption, self.published["test"])

    def check_regenerated(self, root: Path) -> Iterator[Check]:
        """Hash every block in the manifest, and list the missing corruptions and severities."""
        folder = self.folders(root)[1]
        manifest = Manifest.read(folder, self.table)
        facts = f"seed {manifest.seed}, engine {manifest.version}, {manifest.textures} frost"
        yield Check("manifest", True, facts)
        for corruption in self.usual:
            done = manifest.parts(corruption)
            if done:
                yield attempt(corruption, partial(self._check_hashes, folder, corruption, done))
            else:
                yield Check(corruption, False, f"missing: not in {folder / 'manifest.json'}")

    def _check_hashes(self, folder: Path, corruption: str, done: Mapping[str, str]) -> Check:
        file, _ = self.files(folder, corruption)
        if not file.is_file():
            return Check(corruption, False, f"missing: {file}")
        images = load_array(file, dtype="uint8")
        size = len(images) // len(self.severities)
        for level, expected in done.items():
            block = images[(int(level) - 1) * size : int(level) * size]
            if hashlib.sha256(block.tobytes()).hexdigest() != expected:
                detail = f"{file}: severity {level} differs from its checksum; delete it"
                return Check(corruption, False, detail)
        absent = [str(level) for level in self.severities if str(level) not in done]
        note = f"; severities not made: {', '.join(absent)}" if absent else ""
        right = f"{size:,} images, checksums right for severity {', '.join(done)}"
        return Check(corruption, True, right + note)

    def prepare(self, root: Path, wanted: Wanted) -> Path:
        """Regenerate the wanted parts that are missing."""
        chosen, levels = wanted_parts(self.name, self.table, self.usual, wanted)
        with pool(wanted.workers) as run:
            maker = _Maker(self, root, wanted.seed, run, wanted.progress)
            with only_one(maker.folder):
                for corruption in chosen:
                    maker.make(corruption, levels)
        return maker.folder


def wanted_parts(
    dataset: str, table: Table, usual: tuple[str, ...], wanted: Wanted
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The corruptions and severities to make; unknown ones are refused."""
    severities = wanted.severities
    chosen = usual if wanted.corruptions is None else wanted.corruptions
    for corruption in chosen:
        check_known("corruption", corruption, TABLES[table], of=dataset)
    if table != "mnist":
        return chosen, tuple(sorted({check_severity(s) for s in severities or SEVERITIES}))
    if severities is not None and set(severities) != {1}:
        raise ValueError("MNIST-C has a single severity; leave --severity out")
    return chosen, (1,)


class _Maker:
    """Makes the npy files of a corrupted set, each under a temporary name until it is complete.

    A file may hold only some severities (the others are holes in it); the manifest says which.
    """

    def __init__(self, corrupted: CorruptedSet, root: Path, seed: int, run: Map, progress: Progress) -> None:
        self.set = corrupted
        self.images, self.labels = corrupted.read_clean(root, "test")
        self.folder = corrupted.folders(root)[1]
        self.seed, self.run, self.progress = seed, run, progress
        self.textures, texture_origin = frost_textures(root)
        made = (corrupted.name, seed, ENGINE_VERSION, content_digest(self.images), texture_origin)
        self.manifest = Manifest.open(self.folder, Manifest(*made, table=corrupted.table))

    def make(self, corruption: str, severities: Sequence[int]) -> None:
        """Make the file of one corruption, and keep the severities that it already holds."""
        file, labels_file = self.set.files(self.folder, corruption)
        missing = [s for s in severities if not self.manifest.has(corruption, s) or not file.is_file()]
        if not missing:
            return
        kept = self.manifest.parts(corruption) if file.is_file() else {}
        digests = {level: digest for level, digest in kept.items() if int(level) not in missing}
        blocks, total = len(self.set.severities), len(self.images)
        with replacing(labels_file) as temporary, temporary.open("wb") as stream:
            np.save(stream, np.tile(self.labels, blocks).astype(np.uint8))
        with replacing(file) as temporary, temporary.open("wb+") as stream:
            start = self._allocate(stream, blocks)
            for level in map(int, list(digests)):
                stream.seek(start + (level - 1) * self.images.nbytes)
                stream.write(load_array(file, dtype="uint8")[(level - 1) * total : level * total].tobytes())
            for severity in missing:
                stream.seek(start + (severity - 1) * self.images.nbytes)
                digests[str(severity)] = self._fill(stream, corruption, severity)
        self.manifest.done[corruption] = dict(sorted(digests.items()))
        parameters = {level: self.manifest.wanted(corruption, int(level)) for level in digests}
        self.manifest.parameters[corruption] = parameters
        self.manifest.write()

    def _allocate(self, stream: BinaryIO, blocks: int) -> int:
        """Write the npy header and set the final size of the file; returns where the values start."""
        shape = (blocks * len(self.images), *self.images.shape[1:])
        np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
        start = stream.tell()
        stream.truncate(start + blocks * self.images.nbytes)
        return start

    def _fill(self, stream: BinaryIO, corruption: str, severity: int) -> str:
        """Write one severity block and return the SHA-256 of its bytes."""
        ice = self.textures if corruption == "frost" else None
        made = partial(_corrupt, corruption, severity, table=self.set.table, seed=self.seed, textures=ice)
        firsts = range(0, len(self.images), CHUNK)
        what = corruption if self.set.table == "mnist" else f"{corruption} {severity}"
        digest = hashlib.sha256()
        changed = self.run(made, (self.images[first : first + CHUNK] for first in firsts), firsts)
        for first, images in zip(firsts, changed, strict=True):
            stream.write(images.tobytes())
            digest.update(images)
            self.progress(what, first + len(images), len(self.images))
        return digest.hexdigest()


def _corrupt(name: str, severity: int, images: Pixels, first: int, **settings: Any) -> Pixels:
    """`corrupt`, with the arguments that differ between jobs last."""
    return corrupt(images, name, severity, first_block=first // BLOCK, **settings)
