"""What can be done with a model, by the norm layers it has: the guide and `note-tta doctor --model` read it here."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass

from torch import nn

from .methods import METHODS
from .methods.norm import norm_layers
from .nn import IABN1d, IABN2d, IABN3d

__all__ = ["FAMILIES", "Examination", "Family", "examine"]

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True)
class Family:
    """Models that are alike for adaptation.

    Attributes:
        title: What they have in common.
        examples: Some of them.
        convert: What to do first.
        works: What works on them.
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
        "Nothing: it is converted. If it was never trained with IABN, fine-tune it for one to three epochs.",
        "All methods; NOTE is the one for correlated streams, NOTE* for shuffled ones.",
        "As in the paper's tables, if it was trained or fine-tuned with IABN.",
    ),
    "batch": Family(
        "BatchNorm over maps",
        "ResNet, MobileNet, EfficientNet, DenseNet, RegNet, 3-D and video ResNets",
        "`tta.convert_iabn(model)`, best followed by one to three epochs of fine-tuning at a tenth of the first "
        "learning rate. Keep the fine-tuning honest: measure clean error before and after.",
        "All methods. NOTE for correlated streams; on shuffled batches of 64 and more TENT and its successors.",
        "The largest gains of all families. The plain swap costs some clean accuracy. Dropout, stochastic depth "
        "and squeeze-and-excitation stay as they are in eval mode. Where small inputs leave maps of 1×1, IABN is plain "
        "BatchNorm.",
    ),
    "series": Family(
        "BatchNorm over windows",
        "sensor CNNs, TCN, InceptionTime, ResNet-1D",
        "`tta.convert_iabn(model)`; fine-tune with it. Scale a channel by what the training data had, not by the "
        "window.",
        "All but the methods for images (RoTTA, ROID, PeTTA).",
        "Real recordings are correlated to begin with: methods on test-batch statistics mostly end worse than "
        "Source. NOTE is near Source where the drift is small; the temporal filter is where the gain is.",
    ),
    "table": Family(
        "BatchNorm over features",
        "MLPs for tables, embeddings with a BatchNorm head",
        "Nothing: with one value per sample and channel IABN is plain BatchNorm.",
        "NOTE as its ablation with PBRS alone, ONDA, TENT, LAME, the temporal filter; not the methods for images.",
        "Running statistics follow a shift of the features. Each column is judged by its own range, so that one of "
        "millions hides nothing in the others.",
    ),
    "mixed": Family(
        "BatchNorm beside other norm layers",
        "MobileViT, CoAtNet, LeViT with a LayerNorm head",
        "`tta.convert_iabn(model)` converts the BatchNorm layers; the affine parameters of the others learn too.",
        "As for BatchNorm over maps; SAR and ETA where the other layers are most of the model.",
        "Between the two families.",
    ),
    "sample": Family(
        "LayerNorm, RMSNorm, GroupNorm",
        "ViT, Swin, ConvNeXt, ResNet-GN, audio transformers",
        "Nothing: these layers look at each sample alone, as IABN does.",
        "NOTE (its memory and the step; there are no statistics to move), TENT, SAR, ETA, EATA, RDumb, ROID, "
        "RoTTA, SoTTA, LAME, CoTTA, the temporal filter. BN Stats, ONDA, UnMix-TNS and NOTE* need BatchNorm.",
        "Smaller gains, answers that do not depend on the batch, and a risk: entropy minimisation can collapse "
        "abruptly. Keep the learning rate low, prefer SAR or NOTE, and watch the stream.",
    ),
    "instance": Family(
        "InstanceNorm",
        "style-transfer backbones, IBN-Net",
        "Nothing: InstanceNorm is IABN at alpha = 0.",
        "NOTE and TENT on its affine parameters, if it has any; LAME, the temporal filter.",
        "It has removed most drift of level and contrast already, and with it what tells classes apart by level.",
    ),
    "frozen": Family(
        "Frozen BatchNorm",
        "detection backbones with `FrozenBatchNorm2d` (Faster R-CNN, RetinaNet, DETR)",
        "Put `nn.BatchNorm2d` layers with the same four tensors in their place, then `tta.convert_iabn`. Adapt "
        "the classifier of crops, or give `output=` a function that takes per-image logits `[B, K]` out of what "
        "the detector returns.",
        "As it stands: Source, LAME, CoTTA and the temporal filter. Afterwards as BatchNorm over maps.",
        "A detector's list of boxes is not adapted as a whole: methods need one row of logits per sample.",
    ),
    "none": Family(
        "No norm layers",
        "VGG and AlexNet without BatchNorm, linear models, NFNets",
        "Nothing to convert.",
        "Source, LAME, CoTTA and the temporal filter.",
        "What the filter gains on correlated streams; the model itself stays as it is.",
    ),
}
"""Every family, by the word that `examine` gives it."""


@dataclass(frozen=True)
class Examination:
    """What was found out about a model without running it.

    Attributes:
        family: A key of `FAMILIES`.
        layers: How many norm layers of each class it has.
        parameters: How many there are in all.
        adapting: How many of them are affine parameters of norm layers.
        takes: The methods that can be made of it.
        with_source: The methods that also need samples of the source.
        refuses: The others, each with its reason.
    """

    family: str
    layers: dict[str, int]
    parameters: int
    adapting: int
    takes: tuple[str, ...]
    with_source: tuple[str, ...]
    refuses: dict[str, str]


def examine(model: nn.Module) -> Examination:
    """Find out what can be done with a model; it is left as it is.

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
    """The word for a model, from its norm layers and, among BatchNorm1d, whether it convolves."""
    if any(isinstance(layer, IABN1d | IABN2d | IABN3d) for layer in layers):
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
