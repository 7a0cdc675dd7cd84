"""Streams for the watch: honest ones, and attacks that stay within all bounds, on the digits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

import note_tta as tta
from note_tta import streams
from note_tta.data import open_dataset
from note_tta.methods.norm import batch_norms

from .common import BATCH, source_model

HALF = 1200
"""The test images' first 400, in three poses each, are the source's held-out samples; streams have the other 400."""
DOMAINS = ("test", "contrast", "brightness", "style")
SHAPE = (1, 32, 32)
CRAFTED = 256
SMALL_EPOCHS = 15
STEPS = 40
"""Gradient steps on each crafted sample."""
AHEAD = 30
"""The attack looks so many updates ahead."""

Pool = tuple[Tensor, Tensor]


@cache
def pool(domain: str, *, source: bool = False) -> Pool:
    """Samples and labels of a domain: the half for streams, or the source's half."""
    found = open_dataset("digits").domain(domain)
    own = torch.arange(HALF) if source else torch.arange(HALF, 2 * HALF)
    return found.inputs(own), found.labels[own]


def source_batches() -> list[Pool]:
    """What the watch is given as `source=`: 1,200 labelled samples that the model was not trained on."""
    x, y = pool("test", source=True)
    return list(zip(x.split(BATCH), y.split(BATCH), strict=True))


def at_size(batches: Iterable[Pool], size: int) -> list[Pool] | Iterator[Pool]:
    """The same batches with pictures of another size; a list stays a list."""
    smaller = ((F.adaptive_avg_pool2d(x, size), y) for x, y in batches)
    return list(smaller) if isinstance(batches, list) else smaller


@cache
def small_model(norm: str) -> nn.Module:
    """Two convolutions for digits of 8x8, trained in some seconds: a million samples of them take minutes.

    Args:
        norm: "bn", "iabn" or "ln" (LayerNorm over channels and places).
    """
    torch.manual_seed(0)
    norms: list[nn.Module] = (
        [nn.LayerNorm([16, 8, 8]), nn.LayerNorm([32, 4, 4])]
        if norm == "ln"
        else [nn.BatchNorm2d(16), nn.BatchNorm2d(32)]
    )
    first = [nn.Conv2d(1, 16, 3, padding=1, bias=False), norms[0], nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(16, 32, 3, padding=1, bias=False), norms[1], nn.ReLU(), nn.MaxPool2d(2)]
    plain = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(128, 10))
    model = (tta.convert_iabn(plain) if norm == "iabn" else plain).train()
    data = open_dataset("digits").domain("train")
    x, y = F.adaptive_avg_pool2d(data.inputs(torch.arange(len(data))), 8), data.labels
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    steps = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, SMALL_EPOCHS)
    for _ in range(SMALL_EPOCHS):
        for part in torch.randperm(len(y)).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
        steps.step()
    return model.eval()


def correlated(domain: str, samples: int, seed: int) -> Iterator[Pool]:
    """Batches of a domain in correlated orders, one pass after another, each in an order of its own."""
    x, y = pool(domain)
    left = samples
    while left:
        order = streams.dirichlet(y, 0.1, torch.Generator().manual_seed(seed))[:left]
        yield from zip(x[order].split(BATCH), y[order].split(BATCH), strict=True)
        left, seed = left - len(order), seed + 1


def drifting(samples: int, seed: int, stretch: int = 6000) -> Iterator[Pool]:
    """Batches that go from one domain to the next and back again, each change gradual, all of it correlated."""
    y = pool("test")[1]
    steps = {domain: pool(domain)[0] for domain in DOMAINS}
    seen = 0
    while seen < samples:
        order = streams.dirichlet(y, 0.1, torch.Generator().manual_seed(seed))
        seed += 1
        for part in order.split(BATCH):
            at = seen / stretch
            here, there = (DOMAINS[int(at + k) % len(DOMAINS)] for k in (0, 1))
            share = min(1.0, max(0.0, 2 * (at % 1) - 1))
            yield (1 - share) * steps[here][part] + share * steps[there][part], y[part]
            seen += len(part)
            if seen >= samples:
                return


def clean_digits(samples: int) -> Tensor:
    """Correlated digits like the source's: no attack, and what most attacks are made of."""
    return torch.cat([x for x, _ in correlated("test", samples, seed=400)])[:samples]


def _noise(samples: int) -> Tensor:
    return torch.rand(samples, *SHAPE, generator=torch.Generator().manual_seed(7))


def _filled(value: float) -> Callable[[int], Tensor]:
    return lambda samples: torch.full((samples, *SHAPE), value)


def _gain(samples: int) -> Tensor:
    return 4 * clean_digits(samples)


