"""ExtraSensory: phone sensors summarised once a minute, labelled by their users in daily life.

One `<uuid>.features_labels.csv.gz` per user. A row is used if exactly one of the paper's five activities is
set and every feature of the accelerometer, gyroscope, magnetometer and audio is there. Windows are five such
rows that follow each other in the file under one label.

The paper names its seven targets but not its sixteen source users, nor the rule that left 23 of 60 users.
Here the source is the sixteen non-target users with the most windows (ties by uuid), or with the option
`source_seed` sixteen that are drawn at random. `DIFFERENCE` says how the counts compare with the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from .base import BadData, Dataset, MissingData, first_folder
from .record import Archive, Check, DatasetRecord, Recipe, count_windows
from .tables import read_columns, time_order
from .windows import Windows, cut_windows, join, sensor_dataset

CLASSES = ("lying_down", "sitting", "walking", "standing", "running")
_LABELS = ("LYING_DOWN", "SITTING", "FIX_walking", "OR_standing", "FIX_running")
LABEL_COLUMNS = tuple(f"label:{name}" for name in _LABELS)
PAPER_WINDOWS = {
    "4FC32141-E888-4BFF-8804-12559A491D8C": 844,
    "59818CD2-24D7-4D32-B133-24C2FE3801E5": 401,
    "61976C24-1C50-4355-9C49-AAE44A7D09F6": 776,
    "797D145F-3858-4A7F-A7C2-A4EB721E133C": 463,
    "A5CDF89D-02A2-4EC1-89F8-F534FDABDD96": 734,
    "C48CE857-A0DD-4DDB-BEA5-3A25449B2153": 850,
    "D7D20E2E-FC78-405D-B346-DBD3FD8FC92B": 794,
}
PAPER_SOURCE_WINDOWS = 17_777
DIFFERENCE = (
    "the paper's counts are not reachable exactly: user 4FC has 4,171 rows with exactly one of the labels, "
    "at most 834 windows of five, where the paper has 844; it does not say how it treated rows with missing "
    "features or windows across a change of label, nor which sixteen users were its source"
)
SOURCE_USERS, PUBLISHED_USERS = 16, 60
WINDOW = 5
FOLDER = "ExtraSensory.per_uuid_features_labels"
SUFFIX = ".features_labels.csv.gz"


def _feature_columns() -> tuple[str, ...]:
    moments = ("mean", "std", "moment3", "moment4", "percentile25", "percentile50", "percentile75")
    statistics = (*moments, "value_entropy", "time_entropy")
    names: list[str] = []
    for sensor in ("raw_acc", "proc_gyro", "raw_magnet"):
        names += [f"{sensor}:magnitude_stats:{name}" for name in statistics]
        names += [f"{sensor}:magnitude_spectrum:log_energy_band{band}" for band in range(5)]
        names += [f"{sensor}:magnitude_spectrum:spectral_entropy"]
        names += [f"{sensor}:magnitude_autocorrelation:{name}" for name in ("period", "normalized_ac")]
        names += [f"{sensor}:3d:{kind}_{axis}" for kind in ("mean", "std") for axis in "xyz"]
        names += [f"{sensor}:3d:ro_{pair}" for pair in ("xy", "xz", "yz")]
    names += [f"raw_magnet:avr_cosine_similarity_lag_range{lag}" for lag in range(5)]
    names += [f"audio_naive:mfcc{band}:{kind}" for kind in ("mean", "std") for band in range(13)]
    names += ["audio_properties:max_abs_value", "audio_properties:normalization_multiplier"]
    return tuple(names)


FEATURE_COLUMNS = _feature_columns()


def open_extrasensory(root: Path, *, source_seed: int | None = None) -> Dataset:
    """Open ExtraSensory; targets go by the first three characters of their uuid, as in the paper.

    With `source_seed` the sixteen source users are drawn at random, with this seed.
    """
    if source_seed is not None and (type(source_seed) is not int or source_seed < 0):
        raise ValueError(f"source_seed must be a whole number of at least 0, got {source_seed!r}")
    folder = user_folder(root)
    users = sorted(file.name.removesuffix(SUFFIX) for file in folder.glob(f"*{SUFFIX}"))
    if not users:
        places = [folder / f"*{SUFFIX}"]
        raise MissingData("ExtraSensory user files", places, "note-tta data download extrasensory")
    present = {uuid[:3]: uuid for uuid in PAPER_WINDOWS if uuid in users}
    targets = {name: partial(read_user, folder / f"{uuid}{SUFFIX}") for name, uuid in present.items()}
    others = tuple(user for user in users if user not in PAPER_WINDOWS)

    def source() -> Windows:
        return join([windows for _, windows in source_users(folder, others, source_seed)])

    shape = (len(FEATURE_COLUMNS), WINDOW)
    return sensor_dataset(EXTRASENSORY, CLASSES, shape, source, targets, "standard")


def user_folder(root: Path) -> Path:
    """The folder of the per-user files."""
    places = [root / FOLDER, root / "ExtraSensory"]
    return first_folder(places, "ExtraSensory user files", "note-tta data download extrasensory")


def source_users(folder: Path, users: tuple[str, ...], seed: int | None = None) -> list[tuple[str, Windows]]:
    """The sixteen of `users` with the most windows, or sixteen at random with a seed; in the order of their uuids."""
    windows = {user: read_user(folder / f"{user}{SUFFIX}") for user in users}
    usable = [user for user in users if len(windows[user].labels)]
    if not usable:
        raise BadData(folder, "no source user has a complete window of five rows")
    if seed is None:
        ordered = sorted(usable, key=lambda user: (-len(windows[user].labels), user))
    else:
        ordered = [usable[i] for i in np.random.default_rng(seed).permutation(len(usable))]
    return [(user, windows[user]) for user in sorted(ordered[:SOURCE_USERS])]


def read_user(file: Path) -> Windows:
    """The windows of one user, unscaled; rows without one clear label or with gaps are left out."""
    columns = ("timestamp", *FEATURE_COLUMNS, *LABEL_COLUMNS)
    table, _ = read_columns(file, columns, blank=True)
    table = table[time_order(file, table[:, 0])]
    features, flags = table[:, 1 : 1 + len(FEATURE_COLUMNS)], table[:, 1 + len(FEATURE_COLUMNS) :]
    strange = np.argwhere(np.isfinite(flags) & (flags != 0) & (flags != 1))
    if len(strange):
        row, column = strange[0]
        problem = f"unknown label {flags[row, column]:g}; it must be 0, 1 or empty"
        raise BadData(file, f"column {LABEL_COLUMNS[column]}: {problem}", line=int(row) + 2)
    flags = np.nan_to_num(flags)
    usable = (flags.sum(axis=1) == 1) & np.isfinite(features).all(axis=1)
    labels = np.where(usable, flags.argmax(axis=1), -1)
    return cut_windows(features, labels, WINDOW)


def _check(root: Path) -> Iterator[Check]:
    dataset, folder = open_extrasensory(root), user_folder(root)
    users = len(list(folder.glob(f"*{SUFFIX}")))
    yield Check("users", users == PUBLISHED_USERS, f"{users} user files, published {PUBLISHED_USERS}")
    yield count_windows(dataset, "source", PAPER_SOURCE_WINDOWS)
    for uuid, expected in PAPER_WINDOWS.items():
        yield count_windows(dataset, uuid[:3], expected, missing=f"{folder / uuid}{SUFFIX}")
    yield Check("difference", None, DIFFERENCE)


EXTRASENSORY = DatasetRecord(
    name="extrasensory",
    title="ExtraSensory",
    classes=len(CLASSES),
    targets=tuple(uuid[:3] for uuid in PAPER_WINDOWS),
    stream="chronological",
    network="sensor_cnn2",
    recipe=Recipe(epochs=100, lr=0.1, batch_size=64),
    opens=open_extrasensory,
    checks=_check,
    archives=(
        Archive(
            f"https://extrasensory.ucsd.edu/data/primary_data_files/{FOLDER}.zip",
            f"{FOLDER}/{next(iter(PAPER_WINDOWS))}{SUFFIX}",
            "215 MB",
            into=FOLDER,
        ),
    ),
    options={"source_seed": "the sixteen source users drawn at random, with this seed"},
    source_options=("source_seed",),
    note=(
        "the publisher's site may answer over http only; if so, fetch the zip from extrasensory.ucsd.edu "
        "yourself and unpack it as ExtraSensory.per_uuid_features_labels/; CC BY-NC-SA 4.0"
    ),
)
