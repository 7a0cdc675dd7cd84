"""Render KITTI's tracking frames in rain once, so that reading them later costs no rendering."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from ..files import only_one, replacing
from .kitti import rainy_frame, regenerated_file, regenerated_folder, tracking_frames
from .pool import pool
from .record import Progress

GROUP = 8  # frames of one job


def prepare_kitti(
    root: Path,
    workers: int,
    progress: Progress,
) -> Path:
    """Render every labelled tracking frame; frames that are there already are kept.

    A frame's rain depends on its name only, so frames rendered now and frames rendered while reading are
    the same. Each appears under its name only when it is whole.
    """
    base = root / "kitti"
    frames = [frame.picture for frame in tracking_frames(base)]
    folder = regenerated_folder(base)
    with pool(workers) as run, only_one(folder):
        jobs = ((base, frames[first : first + GROUP]) for first in range(0, len(frames), GROUP))
        done = 0
        for _, count in run(jobs, _work):
            done += count
            progress("rain", done, len(frames))
    return folder


def _work(base: Path, files: Sequence[Path]) -> int:
    for file in files:
        target = regenerated_file(base, file)
        if not target.exists():
            with replacing(target) as temporary:
                Image.fromarray(rainy_frame(base, file)).save(temporary, "PNG")
    return len(files)
