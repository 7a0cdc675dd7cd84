"""An estimate of the error without labels."""

from __future__ import annotations

import math
from typing import NamedTuple


class Estimate(NamedTuple):
    """The error in percent, estimated without labels, with a 95 % interval for the sampling error alone."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1f} % ({self.low:.1f} to {self.high:.1f})"


def wilson(share: float, count: float) -> tuple[float, float]:
    """The 95 % confidence interval (Wilson) of a share that was observed over `count` independent draws."""
    z = 1.96
    count = max(count, 1.0)
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)
