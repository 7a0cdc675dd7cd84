"""Instance-Aware BatchNorm layers, and the conversion from BatchNorm to them and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from . import functional, kernels


class _IABN(_BatchNorm):
    """The common part of the three layers; BatchNorm checks their input."""

    __constants__ = [*_BatchNorm.__constants__, "alpha", "correction"]  # noqa: RUF012 (as BatchNorm has it)

    def __init__(
        self,
        num_features: int,
        alpha: float = 4.0,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        correction: int = 0,
        *,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_settings(alpha, correction)
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.alpha = float(alpha)
        self.correction = correction

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x`; in train mode, also update the running statistics, as BatchNorm does."""
        self._check_input_dim(x)  # type: ignore[no-untyped-call]
        if self.training and x.shape[1] != self.num_features:
            raise ValueError(f"expected {self.num_features} channels, got {x.shape[1]}")
        momentum = self._count_batch() if self.training else 0.0
        kept = self.track_running_stats or not self.training
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            mean = self.running_mean if kept else None
            return functional.iabn(
                x,
                mean,
                self.running_var if kept else None,
                self.weight,
                self.bias,
                self.training or mean is None,
                momentum,
                self.eps,
                self.alpha,
                self.correction,
            )
        else:  # TorchScript would compile what comes after the `if`
            mean, var, weight, bias = self._tensors()
            if not kept:
                mean = var = None
            return kernels.iabn(
                x,
                mean,
                var,
                weight,
                bias,
                self.training or mean is None,
                momentum,
                self.eps,
                self.alpha,
                self.correction,
            )

    def _tensors(self) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """Return running mean and variance, scale and shift; this is faster than reading attributes."""
        buffers, parameters = self._buffers, self._parameters
        try:
            return buffers["running_mean"], buffers["running_var"], parameters["weight"], parameters["bias"]
        except KeyError:  # parametrised, or replaced by a plain tensor
            return self.running_mean, self.running_var, self.weight, self.bias

    def _count_batch(self) -> float:
        """Count a batch and return how far the running statistics move."""
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                return 1.0 / float(self.num_batches_tracked)
        return 0.0 if self.momentum is None else self.momentum

    def extra_repr(self) -> str:
        """Return the settings of IABN, followed by those of BatchNorm."""
        correction = f", correction={self.correction}" if self.correction else ""
        return (
            f"{self.num_features}, alpha={self.alpha:g}{correction}, eps={self.eps}, "
            f"momentum={self.momentum}, affine={self.affine}, track_running_stats={self.track_running_stats}"
        )


class IABN1d(_IABN, nn.BatchNorm1d):
    """Instance-Aware BatchNorm over `[B, C, L]`; on `[B, C]` input it is plain BatchNorm.

    Example:
        >>> x = torch.arange(8.0).reshape(1, 2, 4)
        >>> IABN1d(2, alpha=0).eval()(x).mean(dim=-1)
        tensor([[0., 0.]], grad_fn=<MeanBackward1>)
    """


class IABN2d(_IABN, nn.BatchNorm2d):
    """Instance-Aware BatchNorm over `[B, C, H, W]` (paper, section 3.1).

    A drop-in `nn.BatchNorm2d` with the same parameters, buffers and state-dict keys. A sample whose channel
    statistics differ from the layer's by more than `alpha` standard errors is normalised with statistics
    moved towards its own; all others are normalised exactly as by BatchNorm.

    Args:
        num_features: Number of channels C.
        alpha: Width of the soft shrinkage in standard errors. 0 is InstanceNorm, `math.inf` BatchNorm.
        eps: Added to variances.
        momentum: Momentum of the running statistics; None keeps a cumulative average.
        affine: Learn a scale and a shift per channel.
        correction: 0 for the paper's biased variances, 1 for the unbiased ones of the authors' code.
        track_running_stats: Keep running statistics; without them the batch's own are used.
        device: Where the parameters live.
        dtype: The parameters' dtype.

    Example:
        >>> layer = IABN2d(3)
        >>> layer(torch.randn(2, 3, 8, 8)).shape
        torch.Size([2, 3, 8, 8])
        >>> layer
        IABN2d(3, alpha=4, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
    """


class IABN3d(_IABN, nn.BatchNorm3d):
    """Instance-Aware BatchNorm over `[B, C, D, H, W]`."""


