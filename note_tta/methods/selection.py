"""Choose norm layers that a method does not adapt: the last ones are the most sensitive (SAR, SoTTA, DeYO)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from .backbone import Backbone, Tensors
from .norm import affine_parameters, norm_layers, norm_tensors

Skip = Callable[[str], bool]

_LAST = ("layer4", "blocks.9", "blocks.10", "blocks.11", "norm.")


def last_layers(name: str) -> bool:
    """Whether a norm layer is one of the last ones, judged by its name, as in the code of SAR's authors.

    It matches a ResNet's last stage and, by timm's names, the last three blocks and the final norm of a ViT-B.
    In networks with other names (a CIFAR ResNet with three stages, torchvision's ViT) it matches nothing.

    Example:
        >>> [name for name in ("layer1.0.bn1", "layer4.0.bn1", "blocks.9.norm1", "norm") if last_layers(name)]
        ['layer4.0.bn1', 'blocks.9.norm1', 'norm']
    """
    return name == "norm" or any(part in name for part in _LAST)


def skipped(backbone: Backbone, skip: Skip) -> list[str]:
    """Return the names of the norm layers that `skip` matches."""
    return [name for name in norm_layers(backbone.module) if skip(name)]


class AffineOutside:
    """Chooses the affine parameters of the norm layers that `skip` does not match.

    Args:
        skip: Takes a layer's name and says whether to skip the layer.
        statistics: Also choose the running statistics of every BatchNorm layer.
    """

    def __init__(self, skip: Skip, *, statistics: bool = False) -> None:
        self.skip, self.statistics = skip, statistics

    def __call__(self, model: nn.Module) -> Tensors:
        """Return the tensors by name; raise `ValueError` if no parameter is left."""
        found = norm_tensors(model) if self.statistics else affine_parameters(model)
        chosen = {name: tensor for name, tensor in found.items() if self._keeps(name, tensor)}
        if not any(isinstance(tensor, nn.Parameter) for tensor in chosen.values()):
            raise ValueError(
                f"skip matches all {len(norm_layers(model))} norm layers, so nothing would adapt: "
                "let it match fewer of them"
            )
        return chosen

    def _keeps(self, name: str, tensor: Tensor) -> bool:
        return not (isinstance(tensor, nn.Parameter) and self.skip(name.rpartition(".")[0]))
