"""ImageNet and ImageNet-C from folders of pictures, decoded only when a sample is needed.

Clean: `imagenet/train/<wnid>/*.JPEG` and `imagenet/val/<wnid>/*.JPEG`. Corrupted:
`ImageNet-C/<corruption>/<severity>/<wnid>/*.JPEG`, already 224x224; sets made by `note-tta data prepare` lie
in `ImageNet-C-regenerated/`. Classes are the sorted wnids, as every public ImageNet model numbers them.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..files import only_one, replacing
from .base import BadData, Dataset, Domain, Floats, IntArray, MissingData, Origin, Pixels, first_folder
from .corrupted import wanted_parts
from .corruptions.engine import ENGINE_VERSION, corrupt
from .corruptions.names import CORRUPTIONS, OWN_CORRUPTIONS, check_severity
from .corruptions.textures import frost_textures
from .manifest import Manifest
from .pictures import class_names, list_pictures, read_picture_file
from .pool import pool
from .record import Archive, Check, DatasetRecord, Recipe, Wanted, count

SIDE = 224
CLASSES, PUBLISHED = 1_000, {"train": 1_281_167, "test": 50_000}
_HOW = "note-tta data download imagenet (which explains how)"
_SUFFIXES = {".jpeg", ".jpg", ".png"}
_QUALITY = 85  # of the JPEG files, as in the published set
_GROUP = 16  # pictures of one job
_LARGEST = 1 << 28  # pixels: a picture that claims more is not one of ImageNet's


def open_imagenet(root: Path, *, severity: int = 5) -> Dataset:
    """Open ImageNet and ImageNet-C at one severity; opening lists folders, it reads no picture."""
    check_severity(severity)
    published, regenerated = _corrupted_folders(root)
    places = [*_clean_folders(root), published, regenerated]
    classes = _classes(root, severity)
    if not classes:
        raise MissingData("imagenet data", places, _HOW)
    openers = {name: partial(_clean_domain, root, name, classes) for name in ("train", "test")}
    for corruption in (*CORRUPTIONS, *OWN_CORRUPTIONS):
        openers[corruption] = partial(_corrupted_domain, root, corruption, severity, classes)
    return IMAGENET.dataset(classes=classes, input_shape=(3, SIDE, SIDE), openers=openers)


def _clean_folders(root: Path) -> list[Path]:
    return [root / "imagenet", root / "ImageNet", root / "ILSVRC2012"]


def _corrupted_folders(root: Path) -> tuple[Path, Path]:
    """Where the published and where the regenerated corrupted set lie."""
    return root / "ImageNet-C", root / "ImageNet-C-regenerated"


def _clean_split(root: Path, split: str) -> Path:
    """The folder of class folders of a clean split."""
    places = [folder / split for folder in _clean_folders(root)]
    return first_folder(places, f"ImageNet {split} pictures", _HOW)


def read_picture(file: Path) -> Pixels:
    """A picture as RGB `[224, 224, 3]`: shorter side to 256, the centre cut out, unless it has that size."""
    colour = read_picture_file(file, most=_LARGEST)
    if min(colour.size) < 8:
        raise BadData(file, f"{colour.width}×{colour.height} is too small for a picture of ImageNet")
    if colour.size != (SIDE, SIDE):
        ratio = 256 / min(colour.size)
        width, height = (max(SIDE, round(side * ratio)) for side in colour.size)
        colour = colour.resize((width, height), Image.Resampling.BILINEAR)
        left, top = (width - SIDE) // 2, (height - SIDE) // 2
        colour = colour.crop((left, top, left + SIDE, top + SIDE))
    return np.asarray(colour)


def _domain(name: str, folder: Path, classes: tuple[str, ...], origin: Origin) -> Domain:
    """A domain over the pictures in class folders, each decoded when it is needed."""
    pictures = list_pictures(folder, classes, _SUFFIXES)

    def inputs(indices: IntArray) -> Floats:
        decoded = np.array([read_picture(pictures[index][0]) for index in indices], np.float32)
        return decoded.reshape(-1, SIDE, SIDE, 3).transpose(0, 3, 1, 2) / np.float32(255)

    labels = np.array([label for _, label in pictures])
    return Domain(name, labels, inputs, partial(_digest, pictures), origin)


def _digest(pictures: list[tuple[Path, int]]) -> str:
    """Names, labels and sizes: hashing every picture's bytes would read the whole split."""
    digest = hashlib.sha256()
    for file, label in pictures:
        digest.update(f"{file.parent.name}/{file.name} {label} {file.stat().st_size}\n".encode())
    return f"names:{digest.hexdigest()[:16]}"


