"""A network of one's own, named as `module:function`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from torch import nn


def make_model(name: str) -> nn.Module:
    """Call the function that `module:function` names; the module may be in the working folder.

    Raises:
        ValueError: The name is not of that form, or nothing by that name is there, or it makes no model.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise ValueError(f"a model of your own is named module:function, got {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ImportError as error:
        raise ValueError(f"cannot import {module_name} for the model {name}: {error}") from error
    except AttributeError:
        raise ValueError(f"{module_name} has no {function_name} to make a model with") from None
    if not callable(function):
        raise ValueError(f"{name} is not a function that makes a model")
    model = function()
    if not isinstance(model, nn.Module):
        raise ValueError(f"{name}() must return an nn.Module, got {type(model).__name__}")
    return model.eval()
