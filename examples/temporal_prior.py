"""TemporalPrior: a class that was seen a moment ago is likely to be seen again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from note_tta.methods.method import Method


class ClassPrior:
    """The current probability of each class. It has a state, so it can be a part of a method."""

    def __init__(self) -> None:
        self.probabilities: Tensor | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the probabilities, or None before the first sample."""
        return {"probabilities": self.probabilities}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Load a state."""
        self.probabilities = state["probabilities"]


class TemporalPrior(Method):
    """Answer with the model's probabilities times a class prior that follows the stream.

    The model does not change, so this works with any norm layers. Each sample is answered with the current prior
    and then moves the prior towards its own probabilities, so batch boundaries do not matter.

    Args:
        model: Any classifier.
        decay: How much of the prior is kept per sample; with 1 the prior never moves.
        floor: The smallest probability that the prior gives to a class, so that no class is ruled out.
    """

    title = "Temporal prior"
    citation = "this project's own"
    keeps = "a class prior"
    batch_free = True

    def __init__(self, model: nn.Module, *, decay: float = 0.8, floor: float = 0.02) -> None:
        if not 0 <= decay <= 1:
            raise ValueError(f"decay must be in [0, 1], got {decay}")
        if not 0 < floor <= 1:
            raise ValueError(f"floor must be in (0, 1], got {floor}")
        super().__init__(model)
        self.decay, self.floor = decay, floor
        self.prior = self.part("prior", ClassPrior())

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch, one sample after another."""
        logits = self.all_finite(self.predict(x))
        log_p = logits.float().log_softmax(dim=1)
        prior = self.prior.probabilities
        if prior is None:
            prior = torch.full_like(log_p[0], 1 / log_p.shape[1])
        answers = []
        for own in log_p:
            answer = (own + prior.clamp_min(self.floor).log()).log_softmax(dim=0)
            prior = self.decay * prior + (1 - self.decay) * answer.exp()
            answers.append(answer)
        if not self.paused:
            self.prior.probabilities = prior
            self.counters["updates"] += len(answers)
        return torch.stack(answers).to(logits.dtype)