IABN = (IABN1d, IABN2d, IABN3d)
"""The three layers, for `isinstance`."""

_IABN_OF: dict[type[_BatchNorm], type[_IABN]] = {
    nn.BatchNorm1d: IABN1d,
    nn.BatchNorm2d: IABN2d,
    nn.BatchNorm3d: IABN3d,
    nn.SyncBatchNorm: IABN2d,
}
PLAIN_FORWARDS = (_BatchNorm.forward, nn.SyncBatchNorm.forward, _IABN.forward)
"""Forwards that only normalise; a subclass may have another one, for example with an activation."""

_BN_OF: dict[type[_BatchNorm], type[_BatchNorm]] = {
    IABN1d: nn.BatchNorm1d,
    IABN2d: nn.BatchNorm2d,
    IABN3d: nn.BatchNorm3d,
}


def convert_iabn(model: nn.Module, alpha: float = 4.0, *, correction: int = 0) -> nn.Module:
    """Replace every BatchNorm in `model` by an IABN that holds the same parameters and buffers.

    It works in place, like `nn.SyncBatchNorm.convert_sync_batchnorm`: the returned module is a new one only if `model`
    itself is a BatchNorm. A module that is used in several places stays a single module. Layers that are already IABN
    get the new `alpha` and `correction`. `nn.SyncBatchNorm`, which accepts input of any shape, becomes `IABN2d`.

    Args:
        model: Any module.
        alpha: See `IABN2d`.
        correction: See `IABN2d`.

    Returns:
        `model`, or the layer that replaces it.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        >>> convert_iabn(model)[1]
        IABN2d(8, alpha=4, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
    """
    _check_settings(alpha, correction)
    return _replace(
        model, _IABN_OF | {kind: kind for kind in _BN_OF}, {"alpha": float(alpha), "correction": correction}
    )


def convert_bn(model: nn.Module) -> nn.Module:
    """Replace every IABN in `model` by a BatchNorm with the same parameters: the inverse of `convert_iabn`.

    Example:
        >>> convert_bn(convert_iabn(nn.BatchNorm2d(8)))
        BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, ...track_running_stats=True)
    """
    return _replace(model, _BN_OF, {})


def _check_settings(alpha: float, correction: int) -> None:
    if not alpha >= 0:
        raise ValueError(f"alpha must be at least 0, got {alpha}")
    if correction not in (0, 1):
        raise ValueError(f"correction must be 0 or 1, got {correction}")


def _replace(model: nn.Module, kinds: dict[Any, Any], settings: dict[str, Any]) -> nn.Module:
    replaced: dict[nn.Module, nn.Module] = {}
    for module in list(model.modules()):
        if isinstance(module, _BatchNorm) and any(map(is_lazy, module.parameters())):
            raise ValueError(
                f"{type(module).__name__} has no shape yet: run the model once before converting it"
            )
        kind = next((kinds[base] for base in type(module).__mro__ if base in kinds), None)
        if kind is not None:
            refuse_own_forward(module)
            replaced[module] = _recast(module, kind, settings)
    return swap_modules(model, replaced)


def refuse_own_forward(layer: nn.Module, *others: Any) -> None:
    """Refuse to replace a layer whose forward is neither in `PLAIN_FORWARDS` nor one of the `others`."""
    if type(layer).forward not in (*PLAIN_FORWARDS, *others):
        raise ValueError(
            f"{type(layer).__name__} has its own forward, which would be lost: "
            "split it into a BatchNorm and the rest first"
        )


def swap_modules(model: nn.Module, replaced: dict[nn.Module, nn.Module]) -> nn.Module:
    """Put modules in the places of others, wherever those are used; return `model`, or what replaces it."""
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child in replaced:
                parent._modules[name] = replaced[child]
    return replaced.get(model, model)


def _recast(layer: nn.Module, kind: type[_BatchNorm], settings: dict[str, Any]) -> nn.Module:
    """Make a layer of `kind` that shares the parameters, buffers, hooks and mode of `layer`."""
    new = kind(1, device="meta")
    own = {"alpha", "correction", "process_group"}
    new.__dict__.update({key: value for key, value in layer.__dict__.items() if key not in own})
    for key, value in settings.items():
        setattr(new, key, value)
    return new
