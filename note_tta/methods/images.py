"""Checks for methods that use random views of images."""

from __future__ import annotations

from torch import Tensor, nn

from .method import Method

_OF_OTHER_RANK = (nn.Conv1d, nn.Conv3d, nn.BatchNorm3d, nn.RNNBase)


def refuse_other_models(model: nn.Module, name: str) -> None:
    """Refuse a model whose layers show that it is made for time series or volumes."""
    layers = list(model.modules())
    other = next((layer for layer in layers if isinstance(layer, _OF_OTHER_RANK)), None)
    if other is not None and not any(isinstance(layer, nn.Conv2d) for layer in layers):
        raise ValueError(
            f"{name} uses random views of images, but a model with {type(other).__name__} is not for images: "
            "use NOTE or SoTTA, which accept any input"
        )


def check_images(x: Tensor, method: Method) -> None:
    """Refuse anything but a batch of images; warn once if values are outside [0, 1]."""
    name = type(method).__name__
    if x.ndim != 4:
        raise ValueError(
            f"{name} uses random views of images [B, C, H, W], got {tuple(x.shape)}: "
            "use NOTE or SoTTA, which accept any input"
        )
    if len(x) and (x.amin() < -0.5 or x.amax() > 1.5):
        method.warn(
            "images",
            f"{name} clips its random views of images to [0, 1], but these images range from {x.amin():.3g} to "
            f"{x.amax():.3g}: give it images in [0, 1] and let the model normalise them",
        )
