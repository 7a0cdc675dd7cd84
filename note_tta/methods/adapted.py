"""The tensors that a method may change, found where the model has them now."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn


class Adapted:
    """Tensors of a model by name, looked up at each use: `model.to(…)` puts new buffers in place of the old.

    Args:
        model: The model.
        tensors: Its tensors that may change. One that is not the model's is kept as it is.
    """

    def __init__(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        owners = {
            id(tensor): (path, module, key)
            for path, module in model.named_modules()
            for key, tensor in (*module._parameters.items(), *module._buffers.items())
            if tensor is not None
        }
        self._model = model
        self._tensors = dict(tensors)
        self._places = {name: owners[id(t)] for name, t in tensors.items() if id(t) in owners}

    def layers(self) -> dict[str, str]:
        """What kind of layer each is that has such tensors, by name: `IABN2d(alpha=4, correction=0)`."""
        return {path: _kind(module) for path, module, _ in self._places.values()}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors as they are now.

        Raises:
            RuntimeError: A layer or a parameter is another one than when the method was made.
        """
        self._check_layers()
        found = {}
        for name, tensor in self._tensors.items():
            found[name] = tensor
            if name in self._places:
                _, module, key = self._places[name]
                here = module._parameters[key] if key in module._parameters else module._buffers[key]
                if here is None or (here is not tensor and isinstance(tensor, nn.Parameter)):
                    raise RuntimeError(
                        f"the model's {name} was replaced after the method was made: make it anew"
                    )
                found[name] = here
        return found

    def _check_layers(self) -> None:
        for path, module in {path: module for path, module, _ in self._places.values()}.items():
            try:
                here = self._model.get_submodule(path)
            except AttributeError:
                here = None
            if here is not module:
                raise RuntimeError(
                    f"the model's layer {path!r} was replaced after the method was made: "
                    "convert the model first, then make the method"
                )


def _kind(module: nn.Module) -> str:
    settings = [f"{key}={getattr(module, key):g}" for key in ("alpha", "correction") if hasattr(module, key)]
    return type(module).__name__ + (f"({', '.join(settings)})" if settings else "")
