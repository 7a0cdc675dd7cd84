"""`adapt`: the method that we recommend for a model, in one line, with the reasons."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from textwrap import indent
from typing import Any

from torch import Tensor, nn

from .filter import TemporalFilter
from .memory import Memory
from .methods.backbone import structural_copy
from .methods.method import Method
from .methods.norm import batch_norms, norm_layers
from .methods.note import NOTE
from .methods.wrapper import Wrapper
from .nn.iabn import IABN, convert_iabn
from .nn.unmix import UnMixTNS2d

__all__ = ["adapt"]

Around = Callable[..., Any]
WARM_START = 10
"""The weight of the source's statistics, in updates; chosen on validation data (docs/filter.md)."""
FILTER = "a temporal filter: if labels come in runs, it uses past answers for the next one; if not, it does nothing"


class Adapted(Wrapper):
    """The method that `adapt` returns. When printed, it shows its parts.

    Args:
        method: The combined method.
        chosen: One line per part: what was chosen, and why.
    """

    title = "adapt (ours)"
    citation = "ours"
    batch_free = True
    needs_norm = "any"
    needs_images = False
    needs_source = False
    passes = "2 / 1"
    keeps = "as NOTE, and the filter's state"
    licence = ""
    trained_with = "iabn"
    uses_order = True

    def __init__(self, method: Method, chosen: tuple[str, ...] = ()) -> None:
        super().__init__(method)
        self.batch_free = method.batch_free  # type: ignore[misc]
        self._chosen = chosen

    def after(self, x: Tensor, logits: Tensor) -> Tensor:
        """Return the answers unchanged."""
        return logits

    def __repr__(self) -> str:
        lines = ["adapt chose", *(f"  - {line}" for line in self._chosen), indent(repr(self.method), "  ")]
        return "\n".join(lines)


def adapt(
    model: nn.Module,
    memory: Memory | None = None,
    *,
    layers: str | None = None,
    method: Callable[..., Method] = NOTE,
    warm_start: int | None = WARM_START,
    filter: Around | None = TemporalFilter,
    watch: Around | None = None,
    **settings: Any,
) -> Adapted:
    """Adapt a trained classifier with the method that we recommend for it. Start with this.

    It works in three steps. BatchNorm layers are replaced by Instance-Aware BatchNorm (IABN), in a copy that shares
    the model's tensors; a model with IABN is used unchanged. NOTE adapts the model from a class-balanced memory, with
    statistics that move fast at first and slowly later. A temporal filter uses the order of the answers. LayerNorm,
    GroupNorm and RMSNorm have no running statistics, so NOTE learns only their affine parameters. The caller's model
    is never changed. This is our combination. The paper's method is `tta.NOTE(tta.convert_iabn(model))`. The choices
    were made on validation data (docs/filter.md).

    Args:
        model: A trained classifier that maps `[B, ...]` to logits `[B, K]`.
        memory: The memory of samples for the next update; None means the method's default, `PBRS(64)`.
        layers: "iabn" replaces BatchNorm by IABN, "keep" uses the model unchanged; None decides by the layers.
        method: The method that learns: a class, or any callable that makes a method from a model.
        warm_start: NOTE's `warm_start`; None means constant momentum, as in the paper.
        filter: The outermost wrapper; None leaves the answers unchanged.
        watch: The wrapper between the method and the filter: `tta.Watch`, or None.
        **settings: Further keywords of the method, such as `delay=32` or `output="logits"`.

    Returns:
        A method; `print` shows the choices.

    Raises:
        ValueError: The model has no norm layer to adapt. The message says what to use instead.

    Example:
        >>> import torch, note_tta as tta
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 10))
        >>> adapted = tta.adapt(model)
        >>> adapted(torch.rand(100, 3, 8, 8)).shape
        torch.Size([100, 10])
        >>> print(adapted)
        adapt chose
          - IABN in place of BatchNorm, in a copy: ...
          - warm_start=10: ...
          - a temporal filter: ...
          TemporalFilter: the order is not informative: answers are not changed
            NOTE(Sequential)
            ...
        >>> model[1]
        BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, ...track_running_stats=True)
    """
    if layers not in (None, "iabn", "keep"):
        raise ValueError(f'layers must be "iabn", "keep" or None, got {layers!r}')
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    _refuse_without_norm(model, method)
    model, why = _with_layers(model, layers)
    chosen = [why]
    if memory is not None:
        settings["memory"] = memory
    wanted = _makes_note(method) or warm_start != WARM_START  # another method gets only what was asked for
    if wanted and batch_norms(model) and warm_start is not None:
        settings["warm_start"] = warm_start
        chosen.append(
            f"warm_start={warm_start}: statistics move fast at first and slow down to the paper's momentum, which by "
            "itself needs thousands of samples"
        )
    whole: Any = method(model, **settings)
    for around in (watch, filter):
        if around is not None:
            whole = around(whole)
            chosen.append(FILTER if around is TemporalFilter else f"{type(whole).__name__}, as given")
    return Adapted(whole, tuple(chosen))


def _with_layers(model: nn.Module, layers: str | None) -> tuple[nn.Module, str]:
    """Return the model with the layers to adapt, and the reason for them."""
    found = batch_norms(model).values()
    own = [layer for layer in found if isinstance(layer, (*IABN, UnMixTNS2d))]
    if layers == "keep":
        return model, 'the model\'s own layers: layers="keep" was given'
    if layers == "iabn" and not found:
        raise ValueError(
            f'{type(model).__name__} has no BatchNorm that IABN could replace: use layers="keep"'
        )
    if own or not found:
        kinds = ", ".join(sorted({type(layer).__name__ for layer in own or norm_layers(model).values()}))
        reason = "already correct each sample's statistics" if own else "have no running statistics to move"
        return model, f"the model's own layers ({kinds}): they {reason}"
    reason = "it corrects samples that are far from the running statistics"
    return convert_iabn(structural_copy(model, {})), f"IABN in place of BatchNorm, in a copy: {reason}"


def _makes_note(method: Callable[..., Method]) -> bool:
    """Whether a method is NOTE, a class made from it, or either of them with a few keywords given."""
    if isinstance(method, partial):
        return "warm_start" not in method.keywords and _makes_note(method.func)
    return isinstance(method, type) and issubclass(method, NOTE)


def _refuse_without_norm(model: nn.Module, method: Callable[..., Method]) -> None:
    if _makes_note(method) and not norm_layers(model):
        raise ValueError(
            f"{type(model).__name__} has no norm layer to adapt: use tta.TemporalFilter(tta.Source(model)), which "
            "filters the answers and learns nothing, or tta.CoTTA(model), which adapts all parameters"
        )
