"""NOTE: Instance-Aware BatchNorm and a class-balanced memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import Adam

from ..memory import PBRS, Memory
from ..nn.iabn import IABN
from ..nn.unmix import UnMixTNS2d
from .backbone import Backbone, Output
from .draft import Draft
from .interval import IntervalMethod
from .norm import batch_norms, norm_tensors
from .objectives import entropy
from .settings import check_count, check_rate, check_share


class NOTE(IntervalMethod):
    """Answer each sample at once; learn from a class-balanced memory every `interval` samples (section 3).

    An update is one pass over the memory with the norm layers in train mode, which moves their running statistics
    by `momentum`, and one Adam step on their affine parameters, which lowers the entropy. Nothing else in the model
    changes. LayerNorm, GroupNorm and RMSNorm have no running statistics, so only their affine parameters learn. (This
    is our extension; the paper does not treat such models.)

    The paper's ablations are built from the same parts (`bn`: a model trained with BatchNorm, `iabn`: one
    trained with IABN)::

        IABN          Source(iabn)
        PBRS          NOTE(bn)
        IABN+RS       NOTE(iabn, Reservoir(64))
        IABN+PBRS     NOTE(iabn)
        IN+PBRS       NOTE(convert_iabn(bn, alpha=0))    (as we read it)
        IABN*         Source(convert_iabn(bn))
        IABN*+PBRS    NOTE(convert_iabn(bn))

    Args:
        model: A model with norm layers, best converted by `convert_iabn`.
        memory: The memory of samples for the next update; None means `PBRS(64)`.
        interval: The number of samples between two updates.
        momentum: How far the running statistics move per update.
        lr: Adam's learning rate.
        weight_decay: Adam's weight decay. The authors' CIFAR runs use 5e-4. They also average the entropy over
            the classes, so their runs correspond to 5e-4 times the number of classes here.
        warm_start: The weight of the source's statistics, in updates: the i-th update moves them by
            max(momentum, 1 / (warm_start + i)), fast at first and slowly later. With None, as in the paper, every
            update moves them by `momentum`.
        learn_from: How many samples of the memory each update uses, drawn at random; None means all.
        reach: The largest amplitude of a sample that the method learns from. It is measured at the input of the
            first BatchNorm layer, in multiples of the source's range of each channel. A sample beyond it is answered
            and counted in `unlearned_samples`. docs/guarantees.md lists the values of valid inputs; `math.inf` turns
            this check off.
        delay: How many samples later an update takes effect. The update is computed in the meantime, so that no
            call waits for it. The paper has 0.
        executor: How a delayed update is computed: "thread" uses one processor and lets calls go first, "threads"
            uses all of torch's threads, for callers that never pause.
        output: The key, index or callable that takes the logits out of what the model returns.

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
          counters: samples 100, updates 1, rejected_samples 0, unlearned_samples 0, ...
    """

    title = "NOTE"
    citation = "Gong et al., NeurIPS 2022"
    needs_norm = "any"
    passes = "2 / 1"
    keeps = "norm tensors, Adam's moments, 64 samples"
    licence = "MIT"
    trained_with = "iabn"

    def __init__(
        self,
        model: nn.Module | Backbone,
        memory: Memory | None = None,
        *,
        interval: int = 64,
        momentum: float = 0.01,
        lr: float = 1e-4,
        weight_decay: float = 0.0,
        warm_start: int | None = None,
        learn_from: int | None = None,
        reach: float = 5.0,
        delay: int = 0,
        executor: str = "thread",
        output: Output = None,
    ) -> None:
        check_share("momentum", momentum)
        check_rate("lr", lr)
        check_rate("weight_decay", weight_decay, zero=True)
        if warm_start is not None:
            check_count("warm_start", warm_start, 0)
        if learn_from is not None:
            check_count("learn_from", learn_from, 1)
        super().__init__(
            model,
            norm_tensors,
            PBRS(64) if memory is None else memory,
            interval=interval,
            reach=reach,
            delay=delay,
            executor=executor,
            output=output,
        )
        self.momentum, self.lr, self.weight_decay = momentum, lr, weight_decay
        self.warm_start, self.learn_from = warm_start, learn_from
        layers = batch_norms(self.backbone.module).values()
        if layers and not any(isinstance(layer, (*IABN, UnMixTNS2d)) for layer in layers):
            self.warn(
                "no IABN",
                "this model has BatchNorm but no IABN, so this is the paper's PBRS-only ablation: "
                "for NOTE, use tta.NOTE(tta.convert_iabn(model))",
            )

    def make_optimizer(self, learned: list[Tensor]) -> Adam:
        """Make Adam over the affine parameters. With `foreach` it computes the same bits in less time."""
        return Adam(learned, lr=self.lr, weight_decay=self.weight_decay, foreach=True)

    def batch(self) -> Tensor:
        """Return the samples of the memory, or `learn_from` of them."""
        inputs = self.memory.inputs()
        if self.learn_from is None or self.learn_from >= len(inputs):
            return inputs
        return inputs[torch.randperm(len(inputs), generator=self.memory.generator)[: self.learn_from]]

    def learn(self, draft: Draft, x: Tensor) -> None:
        """Make one pass over `x`, which moves the running statistics, and one step on the entropy.

        A single sample has no batch statistics. Then the running statistics stay, and only the step is taken.
        """
        draft.step(entropy(draft.predict(x, momentum=self.current_momentum() if len(x) > 1 else None)))

    def current_momentum(self) -> float:
        """Return how far the statistics move at the next update."""
        if self.warm_start is None:
            return self.momentum
        return max(self.momentum, 1 / (self.warm_start + self.counters["updates"] + 1))
