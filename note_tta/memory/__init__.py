"""Small memories of a stream: the latest samples, a uniform sample of the stream, or class-balanced samples.

Each memory stores its samples in one tensor, which is allocated at the first `add`.
"""

from .cstu import CSTU
from .fifo import FIFO
from .hus import HUS
from .memory import Memory
from .pbrs import PBRS
from .reservoir import Reservoir

__all__ = ["CSTU", "FIFO", "HUS", "Memory", "PBRS", "Reservoir"]
