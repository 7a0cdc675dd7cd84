"""The corruptions of CIFAR-C, ImageNet-C and MNIST-C, regenerated from clean images.

A regenerated set matches the published one in distribution, not bit by bit: the benchmarks' makers drew
unseeded random numbers.
"""

from .engine import BLOCK, ENGINE_VERSION, corrupt, parameters
from .names import (
    CORRUPTIONS,
    MNIST_CORRUPTIONS,
    OWN_CORRUPTIONS,
    PRACTICAL_ORDER,
    SEVERITIES,
    VALIDATION_CORRUPTIONS,
)
from .textures import frost_textures

__all__ = [
    "BLOCK",
    "CORRUPTIONS",
    "ENGINE_VERSION",
    "MNIST_CORRUPTIONS",
    "OWN_CORRUPTIONS",
    "PRACTICAL_ORDER",
    "SEVERITIES",
    "VALIDATION_CORRUPTIONS",
    "corrupt",
    "frost_textures",
    "parameters",
]
