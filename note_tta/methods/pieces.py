"""The pieces of an update, which can give way to a call between two of them.

A norm layer needs the whole batch, and everything that comes before the next one is a piece. A convolution over a
whole batch takes longer than a call, so frozen convolutions and linear layers compute a few samples at a time: each
sample's output, and the gradient of its input, do not depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..nn import PrepackedConv2d
from .norm import norm_layers

SAMPLES = 16
"""Samples per piece. With fewer, pieces are shorter and updates slower: each piece reads all weights of its layer."""
CUT = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, PrepackedConv2d)
"""The layers that are cut: these very classes, since a subclass may do anything else."""


class Pieces:
    """Reports each piece of the passes through a module, forward and backward.

    Args:
        module: The module, which gets hooks.

    Attributes:
        done: Called after each piece; None reports nothing and computes every layer as a whole.
        passes: How many passes over the batch an update makes.
    """

    def __init__(self, module: nn.Module) -> None:
        self.done: Callable[[], None] | None = None
        self.passes = 1
        self._parts = 1
        norms = norm_layers(module).values()
        for layer in norms:
            layer.register_forward_hook(self._after_layer)
        cut = [layer for layer in _outside_compiled(module) if _can_be_cut(layer)]
        for layer in cut:
            layer.forward = partial(self._in_parts, layer, layer.forward)
        self._norms, self._cut = len(norms), len(cut)

    def count(self, samples: int, *, backward: bool) -> int:
        """About how many pieces an update on so many samples has, as if each layer were cut and used once per pass."""
        parts = _parts(samples)
        per_pass = self._norms + (self._cut * parts if parts > 1 else 0)
        return self.passes * (2 if backward else 1) * per_pass

    def begin(self, samples: int) -> None:
        """Begin a pass over so many samples."""
        self._parts = 1 if self.done is None else _parts(samples)

    def _in_parts(self, layer: nn.Module, forward: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:
        if self._parts == 1 or not _is_batch(layer, input):
            return forward(input)
        outputs = [self._report(forward(part)) for part in input.split(-(-len(input) // self._parts))]
        return torch.cat(outputs)

    def _after_layer(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        self._report(output)

    def _report(self, output: Any) -> Any:
        """Report a piece that is done, and the one of the backward pass when it comes to this output."""
        if self.done is not None:
            self.done()
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(self._after_gradient)
        return output

    def _after_gradient(self, gradient: Tensor) -> None:
        if self.done is not None:
            self.done()


def _parts(samples: int) -> int:
    return max(1, -(-samples // SAMPLES))


def _outside_compiled(module: nn.Module) -> list[nn.Module]:
    """The modules that are not in a compiled one, which computes them together."""
    inside = {
        id(inner)
        for outer in module.modules()
        if getattr(outer, "_compiled_call_impl", None) is not None or hasattr(outer, "_orig_mod")
        for inner in outer.modules()
    }
    return [layer for layer in module.modules() if id(layer) not in inside]


def _can_be_cut(layer: nn.Module) -> bool:
    own_forward = "forward" in vars(layer)
    return type(layer) in CUT and not own_forward and not any(p.requires_grad for p in layer.parameters())


def _is_batch(layer: nn.Module, x: Tensor) -> bool:
    """Whether the first axis holds samples; a linear layer is cut only if each has several rows, such as tokens."""
    return x.ndim >= 3 if isinstance(layer, nn.Linear) else x.ndim == len(layer.kernel_size) + 2  # type: ignore[arg-type]
