"""How users write the library with types. Nothing runs this file: `make types` checks it."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from typing_extensions import assert_type

import note_tta as tta


class Mine(tta.Method):
    """A method of one's own."""

    def forward(self, x: Tensor) -> Tensor:
        return self.predict(x)


def use(model: nn.Module, stream: Iterable[tuple[Tensor, Tensor]], path: str) -> None:
    note = tta.NOTE(tta.convert_iabn(model), tta.PBRS(64), warm_start=10)
    filtered = tta.TemporalFilter(tta.Watch(note))
    assert_type(filtered(torch.rand(2, 3)), Tensor)
    assert_type(filtered.fork(), tta.TemporalFilter)
    assert_type(filtered.model, nn.Module)
    assert_type(filtered.counters, dict[str, int])
    tta.save_state(path, filtered)
    tta.load_state(path, tta.adapt(model))
    assert_type(tta.evaluate(filtered, stream).error, float)
    fleet = tta.Fleet(model, method=lambda m: tta.TemporalFilter(tta.NOTE(m, delay=64)))
    assert_type(fleet(["cam-1", 7], torch.rand(2, 3)), Tensor)
    tta.Fleet(model, tta.adapt)
    tta.check_method(Mine)
    tta.METHODS["mine"] = Mine
