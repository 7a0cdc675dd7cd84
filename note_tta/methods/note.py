"""NOTE: Instance-Aware BatchNorm and a class-balanced memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext

from torch import Tensor, nn
from torch.optim import Adam

from ..memory import PBRS, Memory
from .base import Stateful
from .interval import IntervalMethod
from .norm import affine_parameters, gradients_for, moving_statistics, norm_layers, running_statistics
from .objectives import entropy


class NOTE(IntervalMethod):
    """Answer each sample at once; learn from a class-balanced memory every `interval` samples (section 3).

    An update is one pass over the memory with the norm layers in train mode, so that their running statistics
    move by `momentum`, and one Adam step on their affine parameters to make the entropy smaller. Nothing else
    of the model changes.

    The paper's ablations are constructions of the same parts (`bn`: a model trained with BatchNorm, `iabn`:
    one trained with IABN)::

        IABN          Source(iabn)
        PBRS          NOTE(bn)
        IABN+RS       NOTE(iabn, Reservoir(64))
        IABN+PBRS     NOTE(iabn)
        IN+PBRS       NOTE(convert_iabn(bn, alpha=0))    (as we read it)
        IABN*         Source(convert_iabn(bn))
        IABN*+PBRS    NOTE(convert_iabn(bn))

    Args:
        model: A model with BatchNorm layers, best converted by `convert_iabn`.
        memory: Where samples wait for the update; None is `PBRS(64)`.
        interval: Samples between two updates.
        momentum: How far the running statistics move at an update.
        lr: Adam's learning rate.
        weight_decay: Adam's weight decay. The authors' CIFAR runs have 5e-4; as they also average the entropy
            over the classes, theirs is this one at 5e-4 times the number of classes.
        reach: How many times the source's amplitude a sample may have, where it enters the first norm layer,
            to be learned from. Beyond it, it is answered, counted in `rejected_samples` and not learned from.
            What valid inputs have was measured (docs/guarantees.md). `math.inf` switches this off.
        min_classes: Learn only while the memory holds at least so many classes' worth of predictions (the
            exponential of their entropy), and count the update in `rejected_updates` otherwise. 1, the
            paper's NOTE, always learns; 2 or more keeps a stream of nothing but noise, all of it called one
            class, from carrying the statistics away. A stream that starts with one long class is then
            learned from only when the next one comes.

    Example:
        >>> import torch, note_tta as tta
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 10))
        >>> method = NOTE(tta.convert_iabn(model))
        >>> method(torch.rand(100, 3, 8, 8)).shape
        torch.Size([100, 10])
        >>> method
        NOTE(Sequential)
          adapts:   1 IABN2d layers, 16 parameters (0.511 % of the model's 3,130)
          memory:   PBRS(64 of 64 held)
          counters: samples 100, updates 1, rejected_samples 0, rejected_updates 0
    """

    def __init__(
        self,
        model: nn.Module,
        memory: Memory | None = None,
        *,
        interval: int = 64,
        momentum: float = 0.01,
        lr: float = 1e-4,
        weight_decay: float = 0.0,
        reach: float = 5.0,
        min_classes: float = 1.0,
    ) -> None:
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be in [0, 1], got {momentum}")
        if not lr > 0:
            raise ValueError(f"lr must be greater than 0, got {lr}")
        if not min_classes >= 1:
            raise ValueError(f"min_classes must be at least 1, got {min_classes}")
        self._layers = norm_layers(model, running=True)
        self._affine = list(affine_parameters(self._layers).values())
        self.momentum = momentum
        self.min_classes = min_classes
        adapted = affine_parameters(self._layers) | running_statistics(self._layers)
        self._optimizer = Adam(self._affine, lr=lr, weight_decay=weight_decay) if self._affine else None
        parts: dict[str, Stateful] = {} if self._optimizer is None else {"optimizer": self._optimizer}
        memory = PBRS(64) if memory is None else memory
        super().__init__(model, self._layers, adapted, memory, interval, reach, parts)

    def learn(self, x: Tensor) -> None:
        """Move the running statistics and take one step on the entropy of the memory's samples.

        A single sample has no statistics to move to; the step is taken all the same.
        """
        moving = moving_statistics(self._layers, self.momentum) if len(x) > 1 else nullcontext()
        with gradients_for(self.model, self._affine):
            with moving:
                loss = entropy(self.model(x))
            if self._optimizer is not None:
                loss.backward()
                self._optimizer.step()

    def _update(self) -> None:
        if self.min_classes > 1 and effective_classes(self.memory.labels()) < self.min_classes:
            self.counters["rejected_updates"] += 1
        else:
            super()._update()


def effective_classes(labels: Sequence[int]) -> float:
    """How many equally frequent classes would have the entropy of these labels.

    Example:
        >>> effective_classes([3, 3, 3, 3]), round(effective_classes([0, 1, 0, 1]), 6)
        (1.0, 2.0)
    """
    shares = [count / len(labels) for count in Counter(labels).values()]
    return math.exp(-sum(share * math.log(share) for share in shares))
