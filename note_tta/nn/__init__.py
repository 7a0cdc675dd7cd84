"""Norm layers for drifting input: Instance-Aware BatchNorm with its fast path, and UnMix-TNS; faster convolutions."""

from .iabn import IABN1d, IABN2d, IABN3d, convert_bn, convert_iabn
from .kernels import iabn_rows
from .prepacked import PrepackedConv2d, prepack_convolutions
from .unmix import UnMixTNS2d, convert_unmix_tns

__all__ = [
    "IABN1d",
    "IABN2d",
    "IABN3d",
    "PrepackedConv2d",
    "UnMixTNS2d",
    "convert_bn",
    "convert_iabn",
    "convert_unmix_tns",
    "iabn_rows",
    "prepack_convolutions",
]
