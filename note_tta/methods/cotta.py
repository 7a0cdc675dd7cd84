"""CoTTA: a student, its slow-moving teacher, and a way back to the source."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from .augment import random_view
from .base import Method, Stateful, checked_module
from .norm import batch_statistics, find_norm_layers, gradients_for


class CoTTA(Method):
    """Continual Test-Time Adaptation (Wang et al., 2022).

    The teacher's output is the answer; where the source model is unsure of a batch it is the mean over
    `augmentations` random views. The student takes one Adam step on all parameters towards it, the teacher
    follows as a moving average, and a few of the student's weights return to the source's. All three
    normalise with the statistics of the batch.

    Args:
        model: A model; it is the student.
        lr: Adam's learning rate.
        p_th: Look at random views where the source model's mean confidence is below this.
        augmentations: How many views. Only images have views: other inputs are taken as they are.
        ema: How much of the teacher stays at a step.
        restore: The probability with which a weight returns to its source value at a step.
        generator: Source of randomness; None is a new generator with torch's default seed.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float = 1e-3,
        p_th: float = 0.92,
        augmentations: int = 32,
        ema: float = 0.999,
        restore: float = 0.01,
        generator: torch.Generator | None = None,
    ) -> None:
        if not lr > 0:
            raise ValueError(f"lr must be greater than 0, got {lr}")
        for name, value in {"p_th": p_th, "ema": ema, "restore": restore}.items():
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {value}")
        if augmentations < 1:
            raise ValueError(f"augmentations must be at least 1, got {augmentations}")
        self.p_th, self.augmentations, self.ema, self.restore = p_th, augmentations, ema, restore
        self.generator = torch.Generator() if generator is None else generator
        self._source = copy.deepcopy(checked_module(model)).eval().requires_grad_(False)
        self._teacher = copy.deepcopy(self._source)
        self._by_batch = [batch_statistics(find_norm_layers(m)) for m in (model, self._source, self._teacher)]
        parameters: dict[str, Tensor] = dict(model.named_parameters())
        self._optimizer = Adam(parameters.values(), lr=lr)
        parts: dict[str, Stateful] = {
            "optimizer": self._optimizer,
            "teacher": self._teacher,
            "random": _Random(self.generator),
        }
        super().__init__(model, parameters, parts)

    def forward(self, x: Tensor) -> Tensor:
        """Answer with the teacher, then teach the student."""
        for follower in (self._source, self._teacher):
            follower.to(x)  # the caller may have moved the student since
        student, source, teacher = self._by_batch
        with gradients_for(self.model, self._adapted.values()), student:
            logits = self._finite(self._logits(x))
            with torch.no_grad(), source, teacher:
                answer = self._finite(self._teach(x))
            loss = -(answer.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1).mean()
            loss.backward()
            stands = self._attempt(self._optimizer.step)
        if stands:
            self._follow_and_restore()
        return answer

    def _teach(self, x: Tensor) -> Tensor:
        confidence = self._source(x).softmax(dim=1).amax(dim=1).mean()
        if x.ndim != 4 or confidence >= self.p_th:
            return torch.as_tensor(self._teacher(x))
        views = (random_view(x, self.generator) for _ in range(self.augmentations))
        return torch.stack([self._teacher(view) for view in views]).mean(dim=0)

    @torch.no_grad()
    def _follow_and_restore(self) -> None:
        parameters = zip(
            self.model.parameters(), self._teacher.parameters(), self._source.parameters(), strict=True
        )
        for student, teacher, source in parameters:
            teacher.lerp_(student, 1 - self.ema)
            back = torch.rand(student.shape, generator=self.generator) < self.restore
            student.copy_(torch.where(back.to(student.device), source, student))


class _Random:
    """A generator as a part with a state."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["state"].cpu())
