"""The features that enter a model's classifier."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Listener:
    """Records the input of one submodule in each pass.

    Args:
        module: The module that answers.
        part: The name of the submodule. Its input is the features.
    """

    def __init__(self, module: nn.Module, part: str) -> None:
        self.part = part
        self._caught: Tensor | None = None
        module.get_submodule(part).register_forward_pre_hook(self._catch)

    def take(self, count: int) -> Tensor:
        """Return the features `[count, D]` of the last pass, and discard them here."""
        caught, self._caught = self._caught, None
        if caught is None or len(caught) != count:
            raise ValueError(f"module {self.part!r} was not called with one row of features per sample")
        return caught

    def _catch(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._caught = inputs[0].detach().flatten(1)


def find_classifier(model: nn.Module, name: str | None) -> str:
    """Return the name of the module whose input is the features: `name`, or the last `nn.Linear`."""
    modules = dict(model.named_modules())
    if name is not None and name not in modules:
        raise ValueError(f"the model has no module {name!r} to take features from")
    linear = [found for found, module in modules.items() if isinstance(module, nn.Linear)]
    if name is None and not linear:
        raise ValueError(
            f"{type(model).__name__} has no nn.Linear: give the name of its classifier module with classifier=…"
        )
    return linear[-1] if name is None else name
