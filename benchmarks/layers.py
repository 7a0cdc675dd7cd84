"""One layer, and one network, with IABN and with BatchNorm."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from note_tta.models import build_model
from note_tta.nn import IABN2d, functional

from .baselines import PlainIABN2d
from .measure import Figure, ratio_figure, ratios, take_turns

SHAPES = [
    (1, 64, 32, 32),
    (64, 64, 32, 32),
    (64, 128, 16, 16),
    (64, 512, 4, 4),
    (1, 64, 56, 56),
    (16, 64, 112, 112),
]
LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}


def figures(repeats: int) -> Iterator[Figure]:
    """All figures of this file."""
    yield from _eval_layers(repeats)
    yield _train_layers(repeats)
    yield from _networks(repeats)
    yield _narrow_network(min(repeats, 9))


def _cases() -> Iterator[tuple[str, Tensor]]:
    for shape in SHAPES:
        for name, layout in LAYOUTS.items():
            x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            yield f"{shape} {name}", x.contiguous(memory_format=layout)


def _eval_layers(repeats: int) -> Iterator[Figure]:
    against_bn, against_plain, against_formula = [], [], []
    detail: dict[str, object] = {}
    for case, x in _cases():
        channels = x.shape[1]
        layers = {
            "batchnorm": nn.BatchNorm2d(channels).eval(),
            "iabn": IABN2d(channels).eval(),
            "plain": PlainIABN2d(channels).eval(),
        }
        iabn = layers["iabn"]
        calls: dict[str, Callable[[], object]] = {n: _call(layer, x) for n, layer in layers.items()}
        calls["functional"] = lambda x=x, i=iabn: functional.iabn(
            x, i.running_mean, i.running_var, i.weight, i.bias
        )
        with torch.no_grad():
            seconds = take_turns(calls, repeats)
        against_bn.append(ratios(seconds["iabn"], seconds["batchnorm"]))
        against_plain.append(ratios(seconds["plain"], seconds["iabn"]))
        against_formula.append(ratios(seconds["functional"], seconds["iabn"]))
        detail[case] = _microseconds(seconds)
    yield ratio_figure("IABN eval layer ÷ BatchNorm", against_bn, 1.05, detail=detail)
    yield ratio_figure("plain formula ÷ IABN eval layer", against_plain, 8, at_most=False)
    yield ratio_figure("functional.iabn ÷ IABN eval layer", against_formula, None)


def _train_layers(repeats: int) -> Figure:
    rounds = []
    detail: dict[str, object] = {}
    for case, x in _cases():
        push = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
        push = torch.empty_like(x).copy_(push)
        calls = {
            "batchnorm": _step(nn.BatchNorm2d(x.shape[1]), x, push),
            "iabn": _step(IABN2d(x.shape[1]), x, push),
        }
        seconds = take_turns(calls, repeats)
        rounds.append(ratios(seconds["iabn"], seconds["batchnorm"]))
        detail[case] = _microseconds(seconds)
    return ratio_figure("IABN train forward+backward ÷ BatchNorm", rounds, 1.6, detail=detail)


def _networks(repeats: int) -> Iterator[Figure]:
    torch.manual_seed(0)
    models = {norm: build_model("resnet18", 10, norm=norm).eval() for norm in ("bn", "iabn")}
    models["iabn"].load_state_dict(models["bn"].state_dict())
    for batch in (1, 64):
        x = torch.rand(batch, 3, 32, 32)
        with torch.no_grad():
            calls = {norm: _call(model, x) for norm, model in models.items()}
            seconds = take_turns(calls, repeats if batch == 1 else min(repeats, 9))
        name = f"ResNet-18 eval with IABN ÷ with BatchNorm, B={batch}"
        detail: dict[str, object] = dict(_microseconds(seconds))
        yield ratio_figure(name, [ratios(seconds["iabn"], seconds["bn"])], 1.10, detail=detail)


def _narrow_network(repeats: int) -> Figure:
    """The whole network under bfloat16 autocast: convolutions in 16 bits, norm tensors in float32."""
    torch.manual_seed(0)
    models = {norm: build_model("resnet18", 10, norm=norm).eval() for norm in ("bn", "iabn")}
    x = torch.rand(8, 3, 32, 32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        seconds = take_turns({norm: _call(model, x) for norm, model in models.items()}, repeats)
    detail: dict[str, object] = dict(_microseconds(seconds))
    rounds = [ratios(seconds["iabn"], seconds["bn"])]
    return ratio_figure(
        "ResNet-18 under bfloat16 autocast, IABN ÷ BatchNorm, B=8", rounds, 1.15, detail=detail
    )


def _call(module: nn.Module, x: Tensor) -> Callable[[], object]:
    return lambda: module(x)


def _step(layer: nn.Module, x: Tensor, push: Tensor) -> Callable[[], object]:
    leaf = x.detach().requires_grad_()

    def step() -> None:
        layer(leaf).backward(push)
        leaf.grad = None

    return step


def _microseconds(seconds: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(1e6 * sorted(s)[len(s) // 2], 1) for name, s in seconds.items()}
