"""Methods that answer a batch with its own statistics and take one step on affine parameters."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from .base import Method
from .norm import affine_parameters, batch_statistics, gradients_for, norm_layers


class BatchLearner(Method):
    """One pass a batch: its logits are the answer, and a loss on them makes one optimizer step.

    Args:
        model: A model with BatchNorm layers.
        lr: The learning rate.
        optimizer: "adam", or "sgd" (momentum 0.9).
    """

    def __init__(self, model: nn.Module, *, lr: float = 1e-3, optimizer: str = "adam") -> None:
        if not lr > 0:
            raise ValueError(f"lr must be greater than 0, got {lr}")
        if optimizer not in ("adam", "sgd"):
            raise ValueError(f"optimizer must be 'adam' or 'sgd', got {optimizer!r}")
        layers = norm_layers(model)
        affine = affine_parameters(layers)
        if not affine:
            raise ValueError(
                f"{type(model).__name__}'s norm layers have no affine parameters to learn (affine=False)"
            )
        self._by_batch = batch_statistics(layers)
        self._optimizer: Optimizer = Adam(affine.values(), lr=lr)
        if optimizer == "sgd":
            self._optimizer = SGD(affine.values(), lr=lr, momentum=0.9)
        super().__init__(model, affine, {"optimizer": self._optimizer})

    @abstractmethod
    def loss(self, logits: Tensor) -> Tensor:
        """What one step makes smaller, from logits `[B, K]`."""

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch and learn from it."""
        with gradients_for(self.model, self._adapted.values()), self._by_batch:
            logits = self._finite(self._logits(x))
            self.loss(logits).backward()
            self._attempt(self._optimizer.step)
        return logits
