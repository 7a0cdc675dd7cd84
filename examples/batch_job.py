"""A nightly job: classify the images of the day, learn from them, and save the state for the next day.

    python examples/batch_job.py today/ predictions.csv --state adapted.pt

Run it again on tomorrow's folder with the same state, and it continues where it stopped. If a job is killed, the
state of the day before stays intact.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
from digits_model import train_digits
from PIL import Image

import note_tta as tta

BATCH = 50


def read(path: Path) -> torch.Tensor:
    """Read an image as a grey 1x32x32 tensor in [0, 1]. A damaged file becomes NaN, from which NOTE does not learn."""
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("L").resize((32, 32)), dtype=np.float32)
    except OSError:
        pixels = np.full((32, 32), np.nan, dtype=np.float32)
    return torch.from_numpy(pixels / 255)[None]


def main() -> None:
    """Classify a folder, write a CSV, save the state."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("images", type=Path, help="a folder of images, taken in the order of their names")
    parser.add_argument("predictions", type=Path, help="the CSV to write: file, class, confidence")
    parser.add_argument("--state", type=Path, default=Path("adapted.pt"), help="where the state is kept")
    arguments = parser.parse_args()

    method = tta.NOTE(train_digits())
    if arguments.state.exists():
        tta.load_state(arguments.state, method)

    files = sorted(path for path in arguments.images.iterdir() if path.suffix.lower() in {".png", ".jpg"})
    rows = []
    for first in range(0, len(files), BATCH):
        part = files[first : first + BATCH]
        confidence, label = method(torch.stack([read(path) for path in part])).softmax(dim=1).max(dim=1)
        for path, value, own in zip(part, confidence.tolist(), label.tolist(), strict=True):
            rows.append((path.name, "", "") if np.isnan(value) else (path.name, own, f"{value:.3f}"))

    with arguments.predictions.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("file", "class", "confidence"))
        writer.writerows(rows)
    tta.save_state(arguments.state, method)
    refused = method.counters["rejected_samples"]
    print(f"{len(files):,} images, {refused} unreadable; {method.counters['updates']} updates in total")


if __name__ == "__main__":
    main()
