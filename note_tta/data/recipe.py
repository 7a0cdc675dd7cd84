"""How a source model is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides how a source model is trained, apart from its data and its seed.

    Attributes:
        epochs: Passes over the training data; 0 only evaluates.
        lr: The learning rate at the start.
        batch_size: Samples per step, over all processes together.
        optimizer: `"sgd"` (with Nesterov momentum) or `"adam"`.
        momentum: SGD's.
        weight_decay: L2 penalty on every parameter.
        schedule: `"cosine"` falls to 0 step by step over the whole run, `"constant"` stays.
        crop_padding: Pad images by this many pixels and crop them at a random place; 0 does neither.
        crop_fill: Pad with the image's own `"reflect"`ion or with `"black"`. Black borders shift a channel's
            statistics, which IABN may take for a change of domain: a ResNet-20 fine-tuned on CIFAR-10 with
            black borders erred more on clean training images than on padded ones.
        flip: Mirror every other image, at random.
        pretrained: The paper starts from ImageNet weights instead of from scratch.

    Example:
        >>> round(Recipe(epochs=2, lr=0.1).lr_at(step=50, steps=100), 3)
        0.05
    """

    epochs: int
    lr: float
    batch_size: int = 64
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["cosine", "constant"] = "cosine"
    crop_padding: int = 0
    crop_fill: Literal["reflect", "black"] = "reflect"
    flip: bool = False
    pretrained: bool = False

    def __post_init__(self) -> None:
        for name, lowest in (("epochs", 0), ("batch_size", 2), ("crop_padding", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < lowest:
                raise ValueError(f"{name} must be a whole number of at least {lowest}, got {value!r}")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise ValueError(f"lr must be positive, got {self.lr}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and under 1, got {self.momentum}")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise ValueError(f"weight_decay must be at least 0, got {self.weight_decay}")
        choices = {"optimizer": ("sgd", "adam"), "schedule": ("cosine", "constant")}
        for name, (one, other) in {**choices, "crop_fill": ("reflect", "black")}.items():
            if getattr(self, name) not in (one, other):
                raise ValueError(f"{name} must be {one!r} or {other!r}, got {getattr(self, name)!r}")

    def lr_at(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, counted from 0, in a run of `steps` steps."""
        if self.schedule == "constant":
            return self.lr
        return self.lr * 0.5 * (1 + math.cos(math.pi * step / steps))
