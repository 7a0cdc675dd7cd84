"""List pictures by class, and read untrusted ones: a damaged or oversized one is refused."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from .base import BadData

MAX_PIXELS = 1 << 26
"""The largest picture that is decoded; it takes some hundred megabytes."""


def read_picture_file(
    file: Path, mode: str | None = "RGB", *, most: int | None = None, what: str = "picture"
) -> Image.Image:
    """A decoded picture, converted to a mode of Pillow's; None keeps its own.

    Raises:
        BadData: The file is no picture, or has more pixels than `most`, or `MAX_PIXELS`.
    """
    try:
        with Image.open(file) as picture:
            if picture.width * picture.height > (most := most or MAX_PIXELS):
                raise BadData(file, f"{picture.width}×{picture.height} pixels; at most {most:,} are read")
            if mode is not None and picture.mode[0] in "IF":  # Pillow would cut everything above 255 off
                raise BadData(
                    file, f"{what} of more than 8 bits per value (mode {picture.mode}); save it with 8"
                )
            picture.load()
            return picture.copy() if mode is None else picture.convert(mode)
    except (FileNotFoundError, BadData):
        raise
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadData(file, f"not a readable {what} ({error})") from error


def class_names(folder: Path) -> tuple[str, ...]:
    """The names of the class folders, sorted."""
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."))


def list_pictures(
    folder: Path, classes: tuple[str, ...] | None, suffixes: Collection[str]
) -> list[tuple[Path, int]]:
    """Every picture under class folders with its class index, sorted by class and name.

    A folder that is not one of the `classes` is refused; None takes all folders for classes.
    """
    names = class_names(folder) if classes is None else classes
    if extra := sorted(set(class_names(folder)) - set(names)):
        raise BadData(folder / extra[0], f"unknown class folder {extra[0]!r}")
    pictures = [
        (file, index)
        for index, name in enumerate(names)
        if (folder / name).is_dir()
        for file in sorted((folder / name).iterdir())
        if file.suffix.lower() in suffixes and file.name[0] != "."
    ]
    if not pictures:
        raise BadData(folder, f"no images in class folders; images end in {', '.join(sorted(suffixes))}")
    return pictures
