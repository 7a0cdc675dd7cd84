"""A trained classifier and a drifting stream to try things on, without a download."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from .checkpoint import load_checkpoint
from .data import open_dataset
from .streams import Batches, dirichlet

WEIGHTS = Path(__file__).with_name("example.safetensors")
"""Made by `note-tta train --dataset digits --norm bn --width 4`."""


def drifting_digits(drift: str = "style", batch_size: int = 64) -> tuple[nn.Module, Batches]:
    """A small network that was trained on clean handwritten digits, and a stream of drifted ones.

    The stream is correlated in time: digits of one class come in long runs.

    Args:
        drift: "style" (contrast, brightness and noise change from image to image), "contrast" or
            "brightness".
        batch_size: Samples per batch.

    Returns:
        The network, with BatchNorm layers, and the stream as batches of inputs and labels.

    Example:
        >>> model, stream = drifting_digits(batch_size=32)
        >>> x, y = next(iter(stream))
        >>> model(x).shape, y[:8].tolist()
        (torch.Size([32, 10]), [1, 7, 7, 7, 7, 7, 7, 7])
    """
    domain = open_dataset("digits").domain(drift)
    order = dirichlet(domain.labels, delta=0.1, generator=torch.Generator().manual_seed(0))
    return load_checkpoint(WEIGHTS)[0], domain.batches(order, batch_size)
