"""KITTI as a stream of single objects: each frame is cut to its largest labelled box.

Source: the object set, `kitti/object/training/{image_2/*.png,label_2/*.txt}`. Target: the tracking set in
order, `kitti/tracking/training/{image_02/<sequence>/<frame>.png,label_02/<sequence>.txt}`, in rain of 200
mm/hr: frames of a rendered tree `kitti/tracking_rain/training/image_02/` where the user has one, rendered
here otherwise, from 16-bit depth maps in `kitti/tracking/training/depth_02/` (metres times 256) or the
flat-road prior.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from ..files import only_one, replacing
from .base import BadData, Dataset, Domain, Floats, IntArray, MissingData, Origin, Pixels, content_digest
from .pictures import read_picture_file
from .pool import pool
from .rain import render_rain
from .record import Archive, Check, DatasetRecord, Recipe, Wanted, count_windows
from .windows import HELD_OUT_EVERY

CLASSES = ("Car", "Van", "Truck", "Pedestrian", "Person_sitting", "Cyclist", "Tram", "Misc", "DontCare")
RATE = 200.0  # mm/hr, the paper's
TARGET = "rain_200"
SIDE = 224
PAPER_FRAMES = {"source": 7481, TARGET: 7800}
Box = tuple[float, float, float, float]


class Frame(NamedTuple):
    """One frame: its picture, the class and the box (left, top, right, bottom) of its largest object."""

    picture: Path
    label: int
    box: Box


def open_kitti(root: Path, *, rate: float = RATE, sequence: int | None = None) -> Dataset:
    """Open KITTI: the object set as source, the tracking set in rain of `rate` mm/hr as target.

    With `sequence` the target is only this sequence of the tracking set.
    """
    target = TARGET if rate == RATE else f"rain_{rate:g}"
    base = root / "kitti"
    if not base.is_dir():
        raise MissingData("kitti data", [base], "note-tta data download kitti")
    openers = {name: partial(_source_domain, base, name) for name in ("train", "test", "source")}
    openers["tracking"] = partial(_tracking_domain, base, "tracking", None, sequence)
    openers[target] = partial(_tracking_domain, base, target, rate, sequence)
    return KITTI.dataset(classes=CLASSES, input_shape=(3, SIDE, SIDE), targets=(target,), openers=openers)


def object_frames(base: Path) -> list[Frame]:
    """The frames of the object set, by number; frames without a labelled box are left out."""
    folder = base / "object" / "training"
    labels = _label_files(folder / "label_2", "object")
    found = [(file, [_parse(file, line, words, 0) for line, words in _lines(file)]) for file in labels]
    return [_largest(folder / "image_2" / f"{file.stem}.png", objects) for file, objects in found if objects]


def tracking_frames(base: Path, sequence: int | None = None) -> list[Frame]:
    """The frames of the tracking set, sequence by sequence in time order; or those of one sequence."""
    folder = base / "tracking" / "training"
    files = _label_files(folder / "label_02", "tracking")
    if sequence is not None:
        files = [file for file in files if file.stem == f"{sequence:04d}"]
        if not files:
            raise MissingData(
                f"sequence {sequence:04d} of KITTI's tracking set",
                [folder / "label_02" / f"{sequence:04d}.txt"],
                "note-tta data download kitti",
            )
    frames = []
    for file in files:
        by_frame: dict[int, list[tuple[int, Box]]] = {}
        for line, words in _lines(file):
            if not words[0].isdecimal():
                raise BadData(file, f"the first field must be a frame number, found {words[0]!r}", line=line)
            by_frame.setdefault(int(words[0]), []).append(_parse(file, line, words, 2))
        pictures = folder / "image_02" / file.stem
        frames += [_largest(pictures / f"{number:06d}.png", by_frame[number]) for number in sorted(by_frame)]
    return frames


def read_frame(file: Path) -> Pixels:
    """A frame as RGB `[H, W, 3]`."""
    if not file.is_file():
        raise MissingData("a KITTI frame", [file], "note-tta data download kitti")
    return np.asarray(read_picture_file(file))


def rain_folders(base: Path, rate: float = RATE) -> tuple[Path, Path]:
    """The user's rendered tree, and where `note-tta data prepare kitti` keeps the frames that it renders."""
    return base / "tracking_rain", base / f"tracking_rain_{rate:g}-regenerated"


