"""The base class of all memories: slots for samples, stored as bytes if that loses nothing, and a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor


class Memory(ABC):
    """At most `capacity` samples of a stream, each with its predicted label.

    A subclass writes `_place`. If every value of every sample is a multiple of 1/255, samples are stored as bytes, in
    a quarter of the space; `inputs()` returns exactly the same floats.

    Args:
        capacity: How many samples to hold.
        generator: Source of randomness; None means a new generator with torch's default seed.
        device: Where the samples are kept; None means the device of the first sample.
    """

    needs_entropy: ClassVar[bool] = False
    """Whether `add` needs the entropy of the prediction."""

    def __init__(
        self,
        capacity: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if not isinstance(capacity, int) or isinstance(capacity, bool):
            raise TypeError(f"capacity must be an int, got {type(capacity).__name__}")
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self.generator = torch.Generator() if generator is None else generator
        self.device = device
        self.owner: object | None = None
        self._dtype = torch.float32
        self._samples: Tensor | None = None
        self._labels: list[int] = []

    @abstractmethod
    def _place(self, label: int, entropy: float | None) -> int | None:
        """Choose the slot of a new sample; None to drop the sample."""

    def add(self, x: Tensor, label: int, entropy: float | None = None) -> None:
        """Offer one sample (no batch dimension) with its predicted label.

        Args:
            x: The sample.
            label: Its predicted class.
            entropy: The entropy of the prediction, for memories that use it (`needs_entropy`).
        """
        if self._samples is not None and x.shape != self._samples.shape[1:]:
            raise ValueError(
                f"this memory holds samples of shape {tuple(self._samples.shape[1:])}, got {tuple(x.shape)}"
            )
        label = int(label)
        try:
            slot = self._place(label, entropy)
            if slot is None:
                return
            self._keep(x.detach(), slot)
            put(self._labels, slot, label)
        except BaseException:
            self._mend()
            raise

    def _mend(self) -> None:  # noqa: B027
        """Make what a subclass keeps about the samples agree with the labels again, after an interrupt in `add`."""

    def __len__(self) -> int:
        return len(self._labels)

    def inputs(self) -> Tensor:
        """Return a stacked copy of the samples; an empty tensor if there are none."""
        return unpack(self._held(), self._dtype)

    def labels(self) -> list[int]:
        """Return the predicted label of each sample, in the order of `inputs()`."""
        return list(self._labels)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the samples that were added."""
        return self._dtype

    @property
    def sample_shape(self) -> tuple[int, ...] | None:
        """The shape of the samples; None if there are none."""
        return None if self._samples is None else tuple(self._samples.shape[1:])

    def clear(self) -> None:
        """Discard the samples and all counts; the random generator is not reset."""
        self._samples = None
        self._labels = []

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state: samples, labels, counts and the generator's state."""
        return {
            "kind": type(self).__name__,
            "capacity": self.capacity,
            "inputs": self._held(),
            "dtype": str(self._dtype).removeprefix("torch."),
            "labels": self.labels(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state. One that does not fit is refused before anything changes."""
        kind = type(self).__name__
        if state.get("kind", kind) != kind:  # states of 0.2.0 have none
            raise ValueError(f"the state belongs to a {state['kind']!s:.40}, but this is a {kind}")
        missing = self.state_dict().keys() - state.keys() - {"kind"}
        if missing:
            raise ValueError(f"not a state of {kind}: {', '.join(sorted(missing))} missing")
        inputs, labels = state["inputs"], state["labels"]
        if state["capacity"] != self.capacity:
            raise ValueError(
                f"the state belongs to a {kind} of capacity {state['capacity']}, but this one has {self.capacity}"
            )
        if (
            not all(type(label) is int for label in labels)
            or len(labels) > self.capacity
            or len(inputs) != len(labels)
        ):
            raise ValueError(f"not a state of {kind}: {len(inputs)} inputs with labels {labels!r:.80}")
        dtype = getattr(torch, str(state["dtype"]), None)
        if not isinstance(dtype, torch.dtype) or (
            labels and inputs.dtype != dtype and not (inputs.dtype == torch.uint8 and dtype.is_floating_point)
        ):
            raise ValueError(
                f"not a state of {kind}: it has samples of {inputs.dtype} instead of {state['dtype']!r:.40}"
            )
        self.generator.set_state(state["generator"].cpu())
        self._dtype = dtype
        self._samples = None
        self._labels = list(labels)
        if labels:
            self._samples = self._room(inputs[0])
            self._samples[: len(labels)] = inputs

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except the method that uses the memory, with the generator as bytes."""
        return {**vars(self), "generator": bytes(self.generator.get_state().numpy()), "owner": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._samples is not None:
            self._samples = self._samples.clone()  # torch shares the memory of tensors between processes
        self.generator = torch.Generator()
        self.generator.set_state(torch.frombuffer(bytearray(state["generator"]), dtype=torch.uint8))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {self.capacity} held)"

    def _keep(self, x: Tensor, slot: int) -> None:
        """Put a sample into a slot, as bytes while all samples allow it."""
        if self._samples is None:
            self._dtype = x.dtype
        may_pack = self._samples is None or self._samples.dtype != self._dtype
        packed = pack(x.to(self._dtype)) if may_pack else None
        if self._samples is None:
            self._samples = self._room(x if packed is None else packed)
        elif may_pack and packed is None:
            self._samples = unpack(self._samples, self._dtype)
        self._samples[slot] = x if packed is None else packed

    def _room(self, like: Tensor) -> Tensor:
        device = like.device if self.device is None else self.device
        return torch.empty((self.capacity, *like.shape), dtype=like.dtype, device=device)

    def _held(self) -> Tensor:
        """Return a copy of the samples as they are stored."""
        if self._samples is None:
            return torch.empty(0, dtype=self._dtype)
        return self._samples[: len(self)].clone()

    def _uniform(self) -> float:
        """Draw a number uniformly from [0, 1)."""
        return torch.rand((), generator=self.generator, dtype=torch.float64, device="cpu").item()


def pack(x: Tensor) -> Tensor | None:
    """Return a float tensor as bytes k if each of its values is exactly k/255, otherwise None.

    Example:
        >>> pack(torch.tensor([0.0, 51 / 255, 1.0]))
        tensor([  0,  51, 255], dtype=torch.uint8)
        >>> pack(torch.tensor([0.0, 0.1])) is None
        True
    """
    if not x.is_floating_point():
        return None
    packed = (x * 255).round_().to(torch.uint8)
    return packed if torch.equal(unpack(packed, x.dtype), x) else None


def unpack(samples: Tensor, dtype: torch.dtype) -> Tensor:
    """Invert `pack`; a tensor that already has `dtype` is returned unchanged."""
    return samples if samples.dtype == dtype else samples.to(dtype) / 255


def put(values: list[Any], slot: int, value: Any) -> None:
    """Set the value of a slot, which may be the first unused one."""
    values[slot : slot + 1] = [value]
