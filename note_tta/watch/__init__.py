"""A method that is watched: it knows when adaptation goes wrong, says so, and goes back."""

from .estimate import Estimate as Estimate
from .health import Health as Health
from .journal import Event as Event
from .reference import Reference as Reference
from .watch import Watch

__all__ = ["Watch"]
