"""An update is computed on a draft, a copy. Its result is one value, which takes effect as a whole or not at all."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from . import states
from .backbone import Backbone
from .norm import batch_norms, need_input_gradients
from .packed import Layout, Packed
from .pieces import Pieces
from .states import Moments

HALF_PRECISION_SCALE = 1024.0
"""The loss scale for float16 activations, which would lose the smallest gradients."""


class Value(NamedTuple):
    """What an update starts from and results in: the adapting tensors and the optimizer's moments."""

    tensors: Mapping[str, Tensor]
    moments: Moments

    def clone(self, tensors: Layout | None = None, moments: Layout | None = None) -> Value:
        """A copy in new buffers, with these layouts where they fit."""
        return Value(Packed.of(self.tensors, tensors), Packed.of(self.moments, moments))

    def is_finite(self) -> bool:
        """Whether every number in it is finite."""
        return all(
            bool(torch.isfinite(tensor).all()) for tensor in states.tensors_in([self.tensors, self.moments])
        )


class Descent:
    """An optimizer's moments, apart from the tensors that it updates; a part of a method.

    Args:
        make: Makes the optimizer of a list of tensors.
        tensors: The adapting tensors by name; it updates the parameters among them.
    """

    def __init__(self, make: Callable[[list[Tensor]], Optimizer], tensors: Mapping[str, Tensor]) -> None:
        self.make = make
        self.shapes = {name: (t.shape, t.dtype) for name, t in tensors.items() if isinstance(t, nn.Parameter)}
        self.moments: Moments = {}

    def state_dict(self) -> dict[str, Any]:
        """The moments by the position of the tensor. An update replaces them and never changes them in place."""
        return {"moments": self.moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over moments that this optimizer could have made itself."""
        moments = state["moments"]
        self.check(moments)
        self.moments = moments if isinstance(moments, Packed) else Packed.of(moments)

    def check(self, moments: Any) -> None:
        """Refuse moments that would make the next step fail."""
        if not isinstance(moments, Packed):  # packed ones come from an update or were checked before
            states.check_moments(moments, self._after_a_step() if moments else {})

    def _after_a_step(self) -> Moments:
        """The moments of a fresh optimizer after one step; this works for any optimizer."""
        tensors = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape, dtype in self.shapes.values()]
        optimizer = self.make(tensors)  # type: ignore[arg-type]
        for tensor in tensors:
            tensor.grad = torch.zeros_like(tensor)
        optimizer.step()
        return {index: dict(optimizer.state[tensor]) for index, tensor in enumerate(tensors)}

    def __deepcopy__(self, memo: dict[int, Any]) -> Descent:
        twin = copy.copy(self)  # shapes never change and are shared
        twin.make = copy.deepcopy(self.make, memo)
        return twin


class Draft:
    """A module with its own adapting tensors to learn on, and an optimizer of some of them.

    Args:
        backbone: The structure, the frozen tensors and the source values.
        learns: The names of the tensors that need gradients.
        optimizer: Makes the optimizer of these tensors.
        prepare: Changes the module before its first pass, such as `use_batch_statistics`.
    """

    def __init__(
        self,
        backbone: Backbone,
        learns: Iterable[str] = (),
        optimizer: Callable[[list[Tensor]], Optimizer] | None = None,
        prepare: Callable[[nn.Module], nn.Module] | None = None,
    ) -> None:
        keep_freed_memory()
        self.backbone = backbone
        self.tensors = backbone.clone_source()
        self.learned = [self.tensors[name] for name in learns]
        for tensor in self.tensors.values():
            tensor.requires_grad_(False)
        for tensor in self.learned:
            tensor.requires_grad_(True)
        module = need_input_gradients(backbone.build(self.tensors, for_learning=True))
        self.module = module if prepare is None else prepare(module)
        adapting = {id(tensor) for tensor in self.tensors.values()}
        self.layers = [  # those with statistics of their own; frozen ones are the caller's
            layer
            for layer in batch_norms(self.module).values()
            if any(id(buffer) in adapting for buffer in layer.buffers())
        ]
        self.optimizer = optimizer(self.learned) if optimizer is not None and self.learned else None
        self.pieces = Pieces(self.module)
        self._layouts: tuple[Layout | None, Layout | None] = (None, None)

    def report(self, done: Callable[[], None] | None) -> None:
        """From now on call `done` after each piece of the work; None computes every layer as a whole."""
        self.pieces.done = done

    def count_pieces(self, samples: int) -> int:
        """About how many pieces an update on so many samples has."""
        return self.pieces.count(samples, backward=self.optimizer is not None)

    def load(self, value: Value) -> None:
        """Start from a value, which stays as it is."""
        copy_all(self.tensors, value.tensors)
        if isinstance(value.tensors, Packed) and isinstance(value.moments, Packed):
            self._layouts = value.tensors.layout, value.moments.layout
        if self.optimizer is not None:
            self.optimizer.state.clear()
            for index, own in Packed.of(value.moments).views().items():
                device = self.learned[index].device
                self.optimizer.state[self.learned[index]] = {
                    key: v.to(device) if isinstance(v, Tensor) and v.ndim else v for key, v in own.items()
                }

    def value(self) -> Value:
        """The result, in new buffers."""
        value = Value(self.tensors, self.moments()).clone(*self._layouts)
        self._layouts = value.tensors.layout, value.moments.layout  # type: ignore[attr-defined]
        return value

    def moments(self) -> Moments:
        """The optimizer's moments, by the position of the tensor."""
        if self.optimizer is None:
            return {}
        state = self.optimizer.state
        return {index: state[tensor] for index, tensor in enumerate(self.learned) if tensor in state}

    def predict(self, x: Tensor, *, momentum: float | None = None) -> Tensor:
        """The logits of a batch, with a graph.

        Args:
            x: Samples `[B, ...]`.
            momentum: Normalise with the batch's statistics and move the running ones by this. None normalises
                with the running statistics and does not move them.
        """
        for layer in self.layers:
            layer.training = momentum is not None
            if momentum is not None:
                layer.momentum = momentum
        self.pieces.begin(len(x))
        with torch.enable_grad():
            return self.backbone.run(self.module, x)

    def backward(self, loss: Tensor) -> None:
        """Set the gradients of the learned tensors to those of `loss`."""
        for tensor in self.learned:
            tensor.grad = None
        if not loss.requires_grad:
            raise ValueError(
                "the model computes no gradients, so nothing can be learned: remove torch.no_grad() or "
                "torch.inference_mode() from its forward, or use Source, BNStats or ONDA, which need none"
            )
        scale = HALF_PRECISION_SCALE if self.backbone.dtype == torch.float16 else 1.0
        (loss * scale).backward()
        for tensor in self.learned:
            if tensor.grad is not None and scale != 1:
                tensor.grad.div_(scale)

    def step(self, loss: Tensor | None = None) -> None:
        """Take one step of the optimizer, with the gradients of `loss` or those that `backward` has set."""
        if self.optimizer is None:
            return
        if loss is not None:
            self.backward(loss)
        self.optimizer.step()


@functools.cache
def keep_freed_memory() -> None:
    """Let an update find the memory that the last one freed, instead of getting it from the system page by page.

    After a block of 31 MiB was freed, glibc keeps up to 62 MiB of freed memory for the process. If the process has
    settings of its own, such as `MALLOC_TRIM_THRESHOLD_`, this changes nothing.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8, device="cpu")


def copy_all(into: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy values into tensors in one call, so that no interrupt can come in between."""
    if isinstance(into, Packed) and isinstance(values, Packed) and into.layout is values.layout:
        with torch.no_grad():
            torch._foreach_copy_(into.buffers, values.buffers)
        return
    into, values = (own.views() if isinstance(own, Packed) else own for own in (into, values))
    names = list(into)
    if names:
        with torch.no_grad():
            torch._foreach_copy_([into[name] for name in names], [values[name] for name in names])
