"""The norm layers of a model: find them, choose what adapts, and set which statistics they use.

Some functions change layers permanently. Methods call those only on their own modules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from ..nn import PrepackedConv2d, kernels
from ..nn.iabn import IABN, PLAIN_FORWARDS
from ..nn.unmix import UnMixTNS2d

NORM_LAYERS = (_BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, _InstanceNorm)


def norm_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the norm layers of `model` by name: BatchNorm, IABN, LayerNorm, GroupNorm, RMSNorm and InstanceNorm.

    Subclasses such as `LayerNorm2d` are included.
    """
    return {name: module for name, module in model.named_modules() if isinstance(module, NORM_LAYERS)}


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return the BatchNorm and IABN layers of `model` by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}


def affine_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Return the scales and shifts of the norm layers by name; a shared tensor is listed once.

    Raises:
        ValueError: The model has none. The message names methods that work without them.
    """
    found = _named(norm_layers(model), "_parameters")
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no norm layer with affine parameters to adapt: "
            "use Source, LAME or CoTTA, which work on any model"
        )
    return found


def running_statistics(model: nn.Module) -> dict[str, Tensor]:
    """Return the running statistics of the BatchNorm layers by name.

    Raises:
        ValueError: There is no BatchNorm layer, or one of them has no running statistics.
    """
    layers = batch_norms(model)
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no BatchNorm layer to adapt: use Source, LAME or CoTTA, "
            "which work on any model"
        )
    for name, layer in layers.items():
        if layer.running_mean is None:
            raise ValueError(f"layer {name!r} has no running statistics to adapt (track_running_stats=False)")
    return _named(layers, "_buffers")


def norm_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return everything in norm layers that can adapt: affine parameters, and BatchNorm's running statistics.

    A model without BatchNorm has only affine parameters. A model without any norm layer is refused.
    """
    statistics = running_statistics(model) if batch_norms(model) else {}
    affine = _named(norm_layers(model), "_parameters") if statistics else affine_parameters(model)
    return affine | statistics


def components(model: nn.Module) -> dict[str, Tensor]:
    """Return the components of UnMix-TNS layers by name."""
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, UnMixTNS2d)}
    return {name: t for name, t in _named(layers, "_buffers").items() if ".component_" in f".{name}"}


def move_components(model: nn.Module) -> nn.Module:
    """Let the components of UnMix-TNS layers move in every pass from now on."""
    for layer in model.modules():
        if isinstance(layer, UnMixTNS2d):
            layer.moves = True
    return model


def all_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Return every parameter of the model by name; those of integers cannot learn."""
    return {name: p for name, p in model.named_parameters() if p.is_floating_point()}


def nothing(model: nn.Module) -> dict[str, Tensor]:
    """Return no tensors: for methods that do not change the model."""
    return {}


def use_batch_statistics(model: nn.Module) -> nn.Module:
    """Make every BatchNorm layer normalise with the batch's statistics, without changing the running statistics.

    A layer that gets a single value per channel has no batch statistics. It uses the running statistics.
    """
    for name, layer in batch_norms(model).items():
        if isinstance(layer, UnMixTNS2d):  # it computes its own statistics per sample
            continue
        if "forward" in vars(layer):
            raise ValueError(
                f"{name} has a forward that was set on the object, so it would not use the batch's statistics: "
                "write a subclass with that forward"
            )
        layer.forward = partial(_normalize_by_batch, layer)  # type: ignore[method-assign]
    return model


def need_input_gradients(model: nn.Module) -> nn.Module:
    """Let the input of every GroupNorm layer need a gradient.

    Otherwise torch's backward pass of a channels-last GroupNorm, which learns after frozen layers, ends the process
    with a segmentation fault (seen in torch 2.13).
    """
    for layer in model.modules():
        if isinstance(layer, nn.GroupNorm):
            layer.register_forward_pre_hook(_need_gradient)
    return model


def narrow(dtype: torch.dtype | None) -> bool:
    """Whether this dtype is too coarse to add a small step to a weight."""
    return dtype in (torch.float16, torch.bfloat16)


def holds_own_dtype(layer: nn.Module) -> bool:
    """Whether a layer needs `run_in_own_dtype`; BatchNorm layers accept inputs of any dtype."""
    return isinstance(layer, NORM_LAYERS) and not isinstance(layer, _BatchNorm)


def run_in_own_dtype(layer: nn.Module, x: Tensor) -> Tensor:
    """Run a norm layer in the dtype of its tensors; the result has the dtype of the input."""
    dtype = next((p.dtype for p in layer.parameters()), x.dtype)
    answer: Tensor = type(layer).forward(layer, x.to(dtype))
    return answer.to(x.dtype)


def is_norm_tensor(model: nn.Module, name: str) -> bool:
    """Whether the tensor of this name belongs to a norm layer."""
    return isinstance(model.get_submodule(name.rpartition(".")[0]), NORM_LAYERS)


def describe_layers(model: nn.Module, tensors: Iterable[str]) -> dict[str, str]:
    """Return the kind of each layer that owns one of these tensors, such as `IABN2d(alpha=4, correction=0)`."""
    owners = dict.fromkeys(name.rpartition(".")[0] for name in tensors)
    return {owner: _kind(model.get_submodule(owner)) for owner in owners}


def _kind(module: nn.Module) -> str:
    settings = [f"{key}={getattr(module, key):g}" for key in ("alpha", "correction") if hasattr(module, key)]
    name = "Conv2d" if isinstance(module, PrepackedConv2d) else type(module).__name__
    return name + (f"({', '.join(settings)})" if settings else "")


def _named(layers: Mapping[str, nn.Module], kind: str) -> dict[str, Tensor]:
    named: dict[int, tuple[str, Tensor]] = {}
    for layer, module in layers.items():
        for key, tensor in getattr(module, kind).items():
            if tensor is not None:
                named.setdefault(id(tensor), (f"{layer}.{key}" if layer else key, tensor))
    return dict(named.values())


def _need_gradient(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    x, *rest = inputs
    if torch.is_grad_enabled() and not x.requires_grad:
        x = x.detach().requires_grad_()
    return x, *rest


def _normalize_by_batch(layer: _BatchNorm, x: Tensor) -> Tensor:
    layer._check_input_dim(x)
    if type(layer).forward not in PLAIN_FORWARDS:
        return _own_forward_by_batch(layer, x)
    if x.numel() == x.shape[1] and layer.running_mean is not None:
        return F.batch_norm(x, layer.running_mean, layer.running_var, layer.weight, layer.bias, eps=layer.eps)
    if isinstance(layer, IABN):
        return kernels.iabn(
            x,
            None,
            None,
            layer.weight,
            layer.bias,
            training=True,
            eps=layer.eps,
            alpha=layer.alpha,
            correction=layer.correction,
        )
    return F.batch_norm(x, None, None, layer.weight, layer.bias, training=True, eps=layer.eps)


def _own_forward_by_batch(layer: _BatchNorm, x: Tensor) -> Tensor:
    """Run a subclass with its own forward (say, with an activation) without its running statistics."""
    if x.numel() == x.shape[1]:
        return type(layer).forward(layer, x)
    kept = {key: layer._buffers[key] for key in ("running_mean", "running_var")}
    layer._buffers.update(dict.fromkeys(kept))
    try:
        return type(layer).forward(layer, x)
    finally:
        layer._buffers.update(kept)
