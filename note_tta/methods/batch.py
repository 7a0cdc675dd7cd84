"""Methods that answer a batch with its own statistics and take one step on it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from .backbone import Backbone, Output, Tensors
from .draft import Descent, Draft, Value, copy_all
from .method import Method
from .norm import affine_parameters, components, move_components, use_batch_statistics
from .settings import check_rate


class BatchMethod(Method):
    """One pass per batch: its logits are the answer, and one optimizer step minimises `objective(logits)`.

    BatchNorm layers normalise with the statistics of the batch. So `model(x)`, which uses the running statistics,
    answers differently. Other layers run unchanged.

    Args:
        model: A model with norm layers.
        lr: The learning rate.
        optimizer: "adam", or "sgd" (momentum 0.9).
        adapts: Chooses the tensors that learn.
        output: See `Method`.
    """

    needs_norm = "any"
    passes = "1 / 1"
    keeps = "affine parameters, Adam's moments"

    def __init__(
        self,
        model: nn.Module | Backbone,
        *,
        lr: float = 1e-3,
        optimizer: str = "adam",
        adapts: Callable[[nn.Module], Tensors] = affine_parameters,
        output: Output = None,
    ) -> None:
        check_rate("lr", lr)
        if optimizer not in ("adam", "sgd"):
            raise ValueError(f"optimizer must be 'adam' or 'sgd', got {optimizer!r}")
        super().__init__(model, lambda module: {**adapts(module), **components(module)}, output=output)
        self.lr, self.optimizer, self.adapts = lr, optimizer, adapts
        self.descent = self.part("optimizer", Descent(self.make_optimizer, self.tensors))

    def objective(self, logits: Tensor) -> Tensor:
        """Return the loss of logits `[B, K]`, which one step minimises."""
        raise TypeError(f"{type(self).__name__} must define objective or learn")

    def make_optimizer(self, learned: list[Tensor]) -> Optimizer:
        """Make the optimizer of the learned tensors."""
        return (
            SGD(learned, lr=self.lr, momentum=0.9) if self.optimizer == "sgd" else Adam(learned, lr=self.lr)
        )

    def make_draft(self) -> Draft:
        """Make the draft, on which updates are computed."""

        def prepare(module: nn.Module) -> nn.Module:
            return move_components(use_batch_statistics(module))

        return Draft(self.backbone, self.descent.shapes, self.make_optimizer, prepare)

    def answering_module(self) -> nn.Module:
        """Make the module that answers: the adapted module, with the statistics of the batch."""
        return use_batch_statistics(self.backbone.build(self.tensors))

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch and learn from it."""
        if self.paused:
            return self.answer(self.all_finite(self.predict(x)))
        draft: Draft = self.made("draft", self.make_draft)
        draft.load(Value(self.tensors, self.descent.moments))
        logits = self.all_finite(draft.predict(x))
        before = self._parts.states()
        if self.learn(draft, x, logits):
            if not self.take_over(draft):
                self._parts.load(before)
        else:
            self.count_skipped()
        return self.answer(logits.detach())

    def answer(self, logits: Tensor) -> Tensor:
        """Return the answer to a batch with these logits."""
        return logits

    def learn(self, draft: Draft, x: Tensor, logits: Tensor) -> bool:
        """Make one update on `draft`, which computed `logits` from `x`. Returns False if it was skipped."""
        draft.step(self.objective(logits))
        return True

    def take_over(self, draft: Draft) -> bool:
        """Let an update take effect, or count it as rejected if it is not finite."""
        value = draft.value()
        if not self.count_update(value.is_finite()):
            return False
        copy_all(self.tensors, value.tensors)
        self.descent.moments = value.moments
        return True

    def go_back(self) -> None:
        """Return to the source's weights and a fresh optimizer; counters are kept."""
        copy_all(self.tensors, self.backbone.source)
        self.descent.moments = {}
