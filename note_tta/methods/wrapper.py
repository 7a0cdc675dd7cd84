"""The base class of methods that wrap another method: the temporal filter and the watch."""

from __future__ import annotations

import copy
import threading
from textwrap import indent
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import states
from .backbone import refuse_inference_mode
from .method import Method
from .packed import plain
from .parts import AnyPart, Parts
from .reach import finite_rows

if TYPE_CHECKING:
    from typing_extensions import Self

    # At run time, `Method.register` makes a wrapper a method. Type checkers do not know it.
    class _Registered(Method):
        def forward(self, x: Tensor) -> Tensor:
            """A wrapper has no `forward`: its answers are the inner method's."""

else:
    _Registered = object


class Wrapper(_Registered):
    """A method that wraps another one: it sees samples and answers, and may change the answers.

    A subclass calls `super().__init__` first, adds its parts with `part`, and writes `after`. The state, `reset` and
    `fork` include the inner method. All other attributes (`model`, `memory`, `counters`, ...) are the inner method's.

    Args:
        method: Any method, wrapped or not.
    """

    def __init__(self, method: Method) -> None:
        if not isinstance(method, Method):
            raise TypeError(f"method must be a method such as tta.NOTE(model), got {type(method).__name__}")
        refuse_inference_mode()
        self.method = method
        self._parts = Parts()
        self._settings_at_start: dict[str, Any] | None = None
        self._lock = threading.RLock()

    def after(self, x: Tensor, logits: Tensor) -> Tensor:
        """Return the answers to `x`, given the inner method's `logits` (NaN for rejected samples)."""
        raise TypeError(f"{type(self).__name__} must define after")

    def part(self, name: str, part: AnyPart) -> AnyPart:
        """Add a part and return it. It is saved, restored, reset and forked with the method."""
        return self._parts.add(name, part, owner=self)

    def __call__(self, x: Tensor) -> Tensor:
        """Answer a batch, then learn from it; see `Method`."""
        with self._lock, torch.inference_mode(False):
            if not isinstance(x, Tensor) or x.ndim == 0 or not self.batch_free or len(x) <= self.room():
                return self.after(x, self.method(x))
            usable = finite_rows(self.inner.checked(x))
            seen = torch.arange(1, len(x) + 1, device="cpu") if usable is None else usable.cumsum(0).cpu()
            answers, start = [], 0
            while start < len(x):
                before = int(seen[start - 1]) if start else 0
                end = min(int(torch.searchsorted(seen, before + self.room())) + 1, len(x))
                now = x[start:end]
                answers.append(self.after(now, self.method(now)))
                start = end
            return torch.cat(answers)

    def receive(self, x: Tensor, logits: Tensor, near: Tensor) -> Tensor:
        """Take samples that were answered elsewhere; see `IntervalMethod`."""
        with torch.inference_mode(False):
            return self.after(x, self.method.receive(x, logits, near))  # type: ignore[attr-defined]

    def reset(self) -> None:
        """Return to exactly the state at construction."""
        with self._lock, torch.inference_mode(False):
            self.method.reset()
            self._parts.reset()
            for name, value in (self._settings_at_start or {}).items():
                setattr(self, name, value)

    def fork(self) -> Self:
        """Return a copy that continues independently from this state. Only the backbone is shared."""
        with self._lock, torch.inference_mode(False):
            at_start = self._parts.at_start
            memo: dict[int, Any] = {id(self.method): self.method.fork(), id(at_start): at_start}
            return copy.deepcopy(self, memo)

    def to(self, device: torch.device | str) -> Self:
        """Move the inner method to a device and return the wrapper."""
        self.method.to(device)
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapper's state; `inner` holds the state of the inner method."""
        with self._lock, torch.inference_mode(False):
            return plain(self.live_state())  # type: ignore[no-any-return]

    def live_state(self) -> dict[str, Any]:
        """Return the state without copying. It holds the method's own tensors, so copy or write it at once."""
        inner = self.method.live_state()
        return {
            "version": states.VERSION,
            "method": type(self).__name__,
            "settings": self.settings(),
            "fingerprint": inner["fingerprint"],
            "model": inner["model"],
            "parts": self._parts.states(),
            "counters": inner["counters"],
            "inner": {key: value for key, value in inner.items() if key != "model"},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state. A state that does not fit is refused, and nothing changes."""
        with self._lock, torch.inference_mode(False):
            states.check_wrapper(state, self)
            twin = self.fork()
            try:
                states.check_finite(state["parts"], like=None)
                settings = {**self.settings(), **state["settings"]}
                type(self)(twin.method, **settings)  # refuses what the constructor refuses
                for name, value in state["settings"].items():
                    setattr(twin, name, value)
                twin._parts.load(copy.deepcopy(state["parts"]))
            except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
                raise ValueError(f"not a state of {type(self).__name__}: {error}") from error
            self.method.load_state_dict({**state["inner"], "model": state["model"]})
            self._parts.load(twin._parts.states())
            if self._settings_at_start is None:
                self._settings_at_start = self.settings()
            for name in state["settings"]:
                setattr(self, name, getattr(twin, name))

    def continue_from(self, state: dict[str, Any]) -> None:
        """Continue from a `live_state` without checks; see `Method`."""
        with torch.inference_mode(False):
            self.method.continue_from({**state["inner"], "model": state["model"]})
            for name, value in state["settings"].items():
                setattr(self, name, value)
            self._parts.load(state["parts"])

    def settings(self) -> dict[str, Any]:
        """Return the plain values that the wrapper was made with, by keyword."""
        return states.plain_settings(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__} around\n{indent(repr(self.method), '  ')}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "method":
            raise AttributeError(name)
        return getattr(self.method, name)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())


Method.register(Wrapper)
