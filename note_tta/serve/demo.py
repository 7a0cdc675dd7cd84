"""The demonstration: a hundred simulated cameras that read digits, each with its own drift."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .. import streams
from ..checkpoint import load_checkpoint
from ..data import open_dataset
from ..example import WEIGHTS
from ..nn.iabn import convert_iabn
from .desk import Request
from .gathering import Gathering
from .limits import Refused

CAMERAS = 100
AT_ONCE = 4
EVERY = 0.5
"""Seconds between two requests of a camera."""
CALM, DRIFTING = 400, 800
"""For how many samples a camera is clear, and for how many it drifts, in turns."""

Drift = Callable[[Tensor, float, torch.Generator], Tensor]


def _faded(x: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    return mean + (x - mean) * (1 - 0.85 * strength)


def _lit(x: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    return x * (1 - 0.3 * strength) + 0.35 * strength


def _noisy(x: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    return x + 0.3 * strength * torch.randn(x.shape, generator=generator)


def _dark(x: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    return x * (1 - 0.9 * strength)


def _blurred(x: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    soft = nn.functional.avg_pool2d(nn.functional.pad(x, (3, 3, 3, 3), mode="replicate"), 7, stride=1)
    return x + strength * (soft - x)


def _broken(x: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    return torch.where(torch.rand(len(x), 1, 1, 1, generator=generator) < 0.8 * strength, torch.nan, x)


DRIFTS: dict[str, Drift] = {
    "faded": _faded,
    "lit": _lit,
    "noisy": _noisy,
    "dark": _dark,
    "blurred": _blurred,
}


class Camera:
    """One simulated camera: digits in long runs, clear for a while, then with a drift that comes and goes.

    Args:
        number: Which camera; it decides the drift, the order of digits and when the drift comes.
        images: Clean digits `[N, 1, 32, 32]`.
        labels: The labels of the digits.
    """

    def __init__(self, number: int, images: Tensor, labels: Tensor) -> None:
        self.generator = torch.Generator().manual_seed(number)
        kinds = [*DRIFTS]
        self.kind = "broken" if number % 50 == 49 else kinds[number % len(kinds)]
        self.name = f"camera-{number:03d}-{self.kind}"
        self._drift = _broken if self.kind == "broken" else DRIFTS[self.kind]
        self._images, self._labels = images, labels
        self._order = streams.dirichlet(labels, 0.1, self.generator)
        self._at = int(torch.randint(CALM + DRIFTING, (), generator=self.generator))
        self._strength = 0.5 + 0.5 * float(torch.rand((), generator=self.generator))

    def strength(self) -> float:
        """How strong the drift is now, from 0 to 1."""
        place = self._at % (CALM + DRIFTING) - CALM
        ramp = min(1.0, place / 50, (DRIFTING - place) / 50)
        return self._strength * max(0.0, ramp)

    def look(self, count: int) -> Tensor:
        """The next images, as a camera would send them: in steps of 1/255."""
        rows = [int(self._order[(self._at + i) % len(self._order)]) for i in range(count)]
        self._at += count
        strength = self.strength()
        x = self._images[rows]
        seen = self._drift(x, strength, self.generator) if strength else x
        return (seen.clamp(0, 1) * 255).round() / 255


def demo_model() -> tuple[nn.Module, list[str]]:
    """The embedded network, trained on clean digits, and the names of its classes."""
    model, _ = load_checkpoint(WEIGHTS)
    return convert_iabn(model), [str(digit) for digit in range(10)]


def make_cameras(count: int = CAMERAS) -> list[Camera]:
    """Cameras over the embedded digits that the network was not trained on."""
    domain = open_dataset("digits").domain("test")
    images = domain.inputs()
    return [Camera(number, images, domain.labels) for number in range(count)]


async def run_cameras(gathering: Gathering, cameras: list[Camera]) -> None:
    """Let the cameras send images while the service runs. A refused image is lost, as with a real camera."""
    loop = asyncio.get_running_loop()
    while True:
        start = loop.time()
        futures = []
        for camera in cameras:
            try:
                futures.append(gathering.samples(Request(camera.name, camera.look(AT_ONCE))))
            except Refused:
                continue
        await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
        await asyncio.sleep(max(0.05, EVERY - (loop.time() - start)))
