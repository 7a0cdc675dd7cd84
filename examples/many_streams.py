"""A hundred cameras on one model: each drifts in its own way, and each adapts separately.

Run `python examples/many_streams.py`. With `--spill streams/`, twenty streams are in memory and the others in a folder.
"""

import argparse
from pathlib import Path

import torch
from digits_model import train_digits
from torch import Tensor
from torch.nn.functional import avg_pool2d

import note_tta as tta
from note_tta.data import open_dataset

DRIFTS = {
    "none": lambda x: x,
    "dusk": lambda x: 0.12 * x,
    "out of focus": lambda x: avg_pool2d(x, 7, stride=1, padding=3),
    "lens half covered": lambda x: x * (torch.arange(32) > 13),
    "grain": lambda x: (x + 0.4 * torch.rand(x.shape, generator=torch.Generator().manual_seed(0))).clamp(
        0, 1
    ),
}


def camera(number: int, drift: str, length: int) -> tuple[Tensor, Tensor]:
    """Make the samples and labels of a camera, with digits in runs of one class."""
    domain, generator = open_dataset("digits").domain("test"), torch.Generator().manual_seed(number)
    some = torch.randperm(len(domain), generator=generator)[:length]
    order = some[tta.streams.dirichlet(domain.labels[some], 0.5, generator)]
    return DRIFTS[drift](domain.inputs(order)), domain.labels[order]


def main() -> None:
    """Answer one sample per stream in each call; print the errors for each kind of drift."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--length", type=int, default=320, help="samples of each stream")
    parser.add_argument("--spill", type=Path, help="a folder for streams")
    arguments = parser.parse_args()
    count, length = arguments.streams, arguments.length

    model, names = train_digits(), list(DRIFTS)
    drifts = {f"cam-{number}": names[number % len(names)] for number in range(count)}
    cameras = [camera(number, drift, length) for number, drift in enumerate(drifts.values())]
    x, y = (torch.stack(parts, dim=1) for parts in zip(*cameras, strict=True))  # [length, streams, ...]

    source = tta.Source(model)
    room = {"max_resident": 20, "spill": arguments.spill} if arguments.spill else {}
    # The streams are short, so they learn often and fast, from half of their memory at a time.
    fast = {"interval": 32, "learn_from": 32, "momentum": 0.1, "lr": 0.001, "warm_start": 2}
    with tta.Fleet(model, lambda m: tta.NOTE(m, **fast), **room) as fleet:
        adapted = torch.stack([fleet(list(drifts), now).argmax(dim=1) for now in x]) != y
        updates = sum(fleet.counters(name)["updates"] for name in fleet)
    alone = torch.stack([source(now).argmax(dim=1) for now in x]) != y

    print(f"{count} streams, {count * length:,} samples, {updates:,} updates. Error in the second half, %:")
    half = slice(length // 2, None)
    for drift in DRIFTS:
        own = [number for number, other in enumerate(drifts.values()) if other == drift]
        before, after = (100 * wrong[half, own].double().mean() for wrong in (alone, adapted))
        better = int((adapted[half, own].sum(0) < alone[half, own].sum(0)).sum())
        print(
            f"{drift:18} model {before:4.1f}   fleet {after:4.1f}   better in {better} of {len(own)} streams"
        )


if __name__ == "__main__":
    main()
