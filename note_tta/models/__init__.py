"""Networks by name: the paper's, and some without BatchNorm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import nn

from ..names import check_known
from ..nn.iabn import IABN, convert_iabn
from .cnn import DigitsCNN, SensorCNN
from .convnext import ConvNeXt
from .normalize import AUTHORS_INPUT, IMAGENET_INPUT, Normalize
from .resnet import BasicBlock, Bottleneck, Depths, ResNet, Stem
from .resnet_small import SmallResNet
from .vit import VisionTransformer

__all__ = [
    "AUTHORS_INPUT",
    "MODELS",
    "NORMS",
    "Architecture",
    "Normalize",
    "architecture",
    "build_model",
]


NORMS = ("bn", "iabn", "in", "gn", "ln")
"""The norm layers that a network can have: `ln` for transformers and ConvNeXt, the others for all other networks."""

_CONVOLUTIONAL = ("bn", "iabn", "in", "gn")


class Architecture(NamedTuple):
    """An entry of `MODELS`: how a network is made, and what it is for."""

    make: Callable[..., nn.Module]
    width: int
    in_channels: int
    about: str
    norms: tuple[str, ...] = _CONVOLUTIONAL


def _resnet(
    block: type[BasicBlock] | type[Bottleneck], depths: Depths, stem: Stem
) -> Callable[..., nn.Module]:
    return partial(ResNet, block=block, depths=depths, stem=stem)


_SENSOR4 = partial(SensorCNN, convolutions=4, kernel=5, pool=True)
_SENSOR2 = partial(SensorCNN, convolutions=2, kernel=3, pool=False)

MODELS: dict[str, Architecture] = {
    "resnet18": Architecture(_resnet(BasicBlock, (2, 2, 2, 2), "cifar"), 64, 3, "ResNet-18, 3x3 stem"),
    "resnet50": Architecture(_resnet(Bottleneck, (3, 4, 6, 3), "cifar"), 64, 3, "ResNet-50, 3x3 stem"),
    "resnet20": Architecture(partial(SmallResNet, depth=20), 16, 3, "ResNet-20 for 32x32 images"),
    "resnet20_projection": Architecture(
        _resnet(BasicBlock, (3, 3, 3), "cifar"), 16, 3, "ResNet-20 with 1x1 convolutions as shortcuts"
    ),
    "resnet20_gn": Architecture(
        partial(SmallResNet, depth=20), 16, 3, "ResNet-20 with GroupNorm", norms=("gn",)
    ),
    "resnet32": Architecture(partial(SmallResNet, depth=32), 16, 3, "ResNet-32 for 32x32 images"),
    "resnet44": Architecture(partial(SmallResNet, depth=44), 16, 3, "ResNet-44 for 32x32 images"),
    "resnet56": Architecture(partial(SmallResNet, depth=56), 16, 3, "ResNet-56 for 32x32 images"),
    "resnet18_imagenet": Architecture(
        _resnet(BasicBlock, (2, 2, 2, 2), "imagenet"), 64, 3, "ResNet-18, torchvision's keys"
    ),
    "resnet34_imagenet": Architecture(
        _resnet(BasicBlock, (3, 4, 6, 3), "imagenet"), 64, 3, "ResNet-34, torchvision's keys"
    ),
    "resnet50_imagenet": Architecture(
        _resnet(Bottleneck, (3, 4, 6, 3), "imagenet"), 64, 3, "ResNet-50, torchvision's keys"
    ),
    "sensor_cnn4": Architecture(_SENSOR4, 32, 3, "four 1-D convolutions (HARTH, HAPT)"),
    "sensor_cnn2": Architecture(_SENSOR2, 64, 111, "two 1-D convolutions (ExtraSensory)"),
    "digits_cnn": Architecture(DigitsCNN, 16, 1, "six convolutions for 32x32 digits"),
    "vit_tiny": Architecture(VisionTransformer, 192, 3, "vision transformer for 32x32 images", ("ln",)),
    "convnext_atto": Architecture(ConvNeXt, 40, 3, "ConvNeXt for 32x32 images", ("ln",)),
}


def build_model(
    name: str,
    num_classes: int,
    *,
    norm: str | None = None,
    width: int | None = None,
    in_channels: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    alpha: float = 4.0,
    correction: int = 0,
) -> nn.Module:
    """Build a network of the paper, freshly initialised.

    The input is images in [0, 1] or scaled sensor windows. The network normalises it per channel, in its module
    `normalize`.

    Args:
        name: A key of `MODELS`.
        num_classes: The number of classes.
        norm: `"bn"` for BatchNorm, `"iabn"` for Instance-Aware BatchNorm, `"in"` for InstanceNorm (IABN with
            alpha 0), `"gn"` for GroupNorm with eight groups (or as many as divide the channels), `"ln"` for
            LayerNorm. None is the published network's: `ln` for transformers and ConvNeXt, otherwise `bn`.
        width: Channels of the first stage; None is the published width.
        in_channels: Input channels; None is the published number.
        mean: Subtracted from the input, one value per channel. None is the usual ImageNet values for images
            with three channels, which public weights expect, and 0 otherwise.
        std: Divides the input; the default is that of `mean`.
        alpha: IABN's width of soft shrinkage.
        correction: IABN's variance correction, 0 as in the paper or 1 as in its authors' code.

    Example:
        >>> model = build_model("resnet20", 10, norm="iabn")
        >>> sum(p.numel() for p in model.parameters())
        269722
    """
    check_known("model", name, MODELS)
    entry = MODELS[name]
    norm = entry.norms[0] if norm is None else norm
    if norm not in entry.norms:
        raise ValueError(f"norm of {name} must be one of {', '.join(entry.norms)}, got {norm!r}")
    if correction not in (0, 1):
        raise ValueError(f"correction must be 0 or 1, got {correction!r}")
    width = entry.width if width is None else width
    in_channels = entry.in_channels if in_channels is None else in_channels
    for label, value in (("num_classes", num_classes), ("width", width), ("in_channels", in_channels)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{label} must be a whole number of at least 1, got {value!r}")
    if (mean is None) != (std is None):
        raise ValueError("mean and std go together: give both or neither")
    if mean is None or std is None:
        rgb = in_channels == 3 and not name.startswith("sensor")
        mean, std = IMAGENET_INPUT if rgb else ((0.0,) * in_channels, (1.0,) * in_channels)
    if len(mean) != in_channels:
        raise ValueError(f"mean has {len(mean)} values but the input {in_channels} channels")
    model = entry.make(Normalize(mean, std), num_classes=num_classes, width=width)
    if norm == "gn":
        _replace_by_group_norm(model)
    elif norm in ("iabn", "in"):
        model = convert_iabn(model, alpha=alpha if norm == "iabn" else 0.0, correction=correction)
    model.architecture = {  # type: ignore[assignment]
        "name": name,
        "num_classes": num_classes,
        "width": width,
        "in_channels": in_channels,
        "mean": [float(value) for value in mean],
        "std": [float(value) for value in std],
    }
    return model


def architecture(model: nn.Module) -> dict[str, Any]:
    """Return the arguments of `build_model` for a network like this one.

    The kind of norm layer is read from the model itself, so it is also right after `convert_iabn`.

    Example:
        >>> architecture(build_model("digits_cnn", 10))["norm"]
        'bn'
    """
    built_with = getattr(model, "architecture", None)
    if not isinstance(built_with, dict):
        raise ValueError(f"{type(model).__name__} was not made by build_model: its architecture is unknown")
    if settings := iabn_settings(model):
        return {**built_with, "norm": "iabn" if settings["alpha"] else "in", **settings}
    kinds = {type(module) for module in model.modules()}
    norm = "ln" if nn.LayerNorm in kinds else "gn" if nn.GroupNorm in kinds else "bn"
    return {**built_with, "norm": norm}


def iabn_settings(model: nn.Module) -> dict[str, Any]:
    """The `alpha` and `correction` of a model's first IABN layer; empty if it has none."""
    layer = next((m for m in model.modules() if isinstance(m, IABN)), None)
    return {} if layer is None else {"alpha": layer.alpha, "correction": layer.correction}


def _replace_by_group_norm(model: nn.Module) -> None:
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
                channels = child.num_features
                setattr(parent, name, nn.GroupNorm(math.gcd(8, channels), channels))
