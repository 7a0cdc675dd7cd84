"""Source models: a training loop that survives being killed."""

from ..data import Recipe
from . import _needs as _needs
from .loop import Diverged, train
from .samples import Samples, Subset

__all__ = ["Diverged", "Recipe", "Samples", "Subset", "train"]