def _noise_ramp(samples: int) -> Tensor:
    share = torch.linspace(0, 1, samples)[:, None, None, None]
    return (1 - share) * clean_digits(samples) + share * _noise(samples)


def _gain_ramp(samples: int) -> Tensor:
    return torch.linspace(1, 4, samples)[:, None, None, None] * clean_digits(samples)


def _fading(samples: int) -> Tensor:
    x = clean_digits(samples)
    return x.mean() + torch.linspace(1, 0.02, samples)[:, None, None, None] * (x - x.mean())


def _one_class(samples: int) -> Tensor:
    x, y = pool("test")
    own = x[y == 3]
    return own[torch.randint(len(own), (samples,), generator=torch.Generator().manual_seed(7))]


def _repeated(samples: int) -> Tensor:
    return pool("test")[0][:1].expand(samples, -1, -1, -1)


def _frozen_frames(samples: int) -> Tensor:
    """Every frame comes a hundred times, as from a camera that hangs."""
    return clean_digits(samples // 100 + 1).repeat_interleave(100, 0)[:samples]


def _dead_rows(samples: int) -> Tensor:
    x = clean_digits(samples).clone()
    x[:, :, 8:20] = 0
    return x


def _turning(samples: int) -> Tensor:
    x, angle = clean_digits(samples), torch.linspace(0, 2 * math.pi, samples)
    rows = [
        torch.stack([angle.cos(), -angle.sin(), 0 * angle], 1),
        torch.stack([angle.sin(), angle.cos(), 0 * angle], 1),
    ]
    return F.grid_sample(
        x, F.affine_grid(torch.stack(rows, 1), list(x.shape), align_corners=False), align_corners=False
    )


def _crafted(samples: int) -> Tensor:
    """Samples in [0, 1] that look like all ten classes and whose statistics are to spoil clean samples.

    The attack knows the model and source samples, not the labels. By gradient steps on the pixels of 64 samples at a
    time it raises the loss of source samples, to the model's own answers, under the statistics that the layers
    would have after `AHEAD` updates with these samples.
    """
    generator = torch.Generator().manual_seed(3)
    chosen = crafted_samples()
    return chosen[torch.randint(len(chosen), (samples,), generator=generator)]


@cache
def crafted_samples() -> Tensor:
    """The crafted samples."""
    method = tta.NOTE(source_model("iabn"))
    model = method.backbone.build(method.backbone.clone_source())
    layers, statistics = batch_norms(model), dict(model.named_buffers())
    x, _ = pool("test", source=True)
    with torch.no_grad():
        answers = model(x).argmax(1)
    generator = torch.Generator().manual_seed(5)
    found = []
    for _ in range(CRAFTED // BATCH):
        own = x[torch.randint(len(x), (BATCH,), generator=generator)].clone().requires_grad_()
        probe = torch.randint(len(x), (128,), generator=generator)
        classes = torch.arange(BATCH) % 10
        optimizer = torch.optim.Adam([own], lr=0.05)
        for _ in range(STEPS):
            logits, inputs = _run(model, own)
            keep = (1 - method.momentum) ** AHEAD
            moved = {}
            for layer in layers:
                mean, var = inputs[layer].mean((0, 2, 3)), inputs[layer].var((0, 2, 3))
                for name, batch in ((f"{layer}.running_mean", mean), (f"{layer}.running_var", var)):
                    moved[name] = keep * statistics[name] + (1 - keep) * batch
            spoiled = functional_call(model, moved, x[probe])
            loss = F.cross_entropy(logits, classes) - F.cross_entropy(spoiled, answers[probe])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                own.clamp_(0, 1)
        found.append(own.detach())
    return torch.cat(found)


def _run(model: nn.Module, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The logits of samples and what each norm layer got."""
    inputs: dict[str, Tensor] = {}

    def catch(name: str, _: nn.Module, given: tuple[Tensor]) -> None:
        inputs[name] = given[0]

    hooks = [
        layer.register_forward_pre_hook(partial(catch, name)) for name, layer in batch_norms(model).items()
    ]
    logits = model(x)
    for hook in hooks:
        hook.remove()
    return logits, inputs


ATTACKS: dict[str, Callable[[int], Tensor]] = {
    "uniform noise": _noise,
    "all black": _filled(0.0),
    "constant grey": _filled(0.5),
    "images times 4": _gain,
    "a slow ramp to noise": _noise_ramp,
    "a slow ramp to images times 4": _gain_ramp,
    "slow fading": _fading,
    "crafted by gradient": _crafted,
    "one class": _one_class,
    "one class for 50,000 samples": lambda _: _one_class(50_000),
    "one sample repeated": _repeated,
    "every frame a hundred times": _frozen_frames,
    "dead rows": _dead_rows,
    "a camera that turns": _turning,
}
"""Each makes so many samples; none is refused for its size alone."""
