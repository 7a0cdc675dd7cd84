"""ONDA: running statistics that follow the stream."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..memory import FIFO
from .backbone import Backbone, Output
from .draft import Draft
from .interval import IntervalMethod
from .norm import running_statistics
from .settings import check_share


class ONDA(IntervalMethod):
    """Answer with running statistics. Every ten samples, move them towards the statistics of these samples.

    Args:
        model: A model with BatchNorm layers.
        interval: The number of samples between two updates, and the number of samples that an update uses.
        momentum: How far the statistics move per update.
        reach: As in `NOTE`.
        delay: As in `NOTE`.
        executor: As in `NOTE`.
        output: As in `NOTE`.
    """

    title = "ONDA"
    citation = "Mancini et al., IROS 2018"
    needs_norm = "batch"
    passes = "2"
    keeps = "running statistics, 10 samples"

    def __init__(
        self,
        model: nn.Module | Backbone,
        *,
        interval: int = 10,
        momentum: float = 0.1,
        reach: float = 5.0,
        delay: int = 0,
        executor: str = "thread",
        output: Output = None,
    ) -> None:
        check_share("momentum", momentum)
        memory = FIFO(max(interval, 1) if isinstance(interval, int) else 1)
        super().__init__(
            model,
            running_statistics,
            memory,
            interval=interval,
            reach=reach,
            delay=delay,
            executor=executor,
            output=output,
        )
        self.momentum = momentum

    def _take_settings(self, settings: dict[str, Any]) -> None:
        super()._take_settings(settings)
        if self.memory.capacity != self.interval:
            self.memory = self.part("memory", FIFO(self.interval))

    def learn(self, draft: Draft, x: Tensor) -> None:
        """Move the running statistics towards those of the latest samples."""
        if len(x) > 1:
            draft.predict(x, momentum=self.momentum)
