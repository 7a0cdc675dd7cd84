"""RoTTA: a robust teacher, a student, and a memory of recent, confident and class-balanced samples."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from ..memory import CSTU
from .augment import random_view
from .backbone import Backbone, Output, Tensors
from .draft import Draft
from .drafts import Drafts, prefixed
from .images import check_images, refuse_other_models
from .interval import IntervalMethod
from .norm import norm_tensors
from .objectives import soft_cross_entropies
from .parts import OwnTensors, Randomness
from .robust_norm import use_robust_statistics
from .settings import check_rate, check_share


class RoTTA(IntervalMethod):
    """Robust Test-Time Adaptation: a teacher answers; every `interval` samples a student learns from it.

    In an update the teacher sees the memory, and the student sees a random view of it. The student takes one Adam
    step on its affine parameters towards the teacher's answers, with less weight on old samples. The teacher follows
    as a moving average. Both mix the statistics of their input into their running statistics. `model` is the teacher.
    Only norm tensors are kept twice.

    LayerNorm, GroupNorm and RMSNorm have no statistics to mix, so only their affine parameters learn.

    The authors' code answers a whole batch with the teacher from before the batch, even if an update falls inside it.
    Here the samples after an update are answered by the updated teacher, so that batch boundaries have no effect. At
    the authors' batch size of 64 there is no difference. Their entropy uses ln(p + 1e-6); ours is exact.

    Args:
        model: A model with norm layers that takes images in [0, 1] and normalises them itself.
        memory: The memory of samples for the next update; None means `CSTU(64)`.
        interval: The number of samples between two updates.
        momentum: How far the running statistics move per pass (α in the paper).
        lr: Adam's learning rate.
        ema: How much of the teacher is kept per update (1 − ν in the paper).
        generator: Source of randomness; None means a new generator with torch's default seed.
        reach: As in `NOTE`.
        delay: As in `NOTE`.
        executor: As in `NOTE`.
        output: As in `NOTE`.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 10))
        >>> method = RoTTA(model)
        >>> method(torch.rand(64, 3, 8, 8)).shape
        torch.Size([64, 10])
        >>> method.counters["updates"]
        1
    """

    title = "RoTTA"
    citation = "Yuan et al., CVPR 2023"
    needs_norm = "any"
    needs_images = True
    passes = "3 / 1"
    keeps = "norm tensors twice, Adam's moments, 64 samples"
    licence = "MIT"
    memory: CSTU

    def __init__(
        self,
        model: nn.Module | Backbone,
        memory: CSTU | None = None,
        *,
        interval: int = 64,
        momentum: float = 0.05,
        lr: float = 1e-3,
        ema: float = 0.999,
        generator: torch.Generator | None = None,
        reach: float = 5.0,
        delay: int = 0,
        executor: str = "thread",
        output: Output = None,
    ) -> None:
        check_share("momentum", momentum)
        check_rate("lr", lr, zero=True)
        check_share("ema", ema)
        if memory is not None and not isinstance(memory, CSTU):
            raise TypeError(
                f"memory must be a CSTU, which keeps the age of each sample, got {type(memory).__name__}"
            )
        super().__init__(
            model,
            norm_tensors,
            CSTU(64) if memory is None else memory,
            interval=interval,
            reach=reach,
            delay=delay,
            executor=executor,
            output=output,
        )
        refuse_other_models(self.backbone.module, type(self).__name__)
        self.momentum, self.lr, self.ema = momentum, lr, ema
        self.random = self.part("random", Randomness(generator))
        self.student = self.part("student", OwnTensors(self.backbone.clone_source()))

    @property
    def generator(self) -> torch.Generator:
        """The source of randomness."""
        return self.random.generator

    def make_optimizer(self, learned: list[Tensor]) -> Adam:
        """Make Adam over the student's affine parameters."""
        return Adam(learned, lr=self.lr)

    def make_draft(self) -> Drafts:
        """Make the drafts of the teacher and the student, which mix statistics in every pass."""
        prepare = partial(use_robust_statistics, rate=self.momentum)
        student = Draft(self.backbone, self.descent.shapes, self.make_optimizer, prepare)
        return Drafts(teacher=Draft(self.backbone, prepare=prepare), student=student)

    def changing(self) -> Tensors:
        """Return the tensors of the teacher and of the student."""
        return {**self.tensors, **prefixed("student/", self.student.tensors)}

    def check_shape(self, x: Tensor) -> None:
        """Refuse samples that are not images, or whose shape differs from that of the memory."""
        super().check_shape(x)
        check_images(x, self)

    def store(self, x: Tensor, label: int, logits: Tensor) -> None:
        """Put an accepted sample into the memory."""
        if self.memory.classes is None:
            self.memory.classes = len(logits)
        super().store(x, label, logits)

    def context(self) -> tuple[Any, ...]:
        """Return the age of each sample, and a seed for the view."""
        ages = torch.tensor(self.memory.ages(), dtype=torch.float32, device=self.backbone.device)
        return ages, int(torch.randint(2**62, (), generator=self.generator))

    def learn(self, draft: Drafts, x: Tensor, ages: Tensor, seed: int) -> None:
        """Take one step of the student towards the teacher, and a small step of the teacher towards the student."""
        view = random_view(x, torch.Generator().manual_seed(seed))
        target = draft["teacher"].predict(x)
        losses = soft_cross_entropies(target, draft["student"].predict(view))
        draft["student"].step((torch.sigmoid(-ages / self.memory.capacity) * losses).mean())
        follow(draft["teacher"], draft["student"], 1 - self.ema)


@torch.no_grad()
def follow(teacher: Draft, student: Draft, share: float) -> None:
    """Move the teacher's parameters by `share` towards the student's; the statistics are not changed."""
    for name, tensor in teacher.tensors.items():
        if isinstance(tensor, nn.Parameter):
            tensor.lerp_(student.tensors[name], share)
