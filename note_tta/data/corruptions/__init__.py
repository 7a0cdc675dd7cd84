"""The corruptions of CIFAR-C, ImageNet-C and MNIST-C, regenerated from clean images.

A regenerated set matches the published one in distribution, not bit by bit: the benchmarks' makers drew
unseeded random numbers.
"""

from .engine import corrupt
from .names import CORRUPTIONS, MNIST_CORRUPTIONS, OWN_CORRUPTIONS, VALIDATION_CORRUPTIONS

__all__ = ["CORRUPTIONS", "MNIST_CORRUPTIONS", "OWN_CORRUPTIONS", "VALIDATION_CORRUPTIONS", "corrupt"]
