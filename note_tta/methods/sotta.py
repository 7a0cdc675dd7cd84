"""SoTTA: a memory of confident samples, and sharpness-aware steps on their entropy."""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim import Adam

from ..memory import HUS, Memory
from .backbone import Backbone, Output
from .draft import Draft
from .interval import IntervalMethod
from .objectives import entropy
from .selection import AffineOutside, Skip, last_layers, skipped
from .settings import check_rate, check_share
from .sharpness import uphill


class SoTTA(IntervalMethod):
    """Screening-out Test-Time Adaptation: learn from confident samples only, with sharpness-aware steps.

    The model answers with its running statistics. Samples with at least `confidence` enter a class-balanced memory.
    Every `interval` samples, one sharpness-aware Adam step on the affine parameters lowers the entropy of the memory.
    If the memory is empty, the update is skipped and counted.

    As in the authors' code, both passes of a step are in train mode. So the running statistics move twice, the second
    time with the perturbed parameters, and by 0.36 in total at a momentum of 0.2. Their code puts the whole network
    into train mode, including dropout; ours does so only with the norm layers. Their entropy uses ln(p + 1e-6); ours
    is exact.

    Args:
        model: A model with norm layers. On LayerNorm, GroupNorm and RMSNorm no statistics move.
        memory: The memory of samples for the next update; None means `HUS(64)`.
        interval: The number of samples, confident or not, between two updates.
        confidence: A sample enters the memory if the probability of its predicted class is at least this. The paper
            has 0.99 on CIFAR10-C, 0.66 on CIFAR100-C and 0.33 on ImageNet-C.
        rho: How far uphill the second gradient is taken.
        momentum: How far the running statistics move at each of the two passes.
        lr: Adam's learning rate.
        skip: Says by name which norm layers keep their affine parameters; `method.skipped` lists them.
        reach: As in `NOTE`.
        delay: As in `NOTE`.
        executor: As in `NOTE`.
        output: As in `NOTE`.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 10))
        >>> method = SoTTA(model, confidence=0.1)
        >>> method(torch.rand(64, 3, 8, 8)).shape
        torch.Size([64, 10])
    """

    title = "SoTTA"
    citation = "Gong et al., NeurIPS 2023"
    needs_norm = "any"
    passes = "3 / 2"
    keeps = "norm tensors, Adam's moments, 64 samples"
    licence = "MIT"

    def __init__(
        self,
        model: nn.Module | Backbone,
        memory: Memory | None = None,
        *,
        interval: int = 64,
        confidence: float = 0.99,
        rho: float = 0.05,
        momentum: float = 0.2,
        lr: float = 1e-3,
        skip: Skip = last_layers,
        reach: float = 5.0,
        delay: int = 0,
        executor: str = "thread",
        output: Output = None,
    ) -> None:
        check_share("confidence", confidence)
        check_share("momentum", momentum)
        check_rate("rho", rho, zero=True)
        check_rate("lr", lr)
        super().__init__(
            model,
            AffineOutside(skip, statistics=True),
            HUS(64) if memory is None else memory,
            interval=interval,
            reach=reach,
            delay=delay,
            executor=executor,
            output=output,
        )
        self.confidence, self.rho, self.momentum, self.lr = confidence, rho, momentum, lr
        self.skip, self.skipped = skip, skipped(self.backbone, skip)

    def make_optimizer(self, learned: list[Tensor]) -> Adam:
        """Make Adam over the chosen affine parameters."""
        return Adam(learned, lr=self.lr)

    def make_draft(self) -> Draft:
        """Make the draft, on which an update is computed in two passes."""
        draft: Draft = super().make_draft()
        draft.pieces.passes = 2
        return draft

    def store(self, x: Tensor, label: int, logits: Tensor) -> None:
        """Put a sample into the memory if its prediction is confident."""
        if logits.softmax(dim=0)[label] >= self.confidence:
            super().store(x, label, logits)

    def learn(self, draft: Draft, x: Tensor) -> None:
        """Take one sharpness-aware step on the entropy. A single sample moves no statistics."""
        momentum = self.momentum if len(x) > 1 else None
        draft.backward(entropy(draft.predict(x, momentum=momentum)))
        with uphill(draft.learned, self.rho):
            draft.backward(entropy(draft.predict(x, momentum=momentum)))
        draft.step()
