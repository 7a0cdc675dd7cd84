"""Source models: the paper's recipes, and a training loop that survives being killed."""

from .loop import Diverged, train
from .recipe import RECIPES, Recipe
from .samples import Samples, Subset

__all__ = ["RECIPES", "Diverged", "Recipe", "Samples", "Subset", "train"]