def rainy_frame(base: Path, file: Path, rate: float = RATE) -> Pixels:
    """The frame in rain: from a rendered tree that has the file, else rendered now, always the same."""
    inside = file.relative_to(base / "tracking")
    for folder in rain_folders(base, rate)[0 if rate == RATE else 1 :]:
        if (folder / inside).is_file():
            return read_frame(folder / inside)
    image = read_frame(file)
    depth_file = base / "tracking" / "training" / "depth_02" / file.parent.name / file.name
    depth = _read_depth(depth_file, image.shape[:2]) if depth_file.is_file() else None
    number = zlib.crc32(f"{file.parent.name}/{file.name}".encode())
    return render_rain(image, rate=rate, depth=depth, seed=number)


def crop(image: Pixels, box: Box, file: Path) -> Pixels:
    """The box cut out of the frame and brought to 224x224."""
    height, width = image.shape[:2]
    left, top = max(0, int(box[0])), max(0, int(box[1]))
    right, bottom = min(width, int(np.ceil(box[2]))), min(height, int(np.ceil(box[3])))
    if right - left < 1 or bottom - top < 1:
        raise BadData(file, f"the labelled box {box} lies outside this {width}x{height} picture")
    part = Image.fromarray(image[top:bottom, left:right])
    return np.asarray(part.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def _label_files(folder: Path, kind: str) -> list[Path]:
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise MissingData(f"KITTI {kind} labels", [folder / "*.txt"], "note-tta data download kitti")
    return files


def _lines(file: Path) -> list[tuple[int, list[str]]]:
    text = file.read_text(encoding="utf-8", errors="replace")
    return [(number, line.split()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]


def _parse(file: Path, line: int, words: list[str], first: int) -> tuple[int, Box]:
    """Class and box of one object; the type is field `first`, the box starts four fields later."""
    if len(words) < first + 8:
        raise BadData(file, f"expected at least {first + 8} fields, found {len(words)}", line=line)
    name = "Person_sitting" if words[first] == "Person" else words[first]  # the tracking set's short form
    if name not in CLASSES:
        raise BadData(file, f"unknown label {words[first]!r}", line=line)
    corners = words[first + 4 : first + 8]
    try:
        left, top, right, bottom = map(float, corners)
    except ValueError:
        raise BadData(file, f"the box must be four numbers, found {corners}", line=line) from None
    if not right > left or not bottom > top:
        raise BadData(file, f"the box {(left, top, right, bottom)} is empty", line=line)
    return CLASSES.index(name), (left, top, right, bottom)


def _largest(picture: Path, objects: list[tuple[int, Box]]) -> Frame:
    label, box = max(objects, key=lambda item: (item[1][2] - item[1][0]) * (item[1][3] - item[1][1]))
    return Frame(picture, label, box)


def _read_depth(file: Path, shape: tuple[int, ...]) -> Floats:
    depth = np.array(read_picture_file(file, None, what="depth map"), dtype=np.float32)
    depth /= 256
    if depth.shape != shape:
        raise BadData(file, f"depth map of {list(depth.shape)} for a frame of {list(shape)}")
    return depth


def _frames_domain(
    name: str, frames: list[Frame], read: Callable[[Path], Pixels], origin: Origin, extra: str = ""
) -> Domain:
    def inputs(indices: IntArray) -> Floats:
        result = np.zeros((len(indices), 3, SIDE, SIDE), np.float32)
        for place, index in enumerate(indices):
            frame = frames[index]
            result[place] = crop(read(frame.picture), frame.box, frame.picture).transpose(2, 0, 1)
        result /= 255
        return result

    def digest() -> str:
        names = "".join(f"{frame.picture.parent.name}/{frame.picture.name} {frame.box}\n" for frame in frames)
        return content_digest(np.frombuffer((extra + names).encode(), np.uint8), labels)

    labels = np.array([frame.label for frame in frames], dtype=np.int64)
    return Domain(name, labels, inputs, digest, origin)


def _source_domain(base: Path, name: str) -> Domain:
    frames = object_frames(base)
    outside = [number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 for number in range(len(frames))]
    wanted = {"source": (True, False), "train": (False,), "test": (True,)}[name]
    chosen = [frame for frame, out in zip(frames, outside, strict=True) if out in wanted]
    return _frames_domain(name, chosen, read_frame, "published")


def _tracking_domain(base: Path, name: str, rate: float | None, sequence: int | None) -> Domain:
    frames = tracking_frames(base, sequence)
    if rate is None:
        return _frames_domain(name, frames, read_frame, "published")
    places = [rain_folders(base)[0] / frame.picture.relative_to(base / "tracking") for frame in frames]
    rendered = rate == RATE and all(place.is_file() for place in places)
    read = partial(rainy_frame, base, rate=rate)
    return _frames_domain(name, frames, read, "published" if rendered else "regenerated", f"rain {rate}\n")


def _check(root: Path) -> Iterator[Check]:
    dataset = open_kitti(root)
    for domain, expected in PAPER_FRAMES.items():
        yield count_windows(dataset, domain, expected, exact=domain == "source")


def _prepare(root: Path, wanted: Wanted) -> Path:
    """Render every labelled tracking frame once, so that reading it later costs no rendering.

    Frames that are there already are kept. A frame's rain depends on its name only, not on the seed.
    """
    if wanted.corruptions is not None or wanted.severities is not None:
        raise ValueError("kitti is rendered in rain of 200 mm/hr; leave --corruption and --severity out")
    base = root / "kitti"
    frames = [frame.picture for frame in tracking_frames(base)]
    folder = rain_folders(base)[1]
    with pool(wanted.workers) as run, only_one(folder):
        for done, _ in enumerate(run(partial(_render, base), frames), start=1):
            wanted.progress("rain", done, len(frames))
    return folder


def _render(base: Path, file: Path) -> None:
    target = rain_folders(base)[1] / file.relative_to(base / "tracking")
    if not target.exists():
        with replacing(target) as temporary:
            Image.fromarray(rainy_frame(base, file)).save(temporary, "PNG")


def _archive(kind: str, part: str, folder: str, size: str) -> Archive:
    address = f"https://s3.eu-central-1.amazonaws.com/avg-kitti/data_{kind}_{part}.zip"
    return Archive(address, f"kitti/{kind}/training/{folder}", size, into=f"kitti/{kind}")


KITTI = DatasetRecord(
    name="kitti",
    title="KITTI",
    classes=len(CLASSES),
    targets=(TARGET,),
    stream="chronological",
    network="resnet50_imagenet",
    recipe=Recipe(
        epochs=50, lr=0.1, batch_size=64, optimizer="adam", weight_decay=0.0, flip=True, pretrained=True
    ),
    opens=open_kitti,
    checks=_check,
    options={"rate": "rain of this many mm/hr", "sequence": "only this sequence of the tracking set"},
    prepares=_prepare,
    archives=(
        _archive("object", "label_2", "label_2", "5 MB"),
        _archive("object", "image_2", "image_2", "12 GB"),
        _archive("tracking", "label_2", "label_02", "2 MB"),
        _archive("tracking", "image_2", "image_02", "15 GB"),
    ),
    note="KITTI's licence: CC BY-NC-SA 3.0; rain is rendered when frames are read, or once by prepare",
)
