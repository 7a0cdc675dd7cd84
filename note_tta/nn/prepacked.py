"""Convolutions that keep their weights in the order in which oneDNN reads them, for inference on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from . import surroundings


class PrepackedConv2d(nn.Conv2d):
    """A convolution that does not reorder its weights in every call; see `prepack_convolutions`.

    Where PyTorch has to see what is computed, this is a plain `nn.Conv2d`: where gradients are needed, in other dtypes
    and on other devices, under autocast, `torch.func`, tracing, scripting, compilation and export.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Convolve `input`."""
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            return self._conv_forward(input, self.weight, self.bias)  # type: ignore[no-any-return]
        else:  # TorchScript would compile what comes after the `if`
            if not (_unobserved() and self._suits(input) and _available()):
                return super().forward(input)
            packing: Packing | None = vars(self).get("packing")
            if packing is None or packing.made_from != _marks(self):
                packing = vars(self)["packing"] = Packing(self)
            return packing.convolve(input, self.bias)

    def _suits(self, input: Tensor) -> bool:
        """Whether oneDNN computes what the plain layer would; called for every layer, so it must be fast."""
        weight, bias = self.weight, self.bias
        if not (type(input) is Tensor and _is_dense_float(input) and input.ndim == 4 and input.numel() > 0):
            return False
        if bias is not None and not (_is_dense_float(bias) and bias.is_contiguous()):
            return False
        if torch.is_grad_enabled() and (
            input.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
        ):
            return False
        channels_last = weight.is_contiguous(memory_format=torch.channels_last)  # as the result will be
        return channels_last and _can_be_packed(self) and torch._C._get_mkldnn_enabled()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """Convert the layer to another dtype, device or layout, for which its packed weights are of no use."""
        vars(self).pop("packing", None)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call,no-any-return]


class Packing:
    """The reordered weights of a layer. Copies of the layer share them; a pickle leaves them out.

    Attributes:
        made_from: What identifies the weights and the settings of the layer.
    """

    def __init__(self, layer: nn.Conv2d) -> None:
        weight = layer.weight.detach()
        self.made_from = _marks(layer)
        self._weight = weight  # as long as it is here, its memory is not used for another tensor
        self._settings = [[*layer.padding], [*layer.stride], [*layer.dilation], layer.groups]
        self._packed = _reorder(weight, *self._settings)

    def convolve(self, input: Tensor, bias: Tensor | None) -> Tensor:
        """Convolve `input`; the result is channels-last."""
        return _convolve(input, self._packed, bias, *self._settings)

    def __deepcopy__(self, memo: dict[int, Any]) -> Packing:
        return self

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def prepack_convolutions(model: nn.Module) -> nn.Module:
    """Let the 2-d convolutions of `model` keep a second copy of their weights, in the order that oneDNN reads.

    Otherwise PyTorch reorders all weights in every call. For a single sample this takes a good part of the time of a
    network with many weights, such as a ResNet-18. Methods on the same model share the copies.

    It works in place, like `convert_iabn`. Layers keep their parameters, hooks and state-dict keys. Only `nn.Conv2d` in
    float32 on the CPU with zero padding is converted, and no subclass. The weights become channels-last, as by
    `model.to(memory_format=torch.channels_last)`, and so do the maps that the layers return. So answers differ by
    rounding, and a model that flattens maps with `view` must use `flatten` instead.

    If weights change later, they are reordered at the next call. After changes that PyTorch does not count, such as
    those through `weight.data`, call this function again. Without oneDNN the model stays as it is.

    Args:
        model: Any module.

    Returns:
        `model`.

    Example:
        >>> model = prepack_convolutions(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()))
        >>> model[0]
        PrepackedConv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
        >>> _ = model.eval()
        >>> with torch.no_grad():
        ...     model(torch.rand(2, 3, 8, 8)).shape
        torch.Size([2, 8, 6, 6])
    """
    if not (_unobserved() and _available()):
        return model
    for layer in model.modules():
        if type(layer) in (nn.Conv2d, PrepackedConv2d) and "forward" not in vars(layer):
            _prepack(layer)  # type: ignore[arg-type]
    return model


def _prepack(layer: nn.Conv2d) -> None:
    if _can_be_packed(layer):
        layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        try:
            packing = Packing(layer)
        except RuntimeError:  # oneDNN has no such convolution
            return
        layer.__class__ = PrepackedConv2d
        vars(layer)["packing"] = packing


def _can_be_packed(layer: nn.Conv2d) -> bool:
    weight = layer._parameters.get("weight")  # a plain attribute is computed anew in every call
    return (
        weight is not None
        and _is_dense_float(weight)
        and not weight.is_inference()  # it has no version
        and not weight.is_shared()  # another process may change it
        and layer.padding_mode == "zeros"
        and type(layer.padding) is type(layer.stride) is type(layer.dilation) is tuple
    )


def _marks(layer: nn.Conv2d) -> tuple[Any, ...]:
    """What identifies the weights and the settings of a layer."""
    weight = layer.weight
    settings = layer.padding, layer.stride, layer.dilation, layer.groups
    return weight.data_ptr(), weight._version, weight.shape, *settings


def _is_dense_float(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.is_cpu and x.layout is torch.strided


def _reorder(weight: Tensor, *settings: Any) -> Tensor:
    """Reorder weights for a convolution with these settings: padding, stride, dilation and groups."""
    packed: Tensor = torch._C._nn.mkldnn_reorder_conv2d_weight(weight.contiguous().to_mkldnn(), *settings)
    return packed


def _convolve(x: Tensor, packed: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
    """Convolve `x` with reordered weights, with these settings."""
    out: Tensor = torch.ops.mkldnn._convolution_pointwise(x, packed, bias, *settings, "none", [], "")
    return out


def _unobserved() -> bool:
    """Whether nothing needs to see which operators are called."""
    return not (
        torch.compiler.is_compiling()
        or surroundings.MISSING
        or surroundings.transformed()
        or surroundings.observed()
        or torch.is_autocast_enabled("cpu")
    )


@functools.cache
def _available() -> bool:
    """Whether this build of torch has what is needed; its names are private, so they are tried."""
    x = torch.arange(64, dtype=torch.float32, device="cpu").reshape(1, 1, 8, 8)
    weight, settings = x[:, :, :3, :3], ([1, 1], [1, 1], [1, 1], 1)
    try:
        return torch.allclose(
            _convolve(x, _reorder(weight, *settings), None, *settings), torch.conv2d(x, weight, None, 1, 1)
        )
    except (AttributeError, RuntimeError, TypeError):
        return False
