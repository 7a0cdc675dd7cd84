"""Writers of small files in the published formats, for datasets that a test cannot have."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
from PIL import Image


def write_cifar10(root: Path, *, train: int = 2, test: int = 20, seed: int = 0) -> None:
    generator = np.random.default_rng(seed)
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        count = test if name == "test_batch" else train
        batch = {
            b"batch_label": b"part",
            b"labels": [i % 10 for i in range(count)],
            b"data": generator.integers(0, 256, (count, 3072), dtype=np.uint8),
            b"filenames": [b"a.png"] * count,
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def write_cifar100(root: Path, *, train: int = 12, test: int = 10) -> None:
    generator = np.random.default_rng(1)
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, count in (("train", train), ("test", test)):
        batch = {
            b"fine_labels": [(7 * i) % 100 for i in range(count)],
            b"coarse_labels": [i % 20 for i in range(count)],
            b"data": generator.integers(0, 256, (count, 3072), dtype=np.uint8),
            b"filenames": [b"a.png"] * count,
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    meta = {b"fine_label_names": [b"apple"], b"coarse_label_names": [b"fruit"]}
    (folder / "meta").write_bytes(pickle.dumps(meta, protocol=2))


def write_cifar_c(folder: Path, corruption: str, *, count: int = 4, classes: int = 10) -> np.ndarray:
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(2).integers(0, 256, (5 * count, 32, 32, 3), dtype=np.uint8)
    np.save(folder / f"{corruption}.npy", images)
    np.save(folder / "labels.npy", np.tile(np.arange(count) % classes, 5))
    return images


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


def write_mnist(root: Path, *, train: int = 12, test: int = 20) -> None:
    generator = np.random.default_rng(3)
    for prefix, count in (("train", train), ("t10k", test)):
        folder = root / "MNIST" / "raw"
        write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", generator.integers(0, 256, (count, 28, 28)))
        write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", np.arange(count) % 10)


def write_hapt(root: Path, *, users: tuple[int, ...] = (1, 22)) -> None:
    folder = root / "HAPT" / "RawData"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(4)
    segments = []
    for experiment, user in enumerate(users, start=1):
        for sensor in ("acc", "gyro"):
            np.savetxt(
                folder / f"{sensor}_exp{experiment:02d}_user{user:02d}.txt", generator.normal(size=(400, 3))
            )
        segments += [
            (experiment, user, 5, 11, 170),
            (experiment, user, 12, 171, 230),
            (experiment, user, 1, 231, 390),
        ]
    (folder / "labels.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in segments))


def write_extrasensory_user(folder: Path, uuid: str, labels: list[int | None], *, shift: float = 0.0) -> Path:
    """One row a label: an index of the paper's five activities, or None for a row without any."""
    from note_tta.data.extrasensory import FEATURE_COLUMNS, LABEL_COLUMNS, SUFFIX

    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(5)
    lines = [",".join(["timestamp", *FEATURE_COLUMNS, "location:speed", *LABEL_COLUMNS, "label_source"])]
    for minute, label in enumerate(labels):
        features = generator.normal(size=len(FEATURE_COLUMNS)) + shift
        flags = ["1.0" if index == label else ("0.0" if index else "") for index in range(5)]
        lines.append(
            ",".join([str(1440000000 + 60 * minute), *(f"{v:.5f}" for v in features), "", *flags, "2"])
        )
    file = folder / f"{uuid}{SUFFIX}"
    file.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    return file


def write_harth_subject(
    folder: Path,
    subject: str,
    codes: list[tuple[int, int]],
    *,
    back: float = 0.0,
    thigh: float = 5.0,
    index: bool = False,
) -> Path:
    """`codes` lists (label, number of samples); back and thigh readings are a ramp above the given level."""
    folder.mkdir(parents=True, exist_ok=True)
    header = "timestamp,back_x,back_y,back_z,thigh_x,thigh_y,thigh_z,label"
    lines = [f",{header}" if index else header]
    row = 0
    for code, count in codes:
        for _ in range(count):
            time = np.datetime64("2019-01-12T00:00:00.000") + np.timedelta64(20 * row, "ms")
            ramp = (row % 50) / 50
            cells = [f"{back + ramp + axis:.3f}" for axis in range(3)] + [
                f"{thigh + ramp + axis:.3f}" for axis in range(3)
            ]
            line = ",".join([str(time).replace("T", " "), *cells, str(code)])
            lines.append(f"{row},{line}" if index else line)
            row += 1
    file = folder / f"{subject}.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def write_picture(path: Path, size: tuple[int, int] = (300, 260), seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BILINEAR).save(path)


def write_imagenet(
    root: Path, *, classes: tuple[str, ...] = ("n01440764", "n01443537"), each: int = 2
) -> None:
    for number, name in enumerate(classes):
        for split in ("train", "val"):
            for picture in range(each):
                write_picture(root / "imagenet" / split / name / f"{name}_{picture}.JPEG", seed=number)


def write_kitti(root: Path) -> None:
    objects = root / "kitti" / "object" / "training"
    boxes = {"000000": "Car 0.00 0 1.5 10.0 20.0 60.0 70.0 1 1 1 0 0 0 0"}
    boxes["000001"] = "Van 0.00 0 1.5 0 0 10 10 1 1 1 0 0 0 0\nTram 0.00 0 1.5 5.5 5.5 90 60 1 1 1 0 0 0 0"
    (objects / "label_2").mkdir(parents=True)
    for number, text in boxes.items():
        (objects / "label_2" / f"{number}.txt").write_text(text + "\n")
        write_picture(objects / "image_2" / f"{number}.png", (124, 75), int(number))
    tracking = root / "kitti" / "tracking" / "training"
    (tracking / "label_02").mkdir(parents=True)
    lines = [
        "0 1 Person 0 0 1.5 10 10 40 60 1 1 1 0 0 0 0",
        "0 -1 DontCare -1 -1 -10 0 0 5 5 -1 -1 -1 0 0 0 0",
    ]
    lines += ["2 1 Cyclist 0 0 1.5 20 10 60 70 1 1 1 0 0 0 0"]
    (tracking / "label_02" / "0000.txt").write_text("\n".join(lines) + "\n")
    for frame in range(3):
        write_picture(tracking / "image_02" / "0000" / f"{frame:06d}.png", (124, 75), frame)
