"""A wearable: windows of accelerometer and gyroscope, one second each, from a person whom the model has never seen.

It uses HAPT if present (`note-tta data download hapt`), otherwise synthetic recordings in the same format.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from synthetic_hapt import write_synthetic_hapt

import note_tta as tta
from note_tta.data import Dataset, MissingData, open_dataset
from note_tta.models import build_model
from note_tta.train import Recipe, train


def open_recordings(folder: Path) -> Dataset:
    """Open HAPT from the data root, or write synthetic recordings into `folder` and open them."""
    try:
        return open_dataset("hapt")
    except MissingData as missing:
        print(f"{missing}\nusing synthetic recordings instead")
        return open_dataset("hapt", root=write_synthetic_hapt(folder))


def main() -> None:
    """Train on the source users, then follow one new user window by window."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--user", default="user22", help="a target user, such as user22")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the source users")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        dataset = open_recordings(Path(folder))
        torch.manual_seed(0)
        model = build_model("sensor_cnn4", len(dataset.classes), norm="iabn", width=8, in_channels=6)
        card = train(
            model,
            dataset.domain("train"),
            Recipe(epochs=arguments.epochs, lr=0.05),
            out=Path(folder, "sensor.safetensors"),
            test=dataset.domain("test"),
        )
        print(f"source users: {card['clean_error']:.1f} % error")

        method = tta.NOTE(model)
        user = dataset.domain(arguments.user)
        before, wrong = None, 0
        for i in range(len(user)):  # in the order of the recording, one window at a time
            activity = int(method(user.inputs([i])).argmax())
            wrong += activity != int(user.labels[i])
            if activity != before:
                print(f"second {i:5}: {dataset.classes[activity]}")
                before = activity
    print(f"{arguments.user}: {100 * wrong / len(user):.1f} % error over {len(user):,} windows")
    print(method)


if __name__ == "__main__":
    main()
