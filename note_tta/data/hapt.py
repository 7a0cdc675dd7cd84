"""HAPT: a smartphone at the waist, 50 Hz, 30 users, twelve activities and postural transitions.

`HAPT/RawData/` holds `acc_expEE_userUU.txt` and `gyro_expEE_userUU.txt` (three numbers per line) and
`labels.txt` (experiment, user, activity, first and last sample, counted from 1). Users 1-21 are the source,
each of 22-30 a target: its recordings in order, cut into windows of 50 samples inside one labelled segment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from .base import BadData, Dataset, Floats, MissingData, first_folder
from .record import Archive, Check, DatasetRecord, Recipe, count_windows
from .tables import read_numbers
from .windows import Windows, cut_windows, join, sensor_dataset

CLASSES = (
    *("walking", "walking_upstairs", "walking_downstairs", "sitting", "standing", "laying"),
    *("stand_to_sit", "sit_to_stand", "sit_to_lie", "lie_to_sit", "stand_to_lie", "lie_to_stand"),
)
SOURCE_USERS = tuple(range(1, 22))
TARGET_USERS = tuple(range(22, 31))
WINDOW = 50
PUBLISHED = {"recordings": 61, "users": 30, "labelled segments": 1_214}
_NAME = re.compile(r"acc_exp(\d+)_user(\d+)\.txt")


def open_hapt(root: Path, *, rotation: str | None = None) -> Dataset:
    """Open HAPT; `rotation`, such as "x90" or "z-45", turns the targets' frame by degrees about an axis.

    A rotated frame stands for the change of sensor position that HARTH has: the source keeps its frame.
    """
    turn = _rotation_matrix(rotation)
    folder = raw_folder(root)
    recordings = read_recordings(folder)
    users = sorted({user for _, user in recordings})
    present = [user for user in TARGET_USERS if user in users]
    targets = {f"user{user:02d}": partial(_read_users, folder, (user,), turn) for user in present}
    source = tuple(user for user in SOURCE_USERS if user in users)
    if not source:
        raise BadData(folder, "no recording of the source users 1-21")
    title = HAPT.title if rotation is None else f"{HAPT.title} ({rotation})"
    read_source = partial(_read_users, folder, source, None)
    return sensor_dataset(HAPT, CLASSES, (6, WINDOW), read_source, targets, "minmax", title=title)


def raw_folder(root: Path) -> Path:
    """The folder of the raw recordings."""
    bases = [root / "HAPT", root / "HAPT" / "HAPT Data Set", root / "HAPT Data Set"]
    places = [base / "RawData" for base in bases]
    return first_folder(places, "HAPT recordings", "note-tta data download hapt")


def read_recordings(folder: Path) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """The labelled segments (activity from 0, first, end) of every recording (experiment, user)."""
    recordings: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for file in sorted(folder.glob("acc_exp*_user*.txt")):
        match = _NAME.fullmatch(file.name)
        if match:
            recordings[int(match[1]), int(match[2])] = []
    if not recordings:
        raise MissingData("HAPT recordings", [folder / "acc_exp*_user*.txt"], "note-tta data download hapt")
    labels = folder / "labels.txt"
    if not labels.is_file():
        raise MissingData("HAPT labels", [labels], "note-tta data download hapt")
    for line, row in enumerate(read_numbers(labels, 5).astype(np.int64).tolist(), start=1):
        experiment, user, activity, first, last = row
        if (experiment, user) not in recordings:
            raise BadData(labels, f"experiment {experiment} of user {user} has no recording", line=line)
        if not 1 <= activity <= len(CLASSES):
            raise BadData(labels, f"unknown label {activity}; activities are 1-{len(CLASSES)}", line=line)
        if not 1 <= first <= last:
            raise BadData(labels, f"segment {first}-{last} is empty or starts before sample 1", line=line)
        recordings[experiment, user].append((activity - 1, first - 1, last))
    return recordings


def _read_users(folder: Path, users: tuple[int, ...], turn: Floats | None) -> Windows:
    parts = []
    for (experiment, user), segments in sorted(read_recordings(folder).items()):
        if user not in users:
            continue
        suffix = f"exp{experiment:02d}_user{user:02d}.txt"
        sensors = [read_numbers(folder / f"{sensor}_{suffix}", 3) for sensor in ("acc", "gyro")]
        if len(sensors[0]) != len(sensors[1]):
            problem = f"{len(sensors[1])} rows, the accelerometer has {len(sensors[0])}"
            raise BadData(folder / f"gyro_{suffix}", problem)
        if turn is not None:
            sensors = [sensor @ turn.T for sensor in sensors]
        rows = np.concatenate(sensors, axis=1)
        for activity, first, end in sorted(segments, key=lambda segment: segment[1]):
            if end > len(rows):
                problem = f"segment {first + 1}-{end} of {suffix} ends after its last row"
                raise BadData(folder / "labels.txt", problem)
            parts.append(cut_windows(rows[first:end], np.full(end - first, activity, np.int64), WINDOW))
    return join(parts)


def _rotation_matrix(rotation: str | None) -> Floats | None:
    if rotation is None:
        return None
    match = re.fullmatch(r"([xyz])(-?\d+(?:\.\d+)?)", rotation)
    if not match:
        raise ValueError(f'rotation must be an axis and degrees such as "x90", got {rotation!r}')
    axis, angle = "xyz".index(match[1]), math.radians(float(match[2]))
    matrix = np.eye(3)
    first, second = (axis + 1) % 3, (axis + 2) % 3
    matrix[[first, second], [first, second]] = math.cos(angle)
    matrix[first, second], matrix[second, first] = -math.sin(angle), math.sin(angle)
    return matrix.astype(np.float32)


def _check(root: Path) -> Iterator[Check]:
    recordings = read_recordings(raw_folder(root))
    found = {
        "recordings": len(recordings),
        "users": len({user for _, user in recordings}),
        "labelled segments": sum(map(len, recordings.values())),
    }
    for what, expected in PUBLISHED.items():
        yield Check(what, found[what] == expected, f"{found[what]:,}, published {expected:,}")
    dataset = open_hapt(root)
    for domain in ("source", *dataset.targets):
        yield count_windows(dataset, domain)


HAPT = DatasetRecord(
    name="hapt",
    title="HAPT",
    classes=len(CLASSES),
    targets=tuple(f"user{user:02d}" for user in TARGET_USERS),
    stream="chronological",
    network="sensor_cnn4",
    recipe=Recipe(epochs=100, lr=0.1, batch_size=64),
    opens=open_hapt,
    checks=_check,
    options={"rotation": "the targets' sensor turned, such as x90 or z-45 (axis and degrees)"},
    archives=(
        Archive(
            "https://archive.ics.uci.edu/static/public/341/"
            "smartphone+based+recognition+of+human+activities+and+postural+transitions.zip",
            "HAPT/RawData/labels.txt",
            "80 MB",
            into="HAPT",
        ),
    ),
    note="non-commercial use; cite Reyes-Ortiz et al. 2016",
)
