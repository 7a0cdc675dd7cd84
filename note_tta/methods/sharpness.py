"""Sharpness-aware steps (SAM): the gradient is taken a little uphill of the current parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def uphill(tensors: list[Tensor], rho: float) -> Iterator[None]:
    """Inside the block, move `tensors` by `rho` along their gradients, which are treated as one vector.

    Compute the first gradient before the block and the second inside it, and take the step after it.

    Example:
        >>> x = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> (x**2).sum().backward()
        >>> with uphill([x], rho=0.5):
        ...     print(x.tolist())
        [3.299..., 4.400...]
        >>> x.tolist()
        [3.0, 4.0]
    """
    graded = [tensor for tensor in tensors if tensor.grad is not None]
    kept = [tensor.detach().clone() for tensor in graded]
    gradients = [tensor.grad for tensor in graded if tensor.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
    with torch.no_grad():
        for tensor, gradient in zip(graded, gradients, strict=True):
            tensor.add_(gradient, alpha=float(rho / (norm + 1e-12)))
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(graded, kept, strict=True):
                tensor.copy_(value)
