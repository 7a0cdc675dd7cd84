"""Answer samples of many streams in one pass, each normalised with the tensors of its own stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from ..methods.backbone import Backbone
from ..methods.draft import copy_all
from ..methods.norm import norm_layers
from ..methods.packed import Packed, Place
from ..methods.reach import Reach
from ..nn import kernels
from ..nn.iabn import PLAIN_FORWARDS

TOLERANCE = {torch.float16: 0.05, torch.bfloat16: 0.2}
"""The largest difference, relative to the largest logit, at which answers count as equal; 1e-3 for other dtypes."""


class Together:
    """Answers samples of many streams in one pass: every norm layer gets one row of statistics per sample.

    Args:
        backbone: The model.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.module = _uncompiled(backbone.build(backbone.clone_source()))
        self._rows: dict[str, Tensor] = {}
        source = getattr(backbone.module, "_orig_mod", backbone.module)
        self._reach = Reach(self.module, source)
        names = {id(t): name for name, t in backbone.source.items() if t.is_floating_point()}
        alone = dict(_uncompiled(backbone.build(backbone.clone_source())).named_modules())
        for path, layer in norm_layers(source).items():
            found = {**layer._parameters, **layer._buffers}
            own = {key: names[id(tensor)] for key, tensor in found.items() if id(tensor) in names}
            self.module.get_submodule(path).forward = self._forward(layer, alone[path], own)

    def look(self, x: Tensor, tensors: Sequence[Packed], reach: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Return the logits, and for each sample whether it is near enough to the source data to learn from.

        Args:
            x: Samples `[B, ...]`.
            tensors: For each sample, the adapted tensors of its stream.
            reach: For each sample, the `reach` of its stream.
        """
        limit = reach[0] if len(set(reach)) == 1 else x.new_tensor(reach, dtype=torch.float64)[:, None]
        self._rows = gather(tensors)
        try:
            return self._reach.look(partial(_predict, self.backbone, self.module), x, limit)
        finally:
            self._rows = {}

    def _forward(self, layer: nn.Module, alone: nn.Module, own: dict[str, str]) -> partial[Tensor]:
        if (
            isinstance(layer, _BatchNorm)
            and type(layer).forward in PLAIN_FORWARDS
            and "forward" not in vars(layer)
        ):
            return partial(self._normalize, layer, own)
        alone._forward_pre_hooks.clear()
        alone._forward_hooks.clear()
        return partial(self._run_alone, alone, own)

    def _normalize(self, layer: _BatchNorm, own: dict[str, str], x: Tensor) -> Tensor:
        """Run BatchNorm or IABN with a kernel that takes one row of statistics per sample."""
        layer._check_input_dim(x)
        rows = {key: self._rows[name] for key, name in own.items()}
        return kernels.iabn_rows(
            x,
            rows["running_mean"],
            rows["running_var"],
            rows.get("weight"),
            rows.get("bias"),
            eps=layer.eps,
            alpha=getattr(layer, "alpha", torch.inf),
            correction=getattr(layer, "correction", 0),
        )

    def _run_alone(self, layer: nn.Module, own: dict[str, str], x: Tensor) -> Tensor:
        """Run any other norm layer, or one with a custom forward, with `vmap` over the samples."""
        rows = {key: self._rows[name] for key, name in own.items()}
        return torch.vmap(lambda row, sample: functional_call(layer, row, (sample[None],))[0])(rows, x)  # type: ignore[no-any-return]


class InTurn:
    """Answers samples of many streams one stream after another. It works for every model, but is slower.

    Args:
        backbone: The model.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self._tensors = backbone.clone_source()
        self.module = backbone.build(self._tensors)
        self._reach = Reach(self.module, backbone.module)

    def look(self, x: Tensor, tensors: Sequence[Packed], reach: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Return the logits, and for each sample whether it is near enough to learn from; see `Together.look`."""
        answers = [self._look(x[rows], tensors[rows.start], reach[rows.start]) for rows in _runs(tensors)]
        return torch.cat([logits for logits, _ in answers]), torch.cat([near for _, near in answers])

    def _look(self, x: Tensor, tensors: Packed, reach: float) -> tuple[Tensor, Tensor]:
        copy_all(self._tensors, tensors)
        return self._reach.look(partial(_predict, self.backbone, self.module), x, reach)


def gather(tensors: Sequence[Packed]) -> dict[str, Tensor]:
    """Stack the floating-point tensors of many streams by name, one row per stream, each contiguous."""
    layout = tensors[0].layout
    blocks = [torch.stack([own.buffers[index] for own in tensors]) for index in range(len(layout.buffers))]
    gathered = {}
    for name, place in layout.tree.items():
        assert isinstance(place, Place)
        block = blocks[place.buffer]
        if block.is_floating_point():
            rows = block[:, place.start : place.start + place.numel].contiguous()
            gathered[name] = rows.view(len(tensors), *place.shape)
    return gathered


def agrees(together: Together, alone: InTurn, x: Tensor, source: Packed) -> bool:
    """Whether a model can answer many streams in one pass.

    This runs two streams with different tensors together and one after the other, and compares the answers. They
    differ if the model uses a norm layer's tensors elsewhere, or folds another axis into the batch.

    Raises:
        ValueError: The model does not accept samples of this shape.
    """
    x = x[[0, -1]]
    generator = torch.Generator().manual_seed(0)
    streams = [_disturbed(source, generator) for _ in x]
    reach = [torch.inf] * len(x)
    expected, _ = alone.look(x, streams, reach)
    try:
        answers, _ = together.look(x, streams, reach)
    except (ValueError, RuntimeError):
        return False
    if answers.shape != expected.shape:
        return False
    tolerance = TOLERANCE.get(alone.backbone.dtype or torch.float32, 1e-3)
    return bool((answers - expected).abs().amax() <= tolerance * expected.abs().amax().clamp_min(1e-6))


def _disturbed(source: Packed, generator: torch.Generator) -> Packed:
    tensors = source.clone()
    for buffer in tensors.buffers:
        if buffer.is_floating_point():
            buffer *= 1 + torch.rand(buffer.shape, generator=generator).to(buffer)
    for place in source.layout.tree.values():
        if place.parameter is not None:  # a bias may be all zeros, which no factor changes
            part = tensors.buffers[place.buffer][place.start : place.start + place.numel]
            part += 0.1 * torch.rand(part.shape, generator=generator).to(part)
    return tensors


def _runs(tensors: Sequence[Packed]) -> Iterator[slice]:
    start = 0
    for _, run in groupby(map(id, tensors)):
        stop = start + len(list(run))
        yield slice(start, stop)
        start = stop


def _uncompiled(module: nn.Module) -> nn.Module:
    """Remove compilation from a module, so that the `forward` of its layers can be replaced."""
    module = getattr(module, "_orig_mod", module)
    for part in module.modules():
        part._compiled_call_impl = None
    return module


@torch.no_grad()
def _predict(backbone: Backbone, module: nn.Module, x: Tensor) -> Tensor:
    return backbone.run(module, x)
