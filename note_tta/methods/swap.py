"""Other forwards for modules of a model, put in for a pass and taken out again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn


class SwappedForward:
    """Inside `with`, modules run another forward; after it the one they had, the caller's own among it.

    Made once and entered often: a compiled model is compiled anew for every forward it has not seen.

    Args:
        modules: The modules, by name.
        instead: Called with a module's name, its own forward and what that was called with.
    """

    def __init__(self, modules: Mapping[str, nn.Module], instead: Callable[..., Tensor]) -> None:
        self._modules = dict(modules)
        self._instead = instead
        self._forwards = {name: partial(self._run, name) for name in modules}
        self._own: dict[str, Callable[..., Tensor] | None] = {}

    def __enter__(self) -> None:
        for name, module in self._modules.items():
            self._own[name] = module.__dict__.get("forward")
            module.__dict__["forward"] = self._forwards[name]

    def __exit__(self, *error: object) -> None:
        for name, own in self._own.items():
            if own is None:
                del self._modules[name].__dict__["forward"]
            else:
                self._modules[name].__dict__["forward"] = own
        self._own.clear()

    def _run(self, name: str, *args: Any, **keywords: Any) -> Tensor:
        module, own = self._modules[name], self._own[name]
        return self._instead(name, own or partial(type(module).forward, module), *args, **keywords)
