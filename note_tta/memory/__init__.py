"""Small memories of a stream: the latest samples, a uniform draw, class-balanced draws.

Each holds its samples in one tensor, allocated at the first `add`, and decides on plain Python numbers.
"""

from .cstu import CSTU
from .fifo import FIFO
from .hus import HUS
from .memory import Memory
from .pbrs import PBRS
from .reservoir import Reservoir

__all__ = ["CSTU", "FIFO", "HUS", "Memory", "PBRS", "Reservoir"]