def _classes(root: Path, severity: int) -> tuple[str, ...]:
    """Class names from the first folder that has them: the clean splits, then any corruption."""
    clean = [folder / split for folder in _clean_folders(root) for split in ("val", "train")]
    corrupted = [place / name / str(severity) for place in _corrupted_folders(root) for name in CORRUPTIONS]
    found = (class_names(folder) for folder in (*clean, *corrupted) if folder.is_dir())
    return next(filter(None, found), ())


def _clean_domain(root: Path, name: str, classes: tuple[str, ...]) -> Domain:
    return _domain(name, _clean_split(root, "val" if name == "test" else name), classes, "published")


def _corrupted_domain(root: Path, corruption: str, severity: int, classes: tuple[str, ...]) -> Domain:
    published, regenerated = _corrupted_folders(root)
    places = [folder / corruption / str(severity) for folder in (published, regenerated)]
    command = f"note-tta data prepare imagenet --severity {severity}"
    if places[0].is_dir():
        return _domain(corruption, places[0], classes, "published")
    if places[1].is_dir():
        Manifest.read(regenerated, "imagenet").require(corruption, severity, command)
        return _domain(corruption, places[1], classes, "regenerated")
    raise MissingData(f"ImageNet-C {corruption} at severity {severity}", places, command)


def _check(root: Path) -> Iterator[Check]:
    dataset = open_imagenet(root)
    found = len(dataset.classes)
    yield Check("classes", found == CLASSES, f"{found:,} class folders, published {CLASSES:,}")
    for split, expected in PUBLISHED.items():
        yield count(dataset, split, expected)
    present = [c for c in CORRUPTIONS if any((f / c).is_dir() for f in _corrupted_folders(root))]
    for corruption in present or CORRUPTIONS[:1]:
        yield count(dataset, corruption, PUBLISHED["test"])


def _prepare(root: Path, wanted: Wanted) -> Path:
    """Corrupt every validation picture (cut to 224x224) and save it as JPEG in the published folders.

    Pictures that are there already are kept: each appears under its name only when it is whole.
    """
    chosen, levels = wanted_parts("imagenet", "imagenet", CORRUPTIONS, wanted)
    clean = _clean_split(root, "val")
    pictures = [file for file, _ in list_pictures(clean, None, _SUFFIXES)]
    folder = _corrupted_folders(root)[1]
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
                settings = {"name": corruption, "severity": severity, "seed": wanted.seed, "textures": ice}
                work = partial(_work, clean, place, settings)
                firsts = range(0, len(pictures), _GROUP)
                groups = (pictures[first : first + _GROUP] for first in firsts)
                for first, made in zip(firsts, run(work, groups, firsts), strict=True):
                    wanted.progress(f"{corruption} {severity}", first + made, len(pictures))
                manifest.done.setdefault(corruption, {})[str(severity)] = f"{len(pictures)} pictures"
                manifest.write()
    return folder


def _work(clean: Path, place: Path, settings: dict[str, Any], files: Sequence[Path], first: int) -> int:
    for number, file in enumerate(files, start=first):
        target = (place / file.relative_to(clean)).with_suffix(".JPEG")
        if target.exists():
            continue
        changed = corrupt(read_picture(file)[None], table="imagenet", first_block=number, **settings)
        with replacing(target) as temporary:
            Image.fromarray(changed[0]).save(temporary, "JPEG", quality=_QUALITY, optimize=True)
    return len(files)


IMAGENET = DatasetRecord(
    name="imagenet",
    title="ImageNet-C",
    classes=CLASSES,
    targets=CORRUPTIONS,
    stream="sorted",
    network="resnet18_imagenet",
    recipe=Recipe(epochs=30, lr=0.001, batch_size=256, schedule="constant", flip=True, pretrained=True),
    opens=open_imagenet,
    checks=_check,
    options={"severity": "corruptions of that severity, 1 to 5"},
    prepares=_prepare,
    table="imagenet",
    archives=tuple(
        Archive(
            f"https://zenodo.org/records/2235448/files/{group}.tar",
            f"ImageNet-C/{proof}/5",
            size,
            md5,
            into="ImageNet-C",
        )
        for group, md5, proof, size in (
            ("noise", "e80562d7f6c3f8834afb1ecf27252745", "gaussian_noise", "21 GB"),
            ("blur", "2d8e81fdd8e07fef67b9334fa635e45c", "defocus_blur", "7 GB"),
            ("weather", "33ffea4db4d93fe4a428c40a6ce0c25d", "snow", "12 GB"),
            ("digital", "89157860d7b10d5797849337ca2e5c03", "contrast", "7 GB"),
        )
    ),
    note=(
        "the clean pictures need an account at https://image-net.org; unpack them as "
        "imagenet/train/<wnid>/ and imagenet/val/<wnid>/ under the data root"
    ),
)
