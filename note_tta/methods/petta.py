"""PeTTA: RoTTA that measures how far it has drifted from the source, and pulls back accordingly."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..memory import CSTU
from .augment import random_view
from .backbone import Backbone, Tensors
from .draft import Draft
from .drafts import Drafts, prefixed
from .features import Listener, find_classifier
from .objectives import soft_cross_entropies
from .parts import OwnTensors
from .robust_norm import use_robust_statistics
from .rotta import RoTTA, follow
from .settings import check_rate
from .source_statistics import SourceData, class_features, statistics_of

PROTOTYPE_RATE = 0.05
"""How far a prototype moves towards the features of an interval."""


class PeTTA(RoTTA):
    """Persistent Test-Time Adaptation: RoTTA with a penalty that grows as the model drifts from the source.

    Each class has a prototype: the moving mean of the features of the samples predicted as this class. The drift γ
    is how far the prototypes of the recent classes have moved from the source's. The larger γ is, the more strongly
    the student's affine parameters are held to the source's direction, and the more slowly the teacher follows. A
    third network, with the source's affine parameters and its own moving statistics, is an anchor for the student's
    answers. `model` is the teacher.

    The notes on settings and differences in `RoTTA` apply here too, except that samples are not weighted by age.
    An update uses the classes of the `interval` samples before it. The authors update after each batch, which is the
    same at their batch size of 64. The paper has one γ per class, with the full covariance. We follow the authors'
    code, which has a single γ, with variances. A class with fewer than two source samples gets the variance within
    the other classes.

    Args:
        model: A model with norm layers and a linear classifier that takes images in [0, 1] and normalises
            them itself.
        source: Batches of source samples from the validation split (a `DataLoader` will do; labels are
            ignored), or the path of a file that `method.source.save(path)` wrote. At most 100,000 samples are
            used.
        memory: See `RoTTA`.
        hold: How strongly the student is held to the source at γ = 1 (λ0 in the paper: 10, and 1 on DomainNet).
        anchor: The weight of the anchor's answers in the loss.
        loss: How the student learns from the teacher: "sce" (symmetric cross-entropy on the plain and the augmented
            memory, as on CIFAR) or "ce" (RoTTA's loss, as on ImageNet and DomainNet).
        classifier: The name of the module whose input is the features; None means the last `nn.Linear`.
        **settings: See `RoTTA`; `ema` is how much of the teacher is kept at γ = 0.
    """

    title = "PeTTA"
    citation = "Hoang et al., NeurIPS 2024"
    needs_source = True
    passes = "5 / 2"
    keeps = "norm tensors three times, Adam's moments, 64 samples, features by class"
    licence = "none given"

    def __init__(
        self,
        model: nn.Module | Backbone,
        source: SourceData | None = None,
        memory: CSTU | None = None,
        *,
        hold: float = 10.0,
        anchor: float = 1.0,
        loss: str = "sce",
        classifier: str | None = None,
        **settings: Any,
    ) -> None:
        check_rate("hold", hold, zero=True)
        check_rate("anchor", anchor, zero=True)
        if loss not in ("sce", "ce"):
            raise ValueError(f"loss must be 'sce' or 'ce', got {loss!r}")
        super().__init__(model, memory, **settings)
        self.hold, self.anchor, self.loss = hold, anchor, loss
        self.classifier = find_classifier(self.backbone.module, classifier)
        self.source = statistics_of(
            source,
            "features",
            self.backbone,
            partial(class_features, self.backbone, self.classifier),
            "PeTTA needs batches of source samples: give source=…, or use RoTTA, which needs none",
        )
        mean = self.source.tensors["mean"]
        counters = {"sums": torch.zeros_like(mean), "counts": mean.new_zeros(len(mean))}
        self.prototypes = self.part("prototypes", OwnTensors({"mean": mean.clone(), **counters}))
        self.anchored = self.part("anchor", OwnTensors(self.backbone.clone_source()))
        self._caught: list[Tensor] = []

    def make_draft(self) -> Drafts:
        """Make RoTTA's two drafts, and the source's network with its own moving statistics."""
        prepare = partial(use_robust_statistics, rate=self.momentum)
        drafts = super().make_draft().drafts
        drafts["student"].pieces.passes = 2
        return Drafts(**drafts, anchor=Draft(self.backbone, prepare=prepare))

    def changing(self) -> Tensors:
        """Return the tensors of all three networks."""
        return {**super().changing(), **prefixed("anchor/", self.anchored.tensors)}

    def predict(self, x: Tensor) -> Tensor:
        """Return the teacher's logits, and keep the features."""
        module = self.made("answering", self.answering_module)
        listener: Listener = self.made("listener", lambda: Listener(module, self.classifier))
        logits = super().predict(x)
        self._caught.append(listener.take(len(x)))
        return logits

    def look(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """As in `IntervalMethod`; the features are kept."""
        self._caught = []
        return super().look(x)

    def receive(self, x: Tensor, logits: Tensor, near: Tensor) -> Tensor:
        """As in `IntervalMethod`; the features of accepted samples are added up by predicted class."""
        accepted = torch.isfinite(logits).all(dim=1) & near
        features, self._caught = self._caught[0][accepted], []
        if not self.paused:
            own = self.prototypes.tensors
            predicted = logits[accepted].argmax(dim=1).to(own["sums"].device)
            own["sums"].index_add_(0, predicted, features.to(own["sums"]))
            own["counts"].index_add_(0, predicted, torch.ones_like(predicted, dtype=own["counts"].dtype))
        return super().receive(x, logits, near)

    def context(self) -> tuple[Any, ...]:
        """Return the drift of the prototypes and a seed for the view, and move the prototypes."""
        own, source = self.prototypes.tensors, self.source.tensors
        present = own["counts"] > 0
        gone = (own["mean"] - source["mean"]) ** 2 / (source["variance"] + 1e-6)
        drift = 1 - torch.exp(-gone[present].mean())
        seen = own["sums"][present] / own["counts"][present, None]
        own["mean"][present] = torch.lerp(own["mean"][present], seen, PROTOTYPE_RATE)
        own["sums"].zero_()
        own["counts"].zero_()
        return drift.to(self.backbone.device), super().context()[-1]

    def learn(self, draft: Drafts, x: Tensor, drift: Tensor, seed: int) -> None:
        """Take one step of the student. With more drift it is held more to the source, and the teacher follows less."""
        student = draft["student"]
        view = random_view(x, torch.Generator().manual_seed(seed))
        target, anchor = draft["teacher"].predict(x).detach(), draft["anchor"].predict(x).detach()
        plain, augmented = student.predict(x), student.predict(view)
        loss = soft_cross_entropies(target, augmented).mean()
        if self.loss == "sce":
            pairs = ((augmented, target), (target, plain), (plain, target))
            loss = (loss + sum(soft_cross_entropies(a, b).mean() for a, b in pairs)) / 4
        loss = loss + self.anchor * soft_cross_entropies(anchor, augmented).mean()
        student.step(loss - self.hold * drift * self._likeness(student))
        follow(draft["teacher"], student, (1 - self.ema) * (1 - float(drift)))

    def _likeness(self, student: Draft) -> Tensor:
        """Return the mean cosine between the student's affine tensors and the source's."""
        cosines = [
            F.cosine_similarity(student.tensors[name].flatten(), self.backbone.source[name].flatten(), dim=0)
            for name in self.descent.shapes
        ]
        return torch.stack(cosines).mean() if cosines else torch.zeros(())
