"""What every method keeps to: checked input, exact state, a model left as the caller had it."""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .adapted import Adapted
from .states import check_tensors, completed, tensors_in

INPUT_BOUND = 1e6
"""The largest magnitude of an input value that a method takes for real; beyond it a sample is refused."""


class Stateful(Protocol):
    """A part of a method whose state is saved, restored and reset with it."""

    def state_dict(self) -> dict[str, Any]:
        """The part's state: tensors and plain values."""

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Take over a state."""


class NonFiniteLogits(Exception):
    """A batch came out non-finite before anything was learned from it."""


class Method(ABC):
    """A model that answers a stream and may learn from it, without labels.

    A subclass writes `forward` and says in `adapted` which of the model's tensors it may change; parts with a
    state of their own (an optimizer, a memory) go into `parts`. Then saving, restoring, resetting, pickling,
    the screening of bad samples and the care for the caller's flags are there already.

    Args:
        model: A classifier that maps `[B, ...]` to logits `[B, K]`. It is adapted in place; its train/eval
            mode and `requires_grad` flags are those of the caller again after every call.
        adapted: The tensors of `model` that the method may change, by name.
        parts: What else has a state, by name.
    """

    def __init__(
        self,
        model: nn.Module,
        adapted: dict[str, Tensor] | None = None,
        parts: dict[str, Stateful] | None = None,
    ) -> None:
        self.model = checked_module(model)
        self.counters = {"samples": 0, "updates": 0, "rejected_samples": 0, "rejected_updates": 0}
        self._changing = Adapted(model, adapted or {})
        self._parts = parts or {}
        self._progress = 0
        self._lock = threading.RLock()
        self._start = self.state_dict()

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch of finite samples, and learn from it after."""

    def __call__(self, x: Tensor) -> Tensor:
        """Answer a batch, then learn from it.

        Args:
            x: Samples `[B, ...]`, any B; a floating-point tensor on the model's device.

        Returns:
            Logits `[B, K]`, as of before `x` was learned from. A sample that holds NaN, Inf or a value beyond
            `INPUT_BOUND`, or whose logits come out non-finite, is answered with NaN and is not learned from.

        Raises:
            TypeError: `x` is not a floating-point tensor.
            ValueError: The model does not take samples of this shape. Nothing has changed then.
        """
        with self._locked(), self._in_eval_mode():
            x = self._checked(x)
            usable = _usable(x)
            logits = self._answer(x, usable)
            self.counters["samples"] += len(x)
            return logits

    def reset(self) -> None:
        """Return to exactly the state at construction."""
        with self._locked():
            self._load(self._start)

    def state_dict(self) -> dict[str, Any]:
        """All that decides what comes next, as tensors and plain values (`weights_only` loading reads it)."""
        with self._locked():
            parts = {name: copy.deepcopy(part.state_dict()) for name, part in self._parts.items()}
            return {
                "method": type(self).__name__,
                "layers": self._changing.layers(),
                "model": {name: tensor.detach().clone() for name, tensor in self._adapted.items()},
                "parts": parts,
                "counters": dict(self.counters),
                "progress": self._progress,
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state, as if never stopped.

        Raises:
            ValueError: The state is of another method or model. Nothing has changed then.
        """
        with self._locked():
            self._check_state(state)
            before = self.state_dict()
            try:
                check_tensors(state, like=before)
                self._load(state)
            except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
                self._load(before)
                raise ValueError(f"not a state of {type(self).__name__}: {error}") from error

    def __repr__(self) -> str:
        adapted = self._adapted
        learned = sum(t.numel() for t in adapted.values() if isinstance(t, nn.Parameter))
        total = sum(p.numel() for p in self.model.parameters())
        share = f" ({100 * learned / total:.3g} % of the model's {total:,})" if total else ""
        kinds = Counter(kind.partition("(")[0] for kind in self._changing.layers().values())
        layers = f"{kinds.total()} " + (f"{next(iter(kinds))} " if len(kinds) == 1 else "") + "layers"
        lines = [
            f"{type(self).__name__}({type(self.model).__name__})",
            f"  adapts:   {layers}, {learned:,} parameters{share}",
        ]
        if "memory" in self._parts:
            lines.append(f"  memory:   {self._parts['memory']}")
        lines.append("  counters: " + ", ".join(f"{name} {n:,}" for name, n in self.counters.items()))
        return "\n".join(lines)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    def _attempt(self, update: Callable[[], None]) -> bool:
        """Run an update of adapted tensors; where it fails or comes out non-finite, undo all of it.

        Returns:
            Whether the update stands.
        """
        optimizer = self._parts.get("optimizer")
        adapted = list(self._adapted.values())
        before = [tensor.detach().clone() for tensor in adapted]
        moments = None if optimizer is None else copy.deepcopy(optimizer.state_dict())
        stands = False
        try:
            update()
            moved = [] if optimizer is None else tensors_in(optimizer.state_dict())
            stands = all(bool(torch.isfinite(tensor).all()) for tensor in (*adapted, *moved))
        finally:
            if not stands:
                with torch.no_grad():
                    for tensor, old in zip(adapted, before, strict=True):
                        tensor.copy_(old)
                if optimizer is not None and moments is not None:
                    optimizer.load_state_dict(moments)
        self.counters["updates" if stands else "rejected_updates"] += 1
        return stands

    def _finite(self, logits: Tensor) -> Tensor:
        """`logits`, or `NonFiniteLogits` where any of them is not finite."""
        if not torch.isfinite(logits).all():
            raise NonFiniteLogits
        return logits

    def _checked(self, x: Tensor) -> Tensor:
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
        x = x.detach().to(self._dtype(x.dtype))
        return x.clone() if x.is_inference() else x

    def _dtype(self, default: torch.dtype) -> torch.dtype:
        """The dtype the model takes its input in."""
        return next((p.dtype for p in self.model.parameters() if p.is_floating_point()), default)

    def _answer(self, x: Tensor, usable: Tensor | None) -> Tensor:
        try:
            answers = self._run(x if usable is None else x[usable])
        except NonFiniteLogits:
            usable = torch.ones(len(x), dtype=torch.bool, device=x.device) if usable is None else usable
            usable[usable.clone()] = self._finite_alone(x[usable])
            try:
                answers = self._run(x[usable])
            except NonFiniteLogits:
                usable = torch.zeros_like(usable)
                answers = self._run(x[usable])
        if usable is None:
            return answers
        self.counters["rejected_samples"] += int((~usable).sum())
        logits = answers.new_full((len(x), answers.shape[1]), torch.nan)
        logits[usable] = answers
        return logits

    def _run(self, x: Tensor) -> Tensor:
        """`forward`; an empty batch, which not every model takes, is answered as no rows of one of zeros."""
        if len(x) == 0:
            return self._predict(x.new_zeros(1, *x.shape[1:]))[:0]
        return self.forward(x).detach()

    def _predict(self, x: Tensor) -> Tensor:
        """The model's logits without a gradient; a shape the model does not take is a `ValueError`."""
        with torch.no_grad():
            return self._logits(x)

    def _logits(self, x: Tensor) -> Tensor:
        """The model's logits in the mode it is in; a shape the model does not take is a `ValueError`."""
        try:
            logits: Tensor = self.model(x)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            raise ValueError(
                f"the model does not take samples of shape {tuple(x.shape[1:])}: {error}"
            ) from error
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(x):
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(f"the model must map [B, ...] to logits [B, K]: {tuple(x.shape)} gave {shape}")
        return logits

    def _finite_alone(self, x: Tensor) -> Tensor:
        """Which samples have finite logits by themselves, under the running statistics."""
        return torch.isfinite(self._predict(x)).all(dim=1)

    @property
    def _adapted(self) -> dict[str, Tensor]:
        """The tensors of the model that may change, by name."""
        return self._changing.tensors()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One thread at a time, and tensors that can be learned from, whatever mode the caller is in."""
        with self._lock, torch.inference_mode(False):
            yield

    @contextmanager
    def _in_eval_mode(self) -> Iterator[None]:
        training = [module for module in self.model.modules() if module.training]
        for module in training:
            module.training = False
        try:
            yield
        finally:
            for module in training:
                module.training = True

    def _check_state(self, state: dict[str, Any]) -> None:
        own = type(self).__name__
        if (
            not isinstance(state, dict)
            or not {"method", "layers", "model", "parts", "counters", "progress"} <= state.keys()
        ):
            raise ValueError(f"not a state of {own}: expected a dict made by its state_dict()")
        if state["method"] != own:
            raise ValueError(f"the state is of {state['method']}, this method is {own}")
        if not isinstance(state["layers"], dict):
            raise ValueError(f"not a state of {own}: its layers are a {type(state['layers']).__name__}")
        adapted = self._adapted
        for what, here in (("model", adapted), ("parts", self._parts), ("counters", self.counters)):
            if not isinstance(state[what], dict) or state[what].keys() != here.keys():
                raise ValueError(f"the state's {what} does not fit: expected the keys {sorted(here)[:6]}…")
        for name, kind in self._changing.layers().items():
            if state["layers"].get(name) != kind:
                raise ValueError(
                    f"the state is of a model whose {name or 'layer'} is {state['layers'].get(name)!s:.60}, "
                    f"here it is {kind}: convert the model as it was"
                )
        for name, tensor in adapted.items():
            other = state["model"][name]
            if not isinstance(other, Tensor) or other.shape != tensor.shape or other.dtype != tensor.dtype:
                raise ValueError(f"the state's {name} does not fit a tensor of shape {tuple(tensor.shape)}")

    def _load(self, state: dict[str, Any]) -> None:
        for name, part in self._parts.items():
            own = copy.deepcopy(state["parts"][name])
            part.load_state_dict(completed(part, own) if isinstance(part, Optimizer) else own)
        with torch.no_grad():
            for name, tensor in self._adapted.items():
                tensor.copy_(state["model"][name])
        self.counters.update({name: int(count) for name, count in state["counters"].items()})
        self._progress = int(state["progress"])


def checked_module(model: nn.Module) -> nn.Module:
    """`model`, or a `TypeError` where it is not an `nn.Module`."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    return model


def _usable(x: Tensor) -> Tensor | None:
    """Which samples hold only finite values of a sane size; None where all do, found in one pass."""
    bound = min(INPUT_BOUND, torch.finfo(x.dtype).max)
    if x.numel() == 0 or x.abs().amax() <= bound:
        return None
    return (x.abs() <= bound).flatten(1).all(dim=1)
