"""Instance-Aware BatchNorm: the layers, the written formula and the fast path."""

from .iabn import IABN1d, IABN2d, IABN3d, convert_bn, convert_iabn
from .kernels import iabn_rows

__all__ = ["IABN1d", "IABN2d", "IABN3d", "convert_bn", "convert_iabn", "iabn_rows"]
