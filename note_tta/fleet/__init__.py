"""Many streams on one model, in memory and in a folder."""

from .fleet import Fleet

__all__ = ["Fleet"]
