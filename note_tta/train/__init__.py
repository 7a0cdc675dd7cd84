"""Training of source models, which can be killed and continued."""

from ..data import Recipe
from . import _needs as _needs
from .loop import Diverged, train
from .samples import Samples, Subset

__all__ = ["Diverged", "Recipe", "Samples", "Subset", "train"]
