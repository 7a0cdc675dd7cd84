"""What works for a model, by its norm layers. The guide in the docs and `note-tta doctor --model` use this module."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass

from torch import nn

from .methods import METHODS
from .methods.norm import norm_layers
from .nn.iabn import IABN

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True)
class Family:
    """Models that can be adapted in the same way.

    Attributes:
        title: What they have in common.
        examples: Some of them.
        convert: How to prepare the model.
        works: Which methods work.
        expect: What to expect.
    """

    title: str
    examples: str
    convert: str
    works: str
    expect: str


FAMILIES = {
    "converted": Family(
        "IABN",
        "any of the BatchNorm families after `convert_iabn`",
        "Nothing: it is already converted. If it was not trained with IABN, fine-tune it for one to three epochs.",
        "All methods; use NOTE for correlated streams and NOTE* for shuffled ones.",
        "Results as in the paper's tables, if it was trained or fine-tuned with IABN.",
    ),
    "batch": Family(
        "BatchNorm over maps",
        "ResNet, MobileNet, EfficientNet, DenseNet, RegNet, 3-D and video ResNets",
        "`tta.convert_iabn(model)`, best followed by one to three epochs of fine-tuning at a tenth of the original "
        "learning rate. Measure the clean error before and after.",
        "All methods (NOTE* after `convert_iabn`). NOTE for correlated streams; TENT and its successors for shuffled "
        "batches of 64 and more.",
        "The largest gains of all families. Conversion without fine-tuning costs some clean accuracy. Dropout, "
        "stochastic depth and squeeze-and-excitation stay in eval mode. On 1×1 maps, which small inputs may lead to, "
        "IABN is plain BatchNorm.",
    ),
    "series": Family(
        "BatchNorm over windows",
        "sensor CNNs, TCN, InceptionTime, ResNet-1D",
        "`tta.convert_iabn(model)`, then fine-tune. Scale each channel by the statistics of the training data, not of "
        "the window.",
        "All except the methods for images (RoTTA, ROID, PeTTA).",
        "Real recordings are correlated, so methods that use the statistics of the test batch are mostly worse than "
        "Source. NOTE is close to Source if the drift is small; most of the gain comes from the temporal filter.",
    ),
    "table": Family(
        "BatchNorm over features",
        "MLPs for tables, embeddings with a BatchNorm head",
        "Nothing: with one value per sample and channel, IABN is plain BatchNorm.",
        "NOTE (with PBRS alone), ONDA, TENT, LAME, the temporal filter; not the methods for images.",
        "Running statistics follow a shift of the features. Outliers are judged per column, by its own range, so a "
        "column with values in the millions does not hide errors in the others.",
    ),
    "mixed": Family(
        "BatchNorm beside other norm layers",
        "MobileViT, CoAtNet, LeViT with a LayerNorm head",
        "`tta.convert_iabn(model)` converts the BatchNorm layers; the affine parameters of the others learn too.",
        "As for BatchNorm over maps; SAR and ETA if most layers are not BatchNorm.",
        "Gains between those of the two families.",
    ),
    "sample": Family(
        "LayerNorm, RMSNorm, GroupNorm",
        "ViT, Swin, ConvNeXt, ResNet-GN, audio transformers",
        "Nothing: these layers normalise each sample by itself, as IABN does.",
        "NOTE (its memory and its step; there are no statistics to move), TENT, SAR, ETA, EATA, RDumb, ROID, "
        "RoTTA, SoTTA, LAME, CoTTA, the temporal filter. BN Stats, ONDA, UnMix-TNS and NOTE* need BatchNorm.",
        "Smaller gains, and answers that do not depend on the batch. Entropy minimisation can collapse abruptly: on "
        "correlated streams TENT and SAR do, and NOTE does at a hundred times its learning rate. Use NOTE with its "
        "defaults, and watch the stream.",
    ),
    "instance": Family(
        "InstanceNorm",
        "style-transfer backbones, IBN-Net",
        "Nothing: InstanceNorm is IABN at alpha = 0.",
        "NOTE and TENT on its affine parameters, if it has any; LAME, the temporal filter.",
        "The layers remove most drift of level and contrast, and also differences in level between classes.",
    ),
    "frozen": Family(
        "Frozen BatchNorm",
        "detection backbones with `FrozenBatchNorm2d` (Faster R-CNN, RetinaNet, DETR)",
        "Replace them by `nn.BatchNorm2d` layers with the same four tensors, then use `tta.convert_iabn`. Adapt the "
        "classifier of crops, or give `output=` a function that takes per-image logits `[B, K]` from the detector's "
        "output.",
        "Unchanged: Source, LAME, CoTTA and the temporal filter. After the replacement: as BatchNorm over maps.",
        "A detector's list of boxes cannot be adapted as a whole: methods need one row of logits per sample.",
    ),
    "none": Family(
        "No norm layers",
        "VGG and AlexNet without BatchNorm, linear models, NFNets",
        "Nothing to convert.",
        "Source, LAME, CoTTA and the temporal filter.",
        "Gains from the filter on correlated streams; the model itself does not change.",
    ),
}
"""Every family by its name in `Examination.family`."""


@dataclass(frozen=True)
class Examination:
    """The findings of `examine` about a model. The model is not run.

    Attributes:
        family: A key of `FAMILIES`.
        layers: The number of norm layers of each class.
        parameters: The number of parameters.
        adapting: The number of affine parameters of norm layers.
        takes: The methods that accept the model.
        with_source: The methods that also need source samples.
        refuses: The other methods, each with the reason for the refusal.
    """

    family: str
    layers: dict[str, int]
    parameters: int
    adapting: int
    takes: tuple[str, ...]
    with_source: tuple[str, ...]
    refuses: dict[str, str]


def examine(model: nn.Module) -> Examination:
    """Find out what works for a model, without changing it.

    Example:
        >>> found = examine(nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Flatten(), nn.Linear(8, 2)))
        >>> found.family, found.layers, "note" in found.takes, "onda" in found.refuses
        ('sample', {'GroupNorm': 1}, True, True)
    """
    layers = norm_layers(model)
    affine = {id(tensor): tensor.numel() for layer in layers.values() for tensor in layer.parameters(False)}
    takes, with_source, refuses = [], [], {}
    for name, kind in METHODS.items():
        if kind.needs_source:
            with_source.append(name)
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kind(model)
            takes.append(name)
        except (ValueError, TypeError) as error:
            refuses[name] = str(error)
    return Examination(
        _family(model, list(layers.values())),
        dict(Counter(type(layer).__name__ for layer in layers.values())),
        sum(parameter.numel() for parameter in model.parameters()),
        sum(affine.values()),
        tuple(takes),
        tuple(with_source),
        refuses,
    )


def _family(model: nn.Module, layers: list[nn.Module]) -> str:
    """Return the family of a model, by its norm layers and, for BatchNorm1d, by whether it has convolutions."""
    if any(isinstance(layer, IABN) for layer in layers):
        return "converted"
    batch = [layer for layer in layers if isinstance(layer, _PLAIN)]
    if not batch:
        if layers:
            instance = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
            return "instance" if all(isinstance(layer, instance) for layer in layers) else "sample"
        names = {type(module).__name__ for module in model.modules()}
        return "frozen" if any(name.startswith("FrozenBatchNorm") for name in names) else "none"
    if len(batch) < len(layers):
        return "mixed"
    if not all(isinstance(layer, nn.BatchNorm1d) for layer in batch):
        return "batch"
    return "series" if any(isinstance(module, nn.Conv1d) for module in model.modules()) else "table"
