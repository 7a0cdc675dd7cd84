"""Methods that answer with running statistics and learn every few samples, so batch boundaries do not matter."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..memory import Memory
from .backbone import Backbone, Output, Tensors
from .delay import EXECUTORS, Pending, Schedule, Workshop
from .draft import Descent, Draft, Value, copy_all
from .method import Method
from .objectives import entropies
from .reach import Reach, finite_rows
from .settings import check_count, check_rate

if TYPE_CHECKING:
    from typing_extensions import Self


class IntervalMethod(Method):
    """Answer samples as they come, and learn from a memory after every `interval`-th accepted sample.

    Samples between two updates do not depend on each other and are computed together, so the boundaries of
    the caller's batches make no difference. The memory stores the prediction that was returned.

    A subclass writes `learn`, which works on a draft. The result takes effect as a whole, `delay` accepted
    samples later, or not at all.

    Args:
        model: A model with norm layers.
        adapts: Chooses the tensors that an update may change.
        memory: Where samples wait for the update.
        interval: Accepted samples between two updates.
        reach: The largest amplitude of a sample that is learned from, in multiples of the source's.
        delay: Accepted samples between the start of an update and its effect; it is computed meanwhile.
        executor: How a delayed update is computed: one of `EXECUTORS`.
        output: See `Method`.
    """

    batch_free = True

    def __init__(
        self,
        model: nn.Module | Backbone,
        adapts: Callable[[nn.Module], Tensors],
        memory: Memory,
        *,
        interval: int,
        reach: float = 5.0,
        delay: int = 0,
        executor: str = "thread",
        output: Output = None,
    ) -> None:
        check_count("interval", interval, 1)
        check_count("delay", delay, 0, interval)
        check_rate("reach", reach, infinite=True)
        if executor not in EXECUTORS:
            raise ValueError(f"executor must be one of {', '.join(EXECUTORS)}, got {executor!r}")
        if not isinstance(memory, Memory):
            raise TypeError(f"memory must be a Memory such as PBRS(64), got {type(memory).__name__}")
        super().__init__(model, adapts, output=output)
        self.interval, self.reach, self.delay, self.executor = interval, reach, delay, executor
        self.memory = self.part("memory", memory)
        self.schedule = self.part("schedule", Schedule())
        self.descent = self.part("optimizer", Descent(self.make_optimizer, self.tensors))
        self.workshop = Workshop()
        self.waits = 0.0
        self._unlearned_in_a_row = 0

    @abstractmethod
    def learn(self, draft: Any, x: Tensor, *args: Any, **kwargs: Any) -> None:
        """Make one update on `draft`. It may run in another thread.

        Args:
            draft: What `make_draft` made, with the value that the update starts from.
            x: The samples that `batch` chose.
            *args: What `context` returned.
            **kwargs: Unused; a subclass may name its own parameters.
        """

    def make_optimizer(self, learned: list[Tensor]) -> Optimizer:
        """The optimizer of the adapting parameters. A method without one never calls `draft.step`."""
        return torch.optim.SGD(learned, lr=0.0)

    def batch(self) -> Tensor:
        """The samples that an update learns from, chosen when it starts: all of the memory."""
        return self.memory.inputs()

    def context(self) -> tuple[Any, ...]:
        """Further arguments of `learn`, chosen when the update starts: the samples' ages, a seed."""
        return ()

    def changing(self) -> Tensors:
        """The tensors that an update changes: the model's. A method with a teacher adds the student's."""
        return self.tensors

    def store(self, x: Tensor, label: int, logits: Tensor) -> None:
        """Put an accepted sample into the memory."""
        self.memory.add(x, label, entropies(logits[None]).item() if self.memory.needs_entropy else None)

    def forward(self, x: Tensor) -> Tensor:
        """Answer samples, and learn wherever an interval ends."""
        self.settle()
        start, answers = 0, []
        while start < len(x):
            now = x[start : start + self.room()]
            answers.append(self.receive(now, *self.look(now)))
            start += len(now)
        return torch.cat(answers)

    def checked(self, x: Tensor) -> Tensor:
        """Return `x` in the model's dtype; refuse what is no batch of samples of the memory's shape."""
        x = super().checked(x)
        self.check_shape(x)
        return x

    def check_shape(self, x: Tensor) -> None:
        """Refuse samples whose shape is not the memory's."""
        held = self.memory.sample_shape
        if held is not None and held != tuple(x.shape[1:]):
            hint = "x[None] is a batch of one" if held == tuple(x.shape) else "a stream keeps one shape"
            raise ValueError(f"the memory holds samples of shape {held}, got {tuple(x.shape[1:])}: {hint}")

    def room(self) -> int:
        """How many samples can be answered together before the next update starts or takes effect."""
        room = self.interval - self.schedule.progress
        pending = self.schedule.pending
        return room if pending is None else min(room, pending.countdown)

    @property
    def busy(self) -> bool:
        """Whether an update is being computed, so that a call of `state_dict` would wait."""
        return self.schedule.pending is not None and not self.schedule.pending.done

    def look(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of samples, and whether each is near enough to the source to be learned from."""
        module = self.made("answering", self.answering_module)
        reach: Reach = self.made("reach", lambda: Reach(module, self.backbone.module))
        with self.workshop.gate:
            return reach.look(self.predict, x, self.reach)

    def receive(self, x: Tensor, logits: Tensor, near: Tensor) -> Tensor:
        """Store and count samples that were answered. Start an update, or apply one, where it is due.

        Args:
            x: At most `room()` samples.
            logits: The adapted model's answers.
            near: Whether each sample is near enough to the source to be learned from.

        Returns:
            The answers: `logits`, with NaN in the rows that are not finite.
        """
        # Counted before they are stored, so that whatever is learned from is counted.
        self.counters["samples"] += len(x)
        rows = finite_rows(logits)
        finite = [True] * len(logits) if rows is None else rows.tolist()
        accepted = [good and close for good, close in zip(finite, near.tolist(), strict=True)]
        self._count(finite, accepted)
        if rows is not None:
            logits = torch.where(rows[:, None], logits, torch.nan)
        if self.paused:
            return logits
        for sample, label, row, good in zip(x, logits.argmax(dim=1).tolist(), logits, accepted, strict=True):
            if good:
                self.store(sample, label, row)
        self._advance(sum(accepted))
        return logits

    def _advance(self, accepted: int) -> None:
        schedule = self.schedule
        if schedule.pending is not None:
            schedule.pending.countdown -= accepted
        schedule.progress += accepted
        if schedule.pending is not None:
            self.waits += schedule.pending.keep_up()
        self.settle()

    def settle(self) -> None:
        """Apply and start the updates that are due: those of a call that was interrupted, or failed, are overdue."""
        if self.schedule.pending is not None and self.schedule.pending.countdown == 0:
            self._take_effect()
        if self.schedule.progress == self.interval:
            self.schedule.progress = 0
            self._start_update()

    def _start_update(self) -> None:
        if len(self.memory) == 0:
            self.count_skipped()
            return
        x = self.batch().to(self.backbone.device, self.backbone.dtype)
        before = Value(self.changing(), self.descent.moments)
        if self.delay:  # what the update starts from may change before its thread has read it
            before = before.clone()
        job = partial(self._compute_update, before, x, self.context(), _autocast_settings(x.device.type))
        try:
            self.schedule.pending = self.workshop.start(self, job, self.delay, len(x))
        except BaseException:
            self.workshop.clear()  # its thread may have begun
            self.counters["rejected_updates"] += 1
            raise
        if self.delay == 0:
            self._take_effect()

    def _compute_update(
        self,
        before: Value,
        x: Tensor,
        context: tuple[Any, ...],
        autocast: dict[str, Any],
        draft: Any,
        piece_done: Callable[[], None],
    ) -> Value | None:
        """The value after an update; None where it is not finite."""
        draft.report(piece_done if self.delay else None)
        with torch.inference_mode(False), torch.autocast(**autocast):
            draft.load(before)
            self.learn(draft, x, *context)
        value = draft.value()
        return value if value.is_finite() else None

    def make_draft(self) -> Any:
        """What updates are computed on: a `Draft`, or `Drafts`."""
        return Draft(self.backbone, self.descent.shapes, self.make_optimizer)

    def _take_effect(self) -> None:
        value, waited = self._result()
        self.schedule.pending = None
        self.waits += waited
        self.count_update(value is not None)
        if value is None:
            self.memory.clear()
            return
        copy_all(self.changing(), value.tensors)
        self.descent.moments = value.moments

    def _result(self) -> tuple[Value | None, float]:
        """The pending update's result, and the seconds waited for it. A failed one is dropped, and its error raised."""
        pending = self.schedule.pending
        assert pending is not None
        try:
            return pending.result()
        except BaseException:
            if pending.done:  # otherwise the waiting was interrupted, not the update
                self.schedule.pending = None
                self.counters["rejected_updates"] += 1
            raise

    def _count(self, finite: list[bool], accepted: list[bool]) -> None:
        far = sum(finite) - sum(accepted)
        self.reject(finite.count(False), len(finite))
        self.counters["unlearned_samples"] += far
        self._unlearned_in_a_row = self._unlearned_in_a_row + far if far == len(finite) else 0
        if self._unlearned_in_a_row >= self.interval:
            self.warn(
                "unlearned_samples",
                f"the last {self._unlearned_in_a_row} samples were answered but not learned from: they are beyond "
                "`reach` times what the model was trained on. Are they scaled as in training?",
            )

    def reset(self) -> None:
        """Return to exactly the state at construction."""
        super().reset()
        self._unlearned_in_a_row = 0

    def _twin(self) -> Method:
        pending, self.schedule.pending = self.schedule.pending, None
        try:
            return super()._twin()
        finally:
            self.schedule.pending = pending

    def _finish(self) -> None:
        if self.schedule.pending is not None:
            self.waits += self._result()[1]

    def _cancel(self) -> None:
        if self.schedule.pending is not None:
            self.schedule.pending.cancel()
            self.schedule.pending = None
            self.workshop.clear()

    def _take_settings(self, settings: dict[str, Any]) -> None:
        super()._take_settings(settings)
        self.workshop.clear()

    def to(self, device: torch.device | str) -> Self:
        """Move the method to a device; see `Method`."""
        super().to(device)
        self.workshop.clear()
        return self

    def _load(self, state: dict[str, Any]) -> None:
        super()._load(state)
        schedule = self.schedule
        if type(schedule.progress) is not int or not 0 <= schedule.progress <= self.interval:
            raise ValueError(f"it is {schedule.progress!r:.40} samples into an interval of {self.interval}")
        if schedule.pending is not None:
            self._check_pending(schedule.pending)
        if not self.memory.dtype.is_floating_point:
            raise ValueError(f"its memory holds samples of {self.memory.dtype}")

    def _check_pending(self, pending: Pending) -> None:
        if type(pending.countdown) is not int or not 0 <= pending.countdown <= self.delay:
            raise ValueError(f"its pending update is due in {pending.countdown!r:.40} samples")
        value, _ = pending.result()
        if value is None:
            return
        own = self.changing()
        if value.tensors.keys() != own.keys() or any(
            not isinstance(t, Tensor) or t.shape != own[name].shape for name, t in value.tensors.items()
        ):
            raise ValueError("its pending update is of another model")
        self.descent.check(value.moments)


def _autocast_settings(device: str) -> dict[str, Any]:
    """What `torch.autocast` is set to in this thread: another thread does not inherit it."""
    return {
        "device_type": device,
        "enabled": torch.is_autocast_enabled(device),
        "dtype": torch.get_autocast_dtype(device),
        "cache_enabled": False,
    }
