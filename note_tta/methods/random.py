"""A torch generator as a part of a method."""

from __future__ import annotations

from typing import Any

import torch


class Randomness:
    """A generator whose state is saved, restored and reset with the method, and pickles as bytes.

    Args:
        generator: The generator; None is a new one with torch's default seed.
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self.generator = torch.Generator() if generator is None else generator

    def state_dict(self) -> dict[str, Any]:
        """The generator's state."""
        return {"state": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        self.generator.set_state(state["state"].cpu())

    def __getstate__(self) -> bytes:
        return bytes(self.generator.get_state().numpy())

    def __setstate__(self, state: bytes) -> None:
        self.generator = generator_from(state)


def generator_from(state: bytes) -> torch.Generator:
    """A generator on the CPU in a state that was kept as bytes."""
    generator = torch.Generator()
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator
