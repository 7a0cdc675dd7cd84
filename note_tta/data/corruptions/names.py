"""The names of the corruptions, in the order of the paper's tables."""

from __future__ import annotations

SEVERITIES = (1, 2, 3, 4, 5)

CORRUPTIONS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)

PRACTICAL_ORDER = (
    "motion_blur",
    "snow",
    "fog",
    "shot_noise",
    "defocus_blur",
    "contrast",
    "zoom_blur",
    "brightness",
    "frost",
    "elastic_transform",
    "glass_blur",
    "gaussian_noise",
    "pixelate",
    "jpeg_compression",
    "impulse_noise",
)
"""The order of the corruptions in practical and recurring streams (RoTTA's default of its ten)."""

VALIDATION_CORRUPTIONS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The four further corruptions of the CIFAR sets: for choosing settings, never for reporting."""

OWN_CORRUPTIONS = ("night",)
"""What the benchmarks do not have."""

MNIST_CORRUPTIONS = (
    "shot_noise",
    "impulse_noise",
    "glass_blur",
    "motion_blur",
    "shear",
    "scale",
    "rotate",
    "brightness",
    "translate",
    "stripe",
    "fog",
    "spatter",
    "dotted_line",
    "zigzag",
    "canny_edges",
)


def check_severity(severity: int) -> int:
    """The severity, if it is one of the benchmark's five."""
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be 1, 2, 3, 4 or 5, got {severity}")
    return severity
