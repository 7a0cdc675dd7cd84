"""The user's own network, named as `module:function`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..names import load_own


def make_model(name: str) -> nn.Module:
    """Call the function `module:function`; the module may be in the working folder.

    Raises:
        ValueError: There is no such function, or it does not return a model.
    """
    function = load_own(name, "model")
    if not callable(function):
        raise ValueError(f"{name} is not a function that makes a model")
    model = function()
    if not isinstance(model, nn.Module):
        raise ValueError(f"{name}() must return an nn.Module, got {type(model).__name__}")
    return model.eval()


def count_classes(name: str, model: nn.Module, sample: Tensor) -> int:
    """The number of classes of a model, found by running it on a sample `[1, ...]`.

    Raises:
        ValueError: The model does not take the sample, or does not return logits.
    """
    try:
        with torch.no_grad():
            logits = model(sample.to(next((p.device for p in model.parameters()), sample.device)))
    except (RuntimeError, ValueError, IndexError) as error:
        shape = tuple(sample.shape[1:])
        raise ValueError(f"{name} does not accept samples of shape {shape}: {error}") from error
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise ValueError(f"{name} must map [B, ...] to logits [B, K]")
    return logits.shape[1]
