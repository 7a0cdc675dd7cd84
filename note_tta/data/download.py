"""Download published archives over HTTPS: a stopped download continues; files are checked, then unpacked."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..files import file_digest, only_one, replacing
from . import find_dataset
from .archives import unpack
from .base import BadData
from .record import Archive, Progress

Opener = Callable[[urllib.request.Request], Any]
FOLDER = "downloads"
TIMEOUT = 60


class _HttpsOnly(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        _check_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_https(url: str) -> None:
    if urllib.parse.urlsplit(url).scheme != "https":
        raise ValueError(f"only https addresses are fetched, not {url}")


def open_https(request: urllib.request.Request) -> Any:
    """Open an HTTPS address; a redirect to anything else is refused."""
    _check_https(request.full_url)
    return urllib.request.build_opener(_HttpsOnly).open(request, timeout=TIMEOUT)


def download(name: str, root: Path, **options: Any) -> list[str]:
    """Download and unpack the archives of a dataset that are missing; returns what was done.

    The options are those of `download_archive`.
    """
    return [download_archive(archive, root, **options) for archive in find_dataset(name).archives]


def download_archive(
    archive: Archive,
    root: Path,
    *,
    keep: bool = False,
    opener: Opener = open_https,
    progress: Progress = lambda what, done, total: None,
) -> str:
    """Download one archive, check it and put its files in place."""
    folder = root / FOLDER
    whole, part = folder / archive.name, folder / f"{archive.name}.part"
    if (root / archive.provides).exists() and not whole.exists() and not part.exists():
        return f"{archive.name}: already there ({archive.provides})"
    with only_one(folder):
        if not whole.exists():
            _fetch(archive, part, opener, progress)
            _check(archive, part)
            part.replace(whole)
        else:
            _check(archive, whole)
        if archive.packed:
            unpack(whole, root / archive.into)
        else:
            with replacing(root / archive.into / archive.name) as temporary:
                shutil.copyfile(whole, temporary)
        if not keep:
            whole.unlink()
    checked = "checksum right" if archive.md5 else "no published checksum to compare with"
    return f"{archive.name}: done ({checked})"


def _fetch(archive: Archive, part: Path, opener: Opener, progress: Progress) -> None:
    """Complete `part`, continuing from its current length."""
    start = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "note-tta", **({"Range": f"bytes={start}-"} if start else {})}
    try:
        response = opener(urllib.request.Request(archive.url, headers=headers))
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:  # nothing after our last byte: the part is complete, or another file
            return
        raise OSError(f"{archive.url} answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise OSError(f"cannot reach {archive.url}: {error.reason}") from error
    with response:
        size = start if response.status == 206 and _range_start(response) == start else 0
        length = response.headers.get("Content-Length") or ""
        total = size + int(length) if length.isdigit() else 0
        with part.open("ab" if size else "wb") as file:
            while chunk := _read(response, archive, part):
                file.write(chunk)
                size += len(chunk)
                progress(archive.name, size, total)
    if total and size != total:
        raise OSError(f"{archive.url} ended after {size} of {total} bytes; run the same command to continue")


def _read(response: Any, archive: Archive, part: Path) -> bytes:
    try:
        chunk: bytes = response.read(1 << 18)
    except OSError as error:
        advice = f"run the same command to continue {part}"
        raise OSError(f"{archive.url} broke off ({error}); {advice}") from error
    return chunk


def _range_start(response: Any) -> int:
    value = response.headers.get("Content-Range", "")
    first = value.removeprefix("bytes ").split("-")[0]
    return int(first) if first.isdigit() else -1


def _check(archive: Archive, file: Path) -> None:
    """Compare with the published checksum; a wrong file is removed, so that the next download starts again."""
    if archive.md5 is None:
        return
    found = file_digest(file, "md5")
    if found != archive.md5:
        file.unlink()
        problem = f"MD5 is {found}, published is {archive.md5}"
        raise BadData(file, f"{problem}; the file was removed, fetch it again")
