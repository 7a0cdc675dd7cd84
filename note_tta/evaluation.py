"""The online loop: predict, score, adapt."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from operator import length_hint

import torch
from torch import Tensor

from .progress import Follow, progress_bars

PROGRESS_AFTER_SECONDS = 3.0
_BAR = "{task.description}, error {task.fields[error]:.1f} %"


@dataclass(frozen=True)
class Result:
    """The result of a method on a stream. Each sample is scored once, by its answer before the method learns from it.

    A sample that was answered with NaN has the prediction -1 and counts as an error.

    Attributes:
        predictions: Predicted class of each sample, in stream order.
        labels: True class of each sample.
        seconds: Time spent in the method.
        latencies: Seconds of each call of the method.
    """

    predictions: Tensor
    labels: Tensor
    seconds: float
    latencies: list[float] = field(default_factory=list, repr=False)

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(self.labels)

    @property
    def wrong(self) -> Tensor:
        """Whether each answer was wrong; one with NaN is, whatever the label."""
        return (self.predictions != self.labels) | (self.predictions == -1)

    @property
    def error(self) -> float:
        """Online error in percent; NaN for an empty stream."""
        return 100 * float(self.wrong.double().mean())

    @property
    def cumulative_error(self) -> Tensor:
        """Error in percent over the stream up to and including each sample."""
        return 100 * self.wrong.double().cumsum(0) / torch.arange(1, self.samples + 1)

    @property
    def per_class_error(self) -> dict[int, float]:
        """Error in percent of each class that occurs."""
        return {
            label: 100 * float(self.wrong[self.labels == label].double().mean())
            for label in self.labels.unique().tolist()
        }

    @property
    def samples_per_second(self) -> float:
        """Throughput of the method."""
        return self.samples / self.seconds if self.seconds else float("nan")

    @property
    def latency_ms(self) -> dict[int, float]:
        """Milliseconds per call of the method: the 50th, 90th and 99th percentiles."""
        if not self.latencies:
            return {50: float("nan"), 90: float("nan"), 99: float("nan")}
        times = 1000 * torch.tensor(self.latencies, dtype=torch.float64)
        return {q: float(times.quantile(q / 100)) for q in (50, 90, 99)}


def evaluate(
    method: Callable[[Tensor], Tensor],
    loader: Iterable[tuple[Tensor, Tensor]],
    *,
    progress: bool | None = None,
) -> Result:
    """Run a method over a labelled stream. The method sees only the inputs.

    Args:
        method: A method, or any callable from inputs to logits.
        loader: Any iterable of `(x, y)` batches, such as a DataLoader: tensors or numpy arrays. Inputs are moved
            to the model's device.
        progress: Show a progress bar; None shows one on a terminal if a run takes more than a few seconds.

    Returns:
        The result, on the CPU.

    Example:
        >>> import note_tta as tta
        >>> from torch import nn
        >>> method = tta.Source(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)))
        >>> stream = [(torch.rand(8, 1, 2, 2), torch.zeros(8, dtype=torch.long)) for _ in range(3)]
        >>> evaluate(method, stream).samples
        24
    """
    model = getattr(method, "model", None)
    device = (
        next((p.device for p in model.parameters()), None) if isinstance(model, torch.nn.Module) else None
    )
    predictions, labels = [torch.empty(0, dtype=torch.long)], [torch.empty(0, dtype=torch.long)]
    latencies: list[float] = []
    show = (sys.stderr.isatty() if progress is None else progress) and find_spec("rich") is not None
    start, answered, wrong = time.perf_counter(), 0, 0
    with ExitStack() as stack:
        follow: Follow | None = None
        for number, batch in enumerate(loader, start=1):
            x, y = _pair(batch)
            x = torch.as_tensor(x, device=device)
            y = torch.as_tensor(y).cpu()
            y = y if y.is_floating_point() else y.long()
            if y.ndim != 1 or len(y) != len(x):
                raise ValueError(f"a batch of {len(x)} inputs came with labels of shape {tuple(y.shape)}")
            before = time.perf_counter()
            predicted = _predictions(method(x))
            latencies.append(time.perf_counter() - before)
            predictions.append(predicted)
            labels.append(y)
            answered += len(y)
            wrong += int((predicted != y).sum())
            if show and time.perf_counter() - start > PROGRESS_AFTER_SECONDS:
                follow = follow or stack.enter_context(progress_bars(_BAR, transient=True))
                error = 100 * wrong / max(answered, 1)
                follow(type(method).__name__, number, length_hint(loader), error=error)
    return Result(torch.cat(predictions), torch.cat(labels), sum(latencies), latencies)


def _pair(batch: object) -> tuple[Tensor, Tensor]:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        length = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise ValueError(
            f"the stream must yield batches (x, y), got a {type(batch).__name__}{length}: "
            "for a single batch, give [(x, y)]"
        )
    return batch[0], batch[1]


def _predictions(logits: Tensor) -> Tensor:
    """Return the class of each row, -1 if it holds NaN; this waits for the device."""
    return torch.where(logits.isnan().any(dim=1), -1, logits.argmax(dim=1)).cpu()
