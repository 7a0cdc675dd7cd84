"""CoTTA: a student, a teacher that follows it slowly, and weights that return to the source at random."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .augment import random_view
from .backbone import Backbone, Output
from .batch import BatchMethod
from .draft import Draft, Value, copy_all
from .images import check_images
from .norm import all_parameters, use_batch_statistics
from .objectives import soft_cross_entropies
from .parts import OwnTensors, Randomness
from .settings import check_count, check_share


class CoTTA(BatchMethod):
    """Continual Test-Time Adaptation.

    The teacher's output is the answer. If the source model is unsure of a batch, the answer is the teacher's mean
    output over `augmentations` random views. The student takes one Adam step towards this answer on all parameters,
    the teacher follows as a moving average, and a few of the student's weights return to their source values. All
    three models normalise with the statistics of the batch. `model` is the teacher.

    Args:
        model: A model.
        lr: Adam's learning rate.
        p_th: Use random views if the source model's mean confidence is below this.
        augmentations: The number of views. Only images have views; other inputs are used as they are.
        ema: How much of the teacher is kept per step.
        restore: The probability per step that a weight returns to its source value.
        generator: Source of randomness; None means a new generator with torch's default seed.
        output: See `Method`.
    """

    title = "CoTTA"
    citation = "Wang et al., CVPR 2022"
    needs_norm = ""
    passes = "3 to 34 / 1"
    keeps = "all parameters twice, Adam's moments"
    licence = "MIT"

    def __init__(
        self,
        model: nn.Module | Backbone,
        *,
        lr: float = 1e-3,
        p_th: float = 0.92,
        augmentations: int = 32,
        ema: float = 0.999,
        restore: float = 0.01,
        generator: torch.Generator | None = None,
        output: Output = None,
    ) -> None:
        for name, value in {"p_th": p_th, "ema": ema, "restore": restore}.items():
            check_share(name, value)
        check_count("augmentations", augmentations, 1)
        super().__init__(model, lr=lr, adapts=all_parameters, output=output)
        self.p_th, self.augmentations, self.ema, self.restore = p_th, augmentations, ema, restore
        self.random = self.part("random", Randomness(generator))
        self.student = self.part("student", OwnTensors(self.backbone.clone_source()))

    @property
    def generator(self) -> torch.Generator:
        """The source of randomness."""
        return self.random.generator

    def forward(self, x: Tensor) -> Tensor:
        """Answer with the teacher, then teach the student."""
        if self.paused:
            return self.all_finite(self._teach(x))
        draft: Draft = self.made("draft", self.make_draft)
        draft.load(Value(self.student.tensors, self.descent.moments))
        logits = self.all_finite(draft.predict(x))
        answer = self.all_finite(self._teach(x))
        draft.step(soft_cross_entropies(answer, logits).mean())
        value = draft.value()
        if self.count_update(value.is_finite()):
            self._follow_and_restore(value)
        return answer

    @torch.no_grad()
    def _teach(self, x: Tensor) -> Tensor:
        source: nn.Module = self.made("source", self._source_module)
        confidence = self.backbone.run(source, x).softmax(dim=1).amax(dim=1).mean()
        if x.ndim != 4 or confidence >= self.p_th:
            return self.predict(x)
        check_images(x, self)
        views = (random_view(x, self.generator) for _ in range(self.augmentations))
        return torch.stack([self.predict(view) for view in views]).mean(dim=0)

    def _source_module(self) -> nn.Module:
        return use_batch_statistics(self.backbone.build(self.backbone.source))

    @torch.no_grad()
    def _follow_and_restore(self, value: Value) -> None:
        teacher, restored = {}, {}
        for name, student in value.tensors.items():
            teacher[name] = self.tensors[name].lerp(student, 1 - self.ema)
            back = torch.rand(student.shape, generator=self.generator) < self.restore
            restored[name] = torch.where(back.to(student.device), self.backbone.source[name], student)
        copy_all(self.tensors, teacher)
        copy_all(self.student.tensors, restored)
        self.descent.moments = value.moments
