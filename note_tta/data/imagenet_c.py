"""Regenerate ImageNet-C from the clean validation folders, one picture a job."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from ..files import only_one, replacing
from .corrupted import wanted_parts
from .corruptions.engine import ENGINE_VERSION, corrupt
from .corruptions.names import CORRUPTIONS
from .corruptions.textures import Texture, frost_textures
from .imagenet import clean_split, corrupted_folders, list_pictures, read_picture
from .manifest import Manifest
from .pool import pool
from .record import Wanted

QUALITY = 85  # of the JPEG files, as in the published set
GROUP = 16  # pictures of one job


def prepare_imagenet(root: Path, wanted: Wanted) -> Path:
    """Corrupt every validation picture (cut to 224x224) and save it as JPEG in the published folders.

    Pictures that are there already are kept: each appears under its name only when it is whole.
    """
    chosen, levels = wanted_parts("imagenet", "imagenet", CORRUPTIONS, wanted)
    clean = clean_split(root, "val")
    pictures = [file for file, _ in list_pictures(clean)]
    folder = corrupted_folders(root)[1]
    textures, texture_origin = frost_textures(root)
    names = "\n".join(f"{file.relative_to(clean)} {file.stat().st_size}" for file in pictures)
    source = f"names:{hashlib.sha256(names.encode()).hexdigest()[:16]}"
    wanted_set = Manifest("imagenet", wanted.seed, ENGINE_VERSION, source, texture_origin, table="imagenet")
    manifest = Manifest.open(folder, wanted_set)
    with pool(wanted.workers) as run, only_one(folder):
        manifest.write()
        for corruption in chosen:
            for severity in levels:
                if manifest.has(corruption, severity):
                    continue
                place = folder / corruption / str(severity)
                used = manifest.parameters.setdefault(corruption, {})
                current = manifest.wanted(corruption, severity)
                if used.get(str(severity), current) != current:
                    shutil.rmtree(place, ignore_errors=True)
                used[str(severity)] = current
                manifest.done.get(corruption, {}).pop(str(severity), None)
                manifest.write()
                ice = textures if corruption == "frost" else None
                jobs = (
                    (
                        clean,
                        pictures[first : first + GROUP],
                        first,
                        place,
                        corruption,
                        severity,
                        wanted.seed,
                        ice,
                    )
                    for first in range(0, len(pictures), GROUP)
                )
                done = 0
                for _, count in run(jobs, _work):
                    done += count
                    wanted.progress(f"{corruption} {severity}", done, len(pictures))
                manifest.done.setdefault(corruption, {})[str(severity)] = f"{len(pictures)} pictures"
                manifest.write()
    return folder


def _work(
    clean: Path,
    files: Sequence[Path],
    first: int,
    place: Path,
    corruption: str,
    severity: int,
    seed: int,
    textures: Sequence[Texture] | None,
) -> int:
    for number, file in enumerate(files, start=first):
        target = (place / file.relative_to(clean)).with_suffix(".JPEG")
        if target.exists():
            continue
        image = read_picture(file)[None]
        changed = corrupt(
            image, corruption, severity, table="imagenet", seed=seed, first_block=number, textures=textures
        )
        with replacing(target) as temporary:
            Image.fromarray(changed[0]).save(temporary, "JPEG", quality=QUALITY, optimize=True)
    return len(files)
