"""The caller's model as methods use it: shared, never changed, with the source value of each adapted tensor."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .norm import (
    describe_layers,
    holds_own_dtype,
    is_norm_tensor,
    narrow,
    norm_layers,
    run_in_own_dtype,
)

SAMPLED_VALUES = 1024
"""How many values of each tensor enter the fingerprint: enough to tell any two trained models apart."""

_version = attrgetter("_version")

Tensors = Mapping[str, Tensor]
Output = str | int | Callable[[Any], Tensor] | None


class NonFiniteLogits(Exception):
    """The logits of a batch are not finite. Nothing was learned from it."""


class Backbone:
    """A structural copy of a model: the modules are copied, the frozen tensors are shared with the caller.

    Any number of methods and forks can share one backbone. Each has its own adapted tensors. The backbone keeps
    their source values, in float32 if the model uses a narrower dtype.

    Args:
        model: The caller's model.
        adapts: Chooses the tensors that a method may change, by their names in the model.
        output: The key, index or callable that takes the logits out of what the model returns.
    """

    def __init__(
        self, model: nn.Module, adapts: Callable[[nn.Module], Tensors], output: Output = None
    ) -> None:
        refuse_unsuitable(model)
        chosen = adapts(model)
        _refuse_functions(model, chosen)
        self.output = output
        self.dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
        self.answer_dtype = self.dtype
        self.source = own_tensors(chosen)
        instead = {id(tensor): self.source[name] for name, tensor in chosen.items()}
        if narrow(self.dtype) and not all(is_norm_tensor(model, name) for name in chosen):
            self.dtype = torch.float32  # float16 and bfloat16 are too coarse for small update steps
            instead |= {id(t): _own(t) for t in _tensors_of(model).values() if id(t) not in instead}
        for layer in norm_layers(model).values() if narrow(self.dtype) else ():
            own = [t for t in (*layer._parameters.values(), *layer._buffers.values()) if t is not None]
            if any(id(tensor) in instead for tensor in own):  # a layer needs one dtype for all its tensors
                instead = {id(tensor): _own(tensor) for tensor in own} | instead
        self.module = structural_copy(model, instead).eval()
        for layer in self.module.modules():
            if narrow(self.dtype) and holds_own_dtype(layer):
                layer.forward = partial(run_in_own_dtype, layer)
        self._fingerprint: str | None = None
        self._frozen: list[Tensor] = []
        self._watched: list[Tensor] = []
        self._marks: list[list[int]] = []
        self._watch()

    def build(self, tensors: Tensors, *, for_learning: bool = False) -> nn.Module:
        """Build a module of this structure in eval mode, with `tensors` in place of the source's.

        Args:
            tensors: The adapted tensors by name; the module uses them without copying.
            for_learning: Compute no gradients for frozen tensors, even if the caller's model requires them.
        """
        instead = {id(self.source[name]): tensor for name, tensor in tensors.items()}
        if for_learning:
            for tensor in self._frozen:
                instead[id(tensor)] = _without_gradient(tensor)
        module = structural_copy(self.module, instead)
        return getattr(module, "_orig_mod", module) if for_learning else module

    def clone_source(self) -> Tensors:
        """Return a copy of the adapted tensors with their source values."""
        return own_tensors(self.source)

    def run(self, module: nn.Module, x: Tensor) -> Tensor:
        """Return the logits `[B, K]` of a module of this structure.

        Raises:
            ValueError: The model does not accept samples of this shape, or does not return logits `[B, K]`.
        """
        try:
            answer = module(x)
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            if isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error):
                raise  # the samples are not to blame
            raise ValueError(
                f"the model does not accept samples of shape {tuple(x.shape[1:])}: {error}"
            ) from error
        logits = self._take_output(answer)
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(x):
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            hint = "" if isinstance(logits, Tensor) else "; say with output=… where the logits are in it"
            raise ValueError(
                f"the model must map [B, ...] to logits [B, K]: {tuple(x.shape)} gave {shape}{hint}"
            )
        return logits

    def check(self) -> None:
        """Raise a `ValueError` if a frozen tensor was changed, moved or cast since the method was made."""
        marks = _marks(self._watched)
        if marks == self._marks:
            return
        names = {id(tensor): name for name, tensor in _tensors_of(self.module).items()}
        for tensor, was_at, was, is_at, now in zip(self._watched, *self._marks, *marks, strict=True):
            moved, changed = is_at != was_at, now != was
            moved_by_torch = moved and not changed and tensor.is_shared()  # on its way to another process
            if (moved or changed) and not moved_by_torch:
                what = "moved or cast" if moved else "changed"
                hint = "" if isinstance(tensor, nn.Parameter) else ", or does its own forward write to it?"
                raise ValueError(
                    f"the model's {names.get(id(tensor), 'tensor')} was {what} after the method was made: make a new "
                    f"method from the changed model{hint}"
                )
        self._marks = marks

    @property
    def fingerprint(self) -> str:
        """A hash of up to 1,024 values of each tensor, computed once (about a millisecond for a ResNet-18)."""
        if self._fingerprint is None:
            self.check()
            digest = hashlib.sha256()
            for name, tensor in sorted((_tensors_of(self.module) | _packed_weights(self.module)).items()):
                if not name.endswith("num_batches_tracked"):
                    digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                    digest.update(_sampled_bytes(tensor))
            self._fingerprint = digest.hexdigest()[:16]
        return self._fingerprint

    @functools.cached_property
    def layers(self) -> dict[str, str]:
        """The kind of each adapted layer by name, such as `IABN2d(alpha=4, correction=0)`."""
        return describe_layers(self.module, self.source)

    @property
    def device(self) -> torch.device:
        """The device of the model's tensors."""
        tensors = [*self.source.values(), *self._frozen]
        return tensors[0].device if tensors else torch.device("cpu")

    def to(self, device: torch.device | str) -> Backbone:
        """Return a copy of this backbone on another device, with its own tensors."""
        if torch.device(device) == self.device:
            return self
        moved = copy.copy(self)
        own = {id(tensor): _own(tensor.detach().to(device)) for tensor in _tensors_of(self.module).values()}
        moved.source = {name: own[id(tensor)] for name, tensor in self.source.items()}
        moved.module = structural_copy(self.module, own)
        moved._watch()
        return moved

    def _take_output(self, answer: Any) -> Any:
        if self.output is None:
            return answer
        if callable(self.output):
            return self.output(answer)
        try:
            return answer[self.output]
        except (KeyError, IndexError, TypeError):
            has = (
                f"the keys {sorted(answer)}" if isinstance(answer, Mapping) else f"a {type(answer).__name__}"
            )
            raise ValueError(f"output={self.output!r} is not in what the model returned, {has}") from None

    def _watch(self) -> None:
        adapting = {id(tensor) for tensor in self.source.values()}
        self._frozen = [t for t in _tensors_of(self.module).values() if id(t) not in adapting]
        self._watched = [t for t in self._frozen if not t.is_inference()]  # others have no version
        self._marks = _marks(self._watched)

    def __getstate__(self) -> dict[str, Any]:
        made_by_watch = ("_frozen", "_watched", "_marks")
        return {key: value for key, value in vars(self).items() if key not in made_by_watch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._watch()


def structural_copy(model: nn.Module, instead: Mapping[int, Tensor]) -> nn.Module:
    """Copy the module objects of a model and share its tensors, except those in `instead`.

    Hooks, tied weights and references between modules are kept as in a deep copy. A tensor in a plain
    attribute, the owner of a hook, a compiled context and what cannot be copied, such as a lock, are shared.

    Args:
        model: Any module.
        instead: Replacements of tensors, by the `id` of the tensor that is replaced.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> other = structural_copy(model, {})
        >>> other is model, other.weight is model.weight
        (False, True)
    """
    memo: dict[int, Any] = {}
    inside = set(map(id, model.modules()))
    for module in model.modules():
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                memo[id(tensor)] = instead.get(id(tensor), tensor)
        for value in vars(module).values():
            if isinstance(value, Tensor | torch.ScriptObject) or type(value).__module__.startswith(
                "torch._dynamo"
            ):
                memo.setdefault(id(value), value)
            elif isinstance(value, dict):
                if not value:  # a module has a dozen empty dicts of hooks, which are slow to copy
                    memo[id(value)] = type(value)()
                for hook in value.values():
                    if isinstance(hook, MethodType) and id(hook.__self__) not in inside:
                        memo.setdefault(id(hook.__self__), hook.__self__)
    try:
        copied = copy.deepcopy(model, dict(memo))
    except (TypeError, RuntimeError):
        memo |= _uncopyable(model, memo)
        try:
            copied = copy.deepcopy(model, memo)
        except (TypeError, RuntimeError) as error:
            raise TypeError(
                f"{type(model).__name__} holds something that cannot be copied: {error}"
            ) from error
    for ours, theirs in zip(copied.modules(), model.modules(), strict=True):
        if getattr(theirs, "_compiled_call_impl", None) is not None:
            ours.compile()
    return copied


def _uncopyable(model: nn.Module, memo: dict[int, Any]) -> dict[int, Any]:
    """Find values of module attributes that cannot be copied, such as locks and open files, by `id`."""
    found = {}
    for value in (value for module in model.modules() for value in vars(module).values()):
        if not isinstance(value, nn.Module | dict | list | tuple | set):
            try:
                copy.deepcopy(value, dict(memo))
            except (TypeError, RuntimeError):
                found[id(value)] = value
    return found


def _tensors_of(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _packed_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of quantised layers, which are neither parameters nor buffers."""
    found = {}
    for name, value in model.state_dict().items():
        for index, tensor in enumerate(value if isinstance(value, tuple) else (value,)):
            if isinstance(tensor, Tensor) and (tensor.is_quantized or isinstance(value, tuple)):
                found[f"{name}.{index}"] = tensor.detach().dequantize()
    return found


def own_tensors(tensors: Tensors) -> Tensors:
    """Return a copy of each tensor; float16 and bfloat16 become float32."""
    return {name: _own(tensor) for name, tensor in tensors.items()}


def _own(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor; float16 and bfloat16 become float32, and a parameter stays a parameter."""
    wide = tensor.detach().float() if narrow(tensor.dtype) else tensor.detach().clone()
    return nn.Parameter(wide, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else wide


def _without_gradient(tensor: Tensor) -> Tensor:
    alias = tensor.detach()
    return nn.Parameter(alias, requires_grad=False) if isinstance(tensor, nn.Parameter) else alias


def _marks(tensors: list[Tensor]) -> list[list[int]]:
    """The address and the version of each tensor; every call of a method compares them, so this must be fast."""
    return [list(map(Tensor.data_ptr, tensors)), list(map(_version, tensors))]


def _sampled_bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().reshape(-1)
    step = max(1, -(-len(flat) // SAMPLED_VALUES))
    return bytes(flat[::step].contiguous().cpu().view(torch.uint8).numpy())


def _refuse_functions(model: nn.Module, chosen: Tensors) -> None:
    """Refuse functions that would run the caller's layers instead of the copies.

    These are a `forward` that was set on an object, and closures over a module.
    """
    adapting = {
        id(module)
        for path, module in model.named_modules()
        if any(not path or name.startswith(f"{path}.") for name in chosen)
    }
    for path, module in model.named_modules():
        if type(module).__module__.startswith("torch._dynamo"):
            continue
        for key, value in vars(module).items():
            for function in value.values() if isinstance(value, dict) else (value,):
                if not isinstance(function, FunctionType) or key == "_compiled_call_impl":
                    continue
                is_forward = key == "forward" and id(module) in adapting
                if is_forward or any(id(held) in adapting for held in _enclosed(function)):
                    what, fix = f"function in {key}", "write a subclass with that function as a method"
                    if key == "forward":
                        what, fix = "forward that was set on the object", "write a subclass with that forward"
                    elif key.endswith("hooks"):
                        fix = "let the hook use the module that it is called with"
                    raise ValueError(
                        f"{path or 'the model'} has a {what}, which would run the caller's layers: {fix}"
                    )


def _enclosed(function: FunctionType) -> Iterator[object]:
    """Yield the objects that a function refers to: values of its closure and defaults, and owners of bound methods."""
    for cell in function.__closure__ or ():
        try:
            yield getattr(cell.cell_contents, "__self__", cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    yield from function.__defaults__ or ()


def refuse_inference_mode() -> None:
    """Refuse to make anything whose tensors are to change later."""
    if torch.is_inference_mode_enabled():
        raise RuntimeError(
            "tensors that are made in inference mode cannot change later: make the method outside of "
            "torch.inference_mode(); you may call it inside"
        )


def refuse_unsuitable(model: nn.Module) -> None:
    """Refuse a model that no method can adapt."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            "a scripted model cannot share its tensors: give the method the model that it was scripted from"
        )
    for path, module in model.named_modules():
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            raise TypeError(
                f"{type(module).__name__} splits a batch between replicas, which would not adapt together: "
                f"{f'replace {path} by {path}.module' if path else 'give the method model.module'}"
            )
    for name, tensor in _tensors_of(model).items():
        if is_lazy(tensor):
            raise ValueError(f"the model's {name} has no shape yet: run the model once before wrapping it")
        if tensor.is_inference():
            raise ValueError(
                f"the model's {name} was made in inference mode, so nothing can be learned through it: "
                "make the model outside of torch.inference_mode(), or give the method copy.deepcopy(model)"
            )
