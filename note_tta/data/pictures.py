"""Read untrusted pictures: a damaged or oversized one is refused."""

from __future__ import annotations

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
            picture.load()
            return picture.copy() if mode is None else picture.convert(mode)
    except (FileNotFoundError, BadData):
        raise
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadData(file, f"not a readable {what} ({error})") from error
