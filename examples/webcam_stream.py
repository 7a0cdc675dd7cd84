"""A camera that never stops: one frame at a time, with a state that survives restarts.

    python examples/webcam_stream.py                          # 1,000 synthetic frames in fading light
    python examples/webcam_stream.py --frames folder/         # your own frames, in the order of their names

For a live camera, replace `frames_of` by a loop over OpenCV's `cv2.VideoCapture(0)`.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from digits_model import train_digits
from PIL import Image
from torch import Tensor

import note_tta as tta
from note_tta.data import open_dataset


def frames_of(folder: Path) -> Iterator[tuple[Tensor, None]]:
    """Yield grey 32x32 frames in [0, 1] from the images of a folder."""
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in {".png", ".jpg", ".jpeg", ".bmp"}:
            with Image.open(path) as image:
                pixels = np.asarray(image.convert("L").resize((32, 32)), dtype=np.float32)
            yield torch.from_numpy(pixels / 255)[None], None


def synthetic_frames(count: int) -> Iterator[tuple[Tensor, int]]:
    """Yield digits in long runs of one class, while the light fades and haze builds up."""
    domain = open_dataset("digits").domain("test")
    order = tta.streams.dirichlet(domain.labels, 0.1, torch.Generator().manual_seed(0))[:count]
    for i, index in enumerate(order.tolist()):
        fade = i / count
        frame = domain.inputs([index])[0] * (1 - 0.6 * fade) + 0.3 * fade
        yield frame, int(domain.labels[index])


def main() -> None:
    """Answer every frame; print a line after each update; save the state at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--frames", type=Path, help="a folder of images; without it, synthetic frames")
    parser.add_argument("--count", type=int, default=1000, help="how many synthetic frames")
    parser.add_argument("--state", type=Path, default=Path("camera.pt"), help="where the state is kept")
    arguments = parser.parse_args()

    method = tta.NOTE(train_digits())
    if arguments.state.exists():
        tta.load_state(arguments.state, method)
        print(f"continuing after {method.counters['samples']:,} frames")

    stream = frames_of(arguments.frames) if arguments.frames else synthetic_frames(arguments.count)
    wrong = updates = 0
    for seen, (frame, label) in enumerate(stream, start=1):
        answer = method(frame.unsqueeze(0))[0]  # a batch of one: no frame waits for another
        wrong += label is not None and int(answer.argmax()) != label
        if method.counters["updates"] > updates:
            updates = method.counters["updates"]
            known = "" if label is None else f", error so far {100 * wrong / seen:.1f} %"
            print(f"frame {seen:5}: sees a {int(answer.argmax())}, {updates} updates{known}")
    tta.save_state(arguments.state, method)
    print(method)
    print(f"state saved to {arguments.state}, {arguments.state.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
