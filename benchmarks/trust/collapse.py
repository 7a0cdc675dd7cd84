"""Streams that tempt entropy minimisation into calling everything one class; then a clean stream.

python -m benchmarks.trust.collapse
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from torch import Tensor

import note_tta as tta

from .common import BATCH, batches, clean_stream, source_model, write
from .poison import POISONS

METHODS = ("source", "note", "note, after a clean start", "tent", "cotta")
STREAMS = {"one class": "one class only", "pure noise": "uniform noise"}
AUGMENTATIONS = 4
"""Views of CoTTA's teacher; the paper's 32 would take eight times as long."""


def attacked(name: str, stream: str, samples: int, clean: tuple[Tensor, Tensor]) -> dict[str, Any]:
    """What a method predicts under an attack, and on a clean stream after it."""
    x, y = clean
    method = fresh(name)
    if name.endswith("clean start"):
        tta.evaluate(method, batches(x, y), progress=False)
    generator = torch.Generator().manual_seed(11)
    poison, under = POISONS[STREAMS[stream]], []
    for start in range(0, samples, BATCH):
        part = poison(min(BATCH, samples - start), x, y, generator)
        under.append(method(part).argmax(dim=1))
    result = tta.evaluate(method, batches(x, y), progress=False)
    wrong = 100 * (result.predictions != result.labels).double()
    last = torch.cat(under[-16:])
    return {
        "share_of_top_class_under_attack": _top_share(last),
        "share_of_top_class_after": _top_share(result.predictions),
        "classes_predicted_after": len(result.predictions.unique()),
        "error_after": round(result.error, 2),
        "error_of_last_quarter": round(float(wrong[-len(wrong) // 4 :].mean()), 2),
    }


def _top_share(predictions: Tensor) -> float:
    """The share of the most frequent prediction, in percent."""
    return round(100 * float(predictions.bincount().max()) / len(predictions), 1)


def main() -> int:
    """Attack each method by each stream and write what came of it, side by side."""
    parser = argparse.ArgumentParser(prog="benchmarks.trust.collapse", description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000, help="of each attack")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    clean = clean_stream()
    figures: dict[str, Any] = {
        "samples": arguments.samples,
        "clean_samples": len(clean[1]),
        "share_of_top_class_in_the_clean_stream": _top_share(clean[1]),
        "cotta_augmentations": AUGMENTATIONS,
        "unattacked": {name: unattacked(name, clean) for name in arguments.methods},
        "attacks": {},
    }
    for stream in STREAMS:
        figures["attacks"][stream] = {}
        for name in arguments.methods:
            row = attacked(name, stream, arguments.samples, clean)
            figures["attacks"][stream][name] = row
            print(f"{stream}, {name}: {row}", file=sys.stderr, flush=True)
    write("collapse", figures)
    return 0


def fresh(name: str) -> tta.Method:
    """A row's method on its source model."""
    kind = name.partition(", ")[0]
    options = {"augmentations": AUGMENTATIONS} if kind == "cotta" else {}
    return tta.METHODS[kind](source_model("iabn" if kind == "note" else "bn"), **options)


def unattacked(name: str, clean: tuple[Tensor, Tensor]) -> float:
    """The method's error on the clean stream alone."""
    return round(tta.evaluate(fresh(name), batches(*clean), progress=False).error, 2)


if __name__ == "__main__":
    sys.exit(main())
