"""The base class of all methods: it answers at once, holds the state, and never changes the caller's model."""

from __future__ import annotations

import copy
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ..callers import warn_caller
from . import states
from .backbone import Backbone, NonFiniteLogits, Output, Tensors, own_tensors, refuse_inference_mode
from .draft import copy_all
from .norm import nothing
from .packed import Packed, plain
from .parts import AnyPart, Parts
from .reach import finite_rows

if TYPE_CHECKING:
    from typing_extensions import Self

COUNTERS = (
    "samples",
    "updates",
    "rejected_samples",
    "unlearned_samples",
    "rejected_updates",
    "skipped_updates",
)
BAD_IN_A_ROW = 64
"""Rejected samples in a row after which the method warns."""
UNDONE_IN_A_ROW = 3
"""Updates in a row that were undone after which the method warns."""
SKIPPED_IN_A_ROW = 32
"""Updates in a row that had nothing to learn from after which the method warns."""


class Method(ABC):
    """A model that answers a stream and may learn from it, without labels.

    A subclass calls `super().__init__` first, adds its parts with `part`, and writes `forward`. It keeps each
    keyword of its constructor as an attribute of the same name. It then inherits saving, restoring, resetting,
    forking, pickling and the rejection of bad samples. The caller's model is never changed. The method has its own
    module, `model`, which shares all tensors with the caller's model except those that adapt.

    Args:
        model: A classifier that maps `[B, ...]` to logits `[B, K]`, or a `Backbone` made of one.
        adapts: Chooses the tensors that the method may change, such as `norm_tensors`.
        output: The key, index or callable that takes the logits out of what the model returns.
    """

    title: ClassVar[str] = ""
    """The method's name in tables."""
    citation: ClassVar[str] = ""
    """Whom to cite."""
    batch_free: ClassVar[bool] = False
    """Whether answers and state do not depend on how the stream is split into batches."""
    uses_order: ClassVar[bool] = False
    """Whether a sample's answer depends on the samples before it in the same batch."""
    needs_norm: ClassVar[str] = ""
    """The norm layers that the model must have: "", "any", "batch", "IABN"."""
    needs_images: ClassVar[bool] = False
    """Whether it accepts only images."""
    needs_source: ClassVar[bool] = False
    """Whether it needs samples or statistics of the source data."""
    source_samples: ClassVar[int | None] = None
    """How many source samples, in random order, it gets in experiments; None means all, in their own order."""
    passes: ClassVar[str] = "1"
    """Forward passes per sample, and backward passes after a slash."""
    keeps: ClassVar[str] = ""
    """What it keeps in memory per stream."""
    licence: ClassVar[str] = ""
    """The licence of the authors' code; empty if unknown."""
    trained_with: ClassVar[str] = "bn"
    """The norm layers of its source model in experiments."""

    def __init__(
        self,
        model: nn.Module | Backbone,
        adapts: Callable[[nn.Module], Tensors] = nothing,
        *,
        output: Output = None,
    ) -> None:
        refuse_inference_mode()
        self.backbone = model if isinstance(model, Backbone) else Backbone(model, adapts, output)
        self.output = self.backbone.output
        self.tensors: Tensors = self.backbone.clone_source()
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.paused = False
        self.label = ""
        self._parts = Parts()
        self._settings_at_start: dict[str, Any] | None = None
        self._rejected_in_a_row = 0
        self._undone_in_a_row = 0
        self._skipped_in_a_row = 0
        self._warned: set[str] = set()
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}

    def part(self, name: str, part: AnyPart) -> AnyPart:
        """Add a part and return it. It is saved, restored, reset and forked with the method."""
        return self._parts.add(name, part, owner=self)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch of finite samples, then learn from it unless `paused`."""

    def __call__(self, x: Tensor) -> Tensor:
        """Answer a batch, then learn from it.

        Args:
            x: Samples `[B, ...]`, any B; a floating-point tensor on the model's device.

        Returns:
            Logits `[B, K]`, computed before the method learns from `x`. A sample that holds NaN or Inf, or
            whose logits are not finite, is answered with NaN and is not learned from.

        Raises:
            TypeError: `x` is not a floating-point tensor.
            ValueError: The model does not accept samples of this shape, or its frozen tensors were changed. The
                method's state has not changed.
        """
        with self._lock, torch.inference_mode(False):
            x = self.checked(x)
            usable = finite_rows(x)
            before = self.counters["samples"]
            logits = self._answer(x, usable)
            self.counters["samples"] = before + len(x)
            return logits.to(self.backbone.answer_dtype or logits.dtype)

    @property
    def inner(self) -> Method:
        """The method inside all wrappers: here, this one."""
        return self

    def room(self) -> int:
        """Return how many samples can be answered together before the state changes: here, any number."""
        return sys.maxsize

    @property
    def model(self) -> nn.Module:
        """The adapted module in eval mode, to use, save or export. It stays the same object."""
        with self._lock:
            module: nn.Module = self.made("model", lambda: self.backbone.build(self.tensors))
            return module

    def answering_module(self) -> nn.Module:
        """Make the module that the method answers with. Subclasses may override this; here it is like `model`."""
        return self.backbone.build(self.tensors)

    def predict(self, x: Tensor) -> Tensor:
        """Return the logits of the answering module, computed without gradients."""
        with torch.no_grad():
            return self.backbone.run(self.made("answering", self.answering_module), x)

    def made(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a cached object, such as a module, that can be rebuilt at any time and is not part of the state."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def reset(self) -> None:
        """Return to exactly the state at construction."""
        with self._lock, torch.inference_mode(False):
            self._cancel()
            copy_all(self.tensors, self.backbone.source)
            self._parts.reset()
            self.counters.update(dict.fromkeys(COUNTERS, 0))
            if self._settings_at_start is not None:
                self._take_settings(self._settings_at_start)
            self.paused = False
            self._rejected_in_a_row = self._undone_in_a_row = self._skipped_in_a_row = 0

    def pause(self) -> None:
        """Stop learning: samples are still answered and counted, but not stored."""
        self.paused = True

    def resume(self) -> None:
        """Learn again."""
        self.paused = False

    def fork(self) -> Self:
        """Return a copy that continues independently from this state. Only the backbone is shared."""
        with self._lock, torch.inference_mode(False):
            self._finish()
            shared = (self.backbone, self._parts.at_start, self._settings_at_start)  # these never change
            return copy.deepcopy(self, {id(thing): thing for thing in shared})

    def to(self, device: torch.device | str) -> Self:
        """Move the method to a device, with its own copy of the frozen tensors, and return it."""
        with self._lock, torch.no_grad():
            self._finish()
            moved = self.backbone.to(device)
            if moved is self.backbone:
                return self
            self.backbone = moved
            tensors = self.backbone.clone_source()
            copy_all(tensors, self.tensors)
            self.tensors = tensors
            self._made.clear()
        return self

    def snapshot(self) -> dict[str, Any]:
        """Return what was learned so far, for `roll_back`: the adapted tensors and the parts that learn."""
        with self._lock, torch.inference_mode(False):
            return plain({"model": self.tensors, "parts": self._parts.learned().states()})  # type: ignore[no-any-return]

    def roll_back(self, snapshot: dict[str, Any] | None = None) -> None:
        """Return to what was learned at a snapshot; None returns to the source model.

        The memory and a pending update are discarded. Counters and random generators are kept.
        """
        with self._lock, torch.inference_mode(False):
            self._cancel()
            copy_all(self.tensors, self.backbone.source if snapshot is None else snapshot["model"])
            parts = self._parts.at_start if snapshot is None else snapshot["parts"]
            self._parts.learned().load(copy.deepcopy(parts))
            for part in self._parts.values():
                if hasattr(part, "clear"):
                    part.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as tensors and plain values; `torch.load` with `weights_only=True` can read it."""
        with self._lock, torch.inference_mode(False):
            return plain(self.live_state())  # type: ignore[no-any-return]

    def live_state(self) -> dict[str, Any]:
        """Return the state without copying. It holds the method's own tensors, so copy or write it at once."""
        self._finish()
        return {
            "version": states.VERSION,
            "method": type(self).__name__,
            "settings": self.settings(),
            "fingerprint": self.backbone.fingerprint,
            "layers": self.backbone.layers,
            "model": self.tensors,
            "parts": self._parts.states(),
            "counters": self.counters,
            "paused": self.paused,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state exactly as the method that saved it.

        All settings (`interval`, `lr` and so on) are taken from the state.

        Raises:
            ValueError: The state belongs to another method or model, or to a newer version of the library. Nothing
                has changed.
        """
        with self._lock, torch.inference_mode(False):
            states.check(state, self)
            settings = self.settings()
            twin = self._twin()
            try:
                states.check_finite(state["model"], like=self.backbone.source)
                states.check_finite(state["parts"], like=twin._parts.states())
                if state["settings"] != settings:
                    twin._take_settings(self._checked_settings(state["settings"]))
                twin._load(copy.deepcopy(state))
            except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
                raise ValueError(f"not a state of {type(self).__name__}: {error}") from error
            self._cancel()
            if self._settings_at_start is None:
                self._settings_at_start = settings
            self.continue_from(twin.live_state())

    def continue_from(self, state: dict[str, Any]) -> None:
        """Continue from a `live_state` that is known to fit. It is neither checked nor copied."""
        if state["settings"] != self.settings():
            self._take_settings(state["settings"])
        self._load(state)

    def settings(self) -> dict[str, Any]:
        """Return the plain values that the method was made with, by keyword."""
        return states.plain_settings(self)

    def warn(self, kind: str, message: str) -> None:
        """Warn once per method and kind of problem."""
        if kind not in self._warned:
            self._warned.add(kind)
            warn_caller(f"{self.label}: {message}" if self.label else message)

    def checked(self, x: Tensor) -> Tensor:
        """Return `x` in the model's dtype; refuse anything that is not a batch of floating-point samples."""
        if not isinstance(x, Tensor):
            raise TypeError(f"x must be a tensor, got {type(x).__name__}")
        if not x.is_floating_point():
            raise TypeError(
                f"x must be floating point, got {x.dtype}: scale the samples first, images to [0, 1]"
            )
        if x.ndim < 2:
            raise ValueError(
                f"x must have a batch dimension and at least one more, got shape {tuple(x.shape)}"
            )
        self.backbone.check()
        x = x.detach().to(self.backbone.dtype or x.dtype)
        return x.clone() if x.is_inference() else x

    def reject(self, count: int, of: int) -> None:
        """Count samples that were answered with NaN, and warn after `BAD_IN_A_ROW` in a row."""
        self.counters["rejected_samples"] += count
        self._rejected_in_a_row = self._rejected_in_a_row + count if count == of else 0
        if self._rejected_in_a_row >= BAD_IN_A_ROW:
            self.warn(
                "rejected_samples",
                f"the last {self._rejected_in_a_row} samples were answered with NaN: they contain NaN or Inf, or "
                "the model's logits for them do. Check what the sensor sends and how it is scaled",
            )

    def __repr__(self) -> str:
        learned = sum(t.numel() for t in self.tensors.values() if isinstance(t, nn.Parameter))
        total = sum(p.numel() for p in self.backbone.module.parameters())
        share = f" ({100 * learned / total:.3g} % of the model's {total:,})" if total else ""
        kinds = Counter(kind.partition("(")[0] for kind in self.backbone.layers.values())
        layers = f"{kinds.total()} " + (f"{next(iter(kinds))} " if len(kinds) == 1 else "") + "layers"
        lines = [
            f"{type(self).__name__}({type(self.backbone.module).__name__})",
            f"  adapts:   {layers}, {learned:,} parameters{share}",
        ]
        if "memory" in self._parts:
            lines.append(f"  memory:   {self._parts['memory']}")
        lines.append("  counters: " + ", ".join(f"{name} {n:,}" for name, n in self.counters.items()))
        return "\n".join(lines)

    def _answer(self, x: Tensor, usable: Tensor | None) -> Tensor:
        try:
            answers = self._run(x if usable is None else x[usable])
        except NonFiniteLogits:
            usable = torch.ones(len(x), dtype=torch.bool, device=x.device) if usable is None else usable
            with torch.no_grad():  # with running statistics, a bad sample does not affect the others
                usable[usable.clone()] = torch.isfinite(self.backbone.run(self.model, x[usable])).all(dim=1)
            try:
                answers = self._run(x[usable])
            except NonFiniteLogits:
                usable = torch.zeros_like(usable)
                answers = self._run(x[usable])
        if usable is None:
            return answers
        self.reject(int((~usable).sum()), len(x))
        logits = answers.new_full((len(x), answers.shape[1]), torch.nan)
        logits[usable] = answers
        return logits

    def _run(self, x: Tensor) -> Tensor:
        """Run `forward`. For an empty batch, which not every model accepts, run one sample of zeros and drop it."""
        if len(x) == 0:
            with torch.no_grad():
                return self.backbone.run(self.model, x.new_zeros(1, *x.shape[1:]))[:0]
        return self.forward(x).detach().clone()  # the model may use the tensor that it returned again

    def count_update(self, took_effect: bool) -> bool:
        """Count an update that took effect, or that was undone because it was not finite; warn of several of these."""
        self.counters["updates" if took_effect else "rejected_updates"] += 1
        self._skipped_in_a_row = 0
        self._undone_in_a_row = 0 if took_effect else self._undone_in_a_row + 1
        if self._undone_in_a_row >= UNDONE_IN_A_ROW:
            self.warn(
                "rejected_updates",
                f"the last {self._undone_in_a_row} updates were not finite and were undone: nothing is learned. "
                "A smaller lr or a wider dtype may help",
            )
        return took_effect

    def count_skipped(self) -> None:
        """Count an update that had nothing to learn from, and warn of many of these in a row."""
        self.counters["skipped_updates"] += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= SKIPPED_IN_A_ROW:
            self.warn(
                "skipped_updates",
                f"the last {self._skipped_in_a_row} updates were skipped: no sample was suitable to learn from. Larger "
                "batches, or a less strict choice of samples (`confidence`, `margin`, `redundancy`), may help",
            )

    def all_finite(self, logits: Tensor) -> Tensor:
        """Return `logits` if all are finite. Otherwise `__call__` leaves out the bad samples and tries again."""
        if finite_rows(logits) is not None:
            raise NonFiniteLogits
        return logits

    def _twin(self) -> Method:
        """Return a fork to try a state on, without waiting for an update that is being computed."""
        return self.fork()

    def _finish(self) -> None:  # noqa: B027
        """Wait for an update that is being computed; for methods that compute updates in the background."""

    def _cancel(self) -> None:  # noqa: B027
        """Cancel an update that is being computed; for methods that compute updates in the background."""

    def _load(self, state: dict[str, Any]) -> None:
        """Load a state. This may fail half-way, so `load_state_dict` tries it on a fork first."""
        copy_all(self.tensors, state["model"])
        self._parts.load(state["parts"])
        self.counters.update({name: int(state["counters"][name]) for name in COUNTERS})
        self.paused = bool(state["paused"])

    def _checked_settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return settings as the constructor keeps them; refuse those that it would refuse."""
        keywords = set(states.keywords(type(self))) - {"memory"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = type(self)(self.backbone, **({name: getattr(self, name) for name in keywords} | settings))
        return {name: getattr(made, name) for name in settings}

    def _take_settings(self, settings: dict[str, Any]) -> None:
        for name, value in settings.items():
            setattr(self, name, value)
        self._made = {name: made for name, made in self._made.items() if name == "model"}

    def __getstate__(self) -> dict[str, Any]:
        self._finish()
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_made")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock(), _made={})
        own = self.tensors.clone() if isinstance(self.tensors, Packed) else own_tensors(self.tensors)
        self.tensors = own  # torch shares the memory of tensors between processes
        self._parts.belong_to(self)
