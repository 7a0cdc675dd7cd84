"""HARTH: accelerometers at the lower back and the thigh, 50 Hz, 22 people in free living.

`harth/S006.csv` ... `S029.csv` with the columns timestamp, back_x, back_y, back_z, thigh_x, thigh_y, thigh_z,
label; an extra index column is ignored. As in the paper the source is the **back** sensor of fifteen people;
the targets are the **thigh** sensor of the other seven, so the sensor's place shifts with the person.
Windows are 50 samples inside one label; values are min-max scaled by the source's range.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from .base import BadData, Dataset, MissingData, first_folder
from .record import Archive, Check, DatasetRecord, Recipe, count_windows
from .tables import read_columns, time_order
from .windows import Windows, cut_windows, join, sensor_dataset

LABELS = {
    **{1: "walking", 2: "running", 3: "shuffling", 4: "stairs_up", 5: "stairs_down", 6: "standing"},
    **{7: "sitting", 8: "lying", 13: "cycling_sit", 14: "cycling_stand"},
    **{130: "cycling_sit_inactive", 140: "cycling_stand_inactive"},
}
TARGETS = ("S008", "S018", "S019", "S021", "S022", "S028", "S029")
PAPER_WINDOWS = dict(zip(TARGETS, (8140, 6241, 5846, 5910, 6448, 3271, 3521), strict=True))
PAPER_SOURCE_WINDOWS = 82_544
WINDOW = 50
Sensor = Literal["back", "thigh"]


def open_harth(root: Path) -> Dataset:
    """Open HARTH: source from the back of fifteen people, targets from the thigh of seven."""
    folder = subject_folder(root)
    files = {file.stem: file for file in sorted(folder.glob("S[0-9][0-9][0-9].csv"))}
    source = tuple(file for subject, file in files.items() if subject not in TARGETS)
    if not source:
        raise MissingData("HARTH source subjects", [folder / "S*.csv"], "note-tta data download harth")
    targets = {name: partial(_read_subjects, (files[name],), "thigh") for name in TARGETS if name in files}
    read_source = partial(_read_subjects, source, "back")
    return sensor_dataset(HARTH, tuple(LABELS.values()), (3, WINDOW), read_source, targets, "minmax")


def subject_folder(root: Path) -> Path:
    """The folder of the per-subject files."""
    places = [root / "harth", root / "HARTH"]
    return first_folder(places, "HARTH subject files", "note-tta data download harth")


def read_subject(file: Path, sensor: Sensor) -> Windows:
    """The windows of one person's sensor, unscaled, in time order."""
    columns = [*(f"{sensor}_{axis}" for axis in "xyz"), "label"]
    numbers, texts = read_columns(file, columns, text=["timestamp"])
    classes = {code: index for index, code in enumerate(LABELS)}
    codes = numbers[:, 3]
    unknown = np.flatnonzero(~np.isin(codes, list(LABELS)))
    if len(unknown):
        raise BadData(file, f"unknown label {codes[unknown[0]]:g}", line=int(unknown[0]) + 2)
    try:
        times = np.array([row[0] for row in texts], dtype="datetime64[us]").astype(np.float64)
    except ValueError as error:
        raise BadData(file, f"column timestamp: {error}") from error
    labels = np.array([classes[int(code)] for code in codes], dtype=np.int64)
    order = time_order(file, times)
    return cut_windows(numbers[order, :3], labels[order], WINDOW)


def _read_subjects(files: tuple[Path, ...], sensor: Sensor) -> Windows:
    return join([read_subject(file, sensor) for file in files])


def _check(root: Path) -> Iterator[Check]:
    dataset = open_harth(root)
    yield count_windows(dataset, "source", PAPER_SOURCE_WINDOWS)
    for subject, expected in PAPER_WINDOWS.items():
        yield count_windows(dataset, subject, expected, missing=f"{subject_folder(root) / subject}.csv")


HARTH = DatasetRecord(
    name="harth",
    title="HARTH",
    classes=len(LABELS),
    targets=TARGETS,
    stream="chronological",
    network="sensor_cnn4",
    recipe=Recipe(epochs=100, lr=0.1, batch_size=64),
    opens=open_harth,
    checks=_check,
    archives=(
        Archive("https://archive.ics.uci.edu/static/public/779/harth.zip", "harth/S029.csv", "134 MB"),
    ),
)
