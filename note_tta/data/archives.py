"""Unpack an untrusted archive: no path leaves the folder, no links, and a failure leaves nothing behind."""

from __future__ import annotations

import errno
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from .base import BadData

EXPANSION = 200  # times the archive's own size; real datasets stay under 20
ALLOWANCE = 1 << 28  # bytes that even a tiny archive may hold
SMALLEST = 512  # bytes that every member counts for at least, so that empty files count too
LONGEST_HEADER = 1 << 20  # bytes of the header of a tar member; real ones have some hundred


def unpack(archive: Path, destination: Path) -> list[Path]:
    """Unpack a tar (any compression) or zip file into `destination`; returns the files written.

    Everything is first written to a temporary folder; the files move to their places only if the whole archive
    can be read.
    """
    destination.mkdir(parents=True, exist_ok=True)
    staging = destination / f".unpack-{archive.name}"
    shutil.rmtree(staging, ignore_errors=True)
    allowed = EXPANSION * archive.stat().st_size + ALLOWANCE
    try:
        written = []
        reader = _zip_members if zipfile.is_zipfile(archive) else _tar_members
        try:
            for name, stream in reader(archive):
                place = _inside(archive, name)
                target = staging / place
                target.parent.mkdir(parents=True, exist_ok=True)
                allowed -= max(SMALLEST, _copy(stream, target, allowed, archive))
                written.append(place)
        except BadData:
            raise
        except Exception as error:  # a damaged archive can raise nearly anything
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise  # of the disk, not of the archive
            problem = f"truncated or damaged archive ({' '.join(str(error).split())})"
            raise BadData(archive, f"{problem}; delete it and fetch it again") from error
        if not written:
            raise BadData(archive, "the archive holds no files")
        for place in written:
            (destination / place).parent.mkdir(parents=True, exist_ok=True)
            (staging / place).replace(destination / place)
        return [destination / place for place in written]
    finally:
        shutil.rmtree(staging, ignore_errors=True)


class _Header(tarfile.TarInfo):
    """A member whose header is not read into memory if it claims to be huge."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if not self.isreg() and not self.isdir() and self.size > LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        return super()._proc_member(tar)  # type: ignore[misc]


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive, tarinfo=_Header) as tar:
        for member in tar:
            tar.members = []  # type: ignore[attr-defined]  # it would keep every one
            if member.isdir():
                continue
            if not member.isreg():
                problem = f"{member.name!r} is a link or a device; only plain files are unpacked"
                raise BadData(archive, problem)
            stream = tar.extractfile(member)
            if stream is not None:
                yield member.name, stream


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as bundle:
        for entry in bundle.infolist():
            if entry.is_dir():
                continue
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise BadData(archive, f"{entry.filename!r} is a link; only plain files are unpacked")
            with bundle.open(entry) as stream:
                yield entry.filename, stream


def _inside(archive: Path, name: str) -> Path:
    """The member's path, if it stays inside the destination."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts or ":" in path.parts[0] or "\0" in name:
        raise BadData(archive, f"{name!r} would be written outside the data folder; nothing was unpacked")
    return Path(*path.parts)


def _copy(stream: IO[bytes], target: Path, allowed: int, archive: Path) -> int:
    size = 0
    with target.open("wb") as file:
        while chunk := stream.read(1 << 20):
            size += len(chunk)
            if size > allowed:
                raise BadData(archive, "it unpacks to far more than a dataset would; nothing was unpacked")
            file.write(chunk)
    return size
