"""What the watch keeps of the source: samples to answer again, and how certain the source model is of its answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..memory import PBRS
from ..memory.memory import pack, unpack
from ..methods.backbone import Backbone, Tensors
from ..methods.draft import Draft
from ..methods.method import Method
from ..methods.objectives import entropies
from ..safe_load import load_plain, save_plain
from .bench import Bench
from .signals import lost_probability

SourceData = Iterable[Any] | str | Path
FEWEST = 32
"""The minimum number of source samples."""

QUANTILES = 101
PER_CLASS = 30
"""A class with at least this many answers has its own entropies; other classes use those of all classes."""


@dataclass(frozen=True)
class Reference:
    """What is known of the source. It never changes, so all streams of a model share it.

    Attributes:
        fingerprint: The fingerprint of the model's frozen weights.
        canaries: Source samples `[N, ...]` that the source model answers correctly, as far as is known; stored as
            bytes if that loses nothing.
        answers: The source model's answers to them.
        chances: The probability that it gives to these answers.
        own_statistics: Whether canaries are normalised with their own statistics instead of the running ones.
        spread: The standard deviation of each value of a sample.
        entropies: Quantiles of the source model's entropy on the source, per answer; the last row is over all answers.
        error: Its error on the source in percent; without labels, the error that its confidence implies.
        threshold: The entropy that as many source samples exceed as are answered wrongly (ATC, Garg et al. 2022).
        samples: The number of source samples.
        labelled: Whether they had labels.
        levels: The limit of each alarm as a multiple of its default, from `calibrate`.
    """

    fingerprint: str
    canaries: Tensor
    answers: Tensor
    chances: Tensor
    own_statistics: bool
    spread: Tensor
    entropies: Tensor
    error: float
    threshold: float
    samples: int
    labelled: bool
    levels: dict[str, float] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write the reference to a file, which can later be given as `source=`."""
        save_plain(Path(path), self.state())

    def state(self) -> dict[str, Any]:
        """Return the whole reference as tensors and plain values."""
        return dict(vars(self))

    @classmethod
    def of_state(cls, state: Any) -> Reference:
        """Build a reference from a state; raise `ValueError` if the state is inconsistent."""
        if not isinstance(state, dict) or state.keys() != {each.name for each in fields(cls)}:
            raise ValueError("what it knows about the source has other fields than this version's")
        found = cls(**state)
        tensors = (found.canaries, found.answers, found.chances, found.entropies, found.spread)
        numbers = (found.error, found.threshold)
        if type(found.samples) is not int or not all(type(number) is float for number in numbers):
            raise ValueError("its error, threshold or number of samples is not a number")
        if not all(isinstance(tensor, Tensor) and len(tensor) for tensor in tensors):
            raise ValueError("it has no source samples")
        if len({len(tensor) for tensor in tensors[:3]}) != 1 or found.entropies.ndim != 2:
            raise ValueError("it has source samples without answers")
        if found.spread.shape != found.canaries.shape[1:]:
            raise ValueError("its source samples and their spread differ in shape")
        if not all(isinstance(level, float) and level >= 1 for level in found.levels.values()):
            raise ValueError(f"its limits must be numbers of at least 1, got {found.levels!r:.80}")
        if not 0 <= int(found.answers.min()) <= int(found.answers.max()) < len(found.entropies) - 1:
            raise ValueError("its answers are beyond its classes")
        return found

    def is_same(self, other: Reference) -> bool:
        """Whether another reference has the same content."""
        pairs = ((value, getattr(other, name)) for name, value in self.state().items())
        return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)


class Known:
    """The reference as a part of a watch: a `Reference`, or None if no source was given."""

    def __init__(self, reference: Reference | None = None) -> None:
        self.reference = reference

    def state_dict(self) -> dict[str, Any]:
        """Return the whole reference."""
        return {} if self.reference is None else self.reference.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load another reference; if it is the same, the tensors stay shared."""
        found = Reference.of_state(state) if state else None
        if found is None or self.reference is None or not found.is_same(self.reference):
            self.reference = found

    def __deepcopy__(self, memo: dict[int, Any]) -> Known:
        return Known(self.reference)


def learn_reference(
    method: Method, source: SourceData, bench: Bench, count: int, tolerance: float
) -> Reference:
    """Build the reference of the source in one pass of the source model.

    Args:
        method: The innermost method.
        source: Batches of inputs, or of inputs and labels; or a file that `Reference.save` wrote.
        bench: Answers with the source model.
        count: How many samples to keep.
        tolerance: How much probability the samples may lose.

    Raises:
        ValueError: There are too few samples, or the file belongs to another model.
    """
    if isinstance(source, str | Path):
        return _read(Path(source), method.backbone)
    kept = PBRS(count)
    answers, surprises, wrong, labelled = [], [], [], set()
    spread = Spread()
    for batch in source:
        x, labels = inputs_and_labels(batch)
        x = method.checked(x)
        logits = bench.answer(method.backbone.source, x).cpu()
        good = torch.isfinite(logits).all(dim=1)
        answer = logits.argmax(dim=1)
        right = good if labels is None else good & (answer == labels)
        for row in right.nonzero()[:, 0].tolist():
            kept.add(x[row], int(answer[row]))
        doubt = 1 - logits.softmax(dim=1).amax(dim=1) if labels is None else (answer != labels).float()
        labelled.add(labels is not None)
        spread.add(x[good.to(x.device)])
        answers.append(answer[good])
        surprises.append(entropies(logits)[good])
        wrong.append(doubt[good])
    samples = sum(map(len, answers))
    if samples < FEWEST:
        raise ValueError(f"source must have at least {FEWEST} samples, got {samples}")
    if len(kept) == 0:
        raise ValueError(
            "the model answers no source sample as it is labelled: are these labels the model's?"
        )
    if len(labelled) > 1:
        raise ValueError("source must have labels in every batch or in none")
    canaries, labels = kept.inputs(), torch.tensor(kept.labels())
    own = _needs_own_statistics(method, bench, canaries, labels, tolerance)
    logits = _answers(bench, method.backbone.source, canaries, own)
    error = float(torch.cat(wrong).double().mean())
    entropy = torch.cat(surprises).float()
    packed = pack(canaries)
    return Reference(
        fingerprint=method.backbone.fingerprint,
        canaries=canaries if packed is None else packed,
        answers=labels,
        chances=logits.float().softmax(dim=1).cpu().gather(1, labels[:, None])[:, 0],
        own_statistics=own,
        spread=spread.take(),
        entropies=_quantiles(entropy, torch.cat(answers), logits.shape[1]),
        error=100 * error,
        threshold=float(entropy.quantile(1 - error)),
        samples=samples,
        labelled=labelled == {True},
    )


def lost(reference: Reference, bench: Bench, tensors: Tensors, rows: slice = slice(None)) -> Tensor:
    """Return how much probability each canary, or each of some, has lost under these tensors."""
    device = bench.backbone.device
    canaries = unpack(reference.canaries[rows], bench.backbone.dtype or torch.float32).to(device)
    logits = _answers(bench, tensors, canaries, reference.own_statistics)
    answers, chances = reference.answers[rows].to(device), reference.chances[rows].to(device)
    return lost_probability(logits, answers, chances).cpu()


class Spread:
    """The standard deviation of each value of a sample, accumulated batch by batch."""

    def __init__(self) -> None:
        self.samples = 0
        self.sum = self.squares = torch.zeros(())

    def add(self, x: Tensor) -> None:
        """Take in samples `[B, ...]`."""
        x = x.double().cpu()
        self.samples += len(x)
        self.sum, self.squares = self.sum + x.sum(dim=0), self.squares + x.square().sum(dim=0)

    def take(self) -> Tensor:
        """The deviations, in the shape of a sample."""
        mean = self.sum / self.samples
        return (self.squares / self.samples - mean.square()).clamp(min=0).sqrt().float()


def _answers(bench: Bench, tensors: Tensors, x: Tensor, own_statistics: bool) -> Tensor:
    return bench.ask_together(tensors, x) if own_statistics else bench.answer(tensors, x)


def _needs_own_statistics(
    method: Method, bench: Bench, canaries: Tensor, answers: Tensor, tolerance: float
) -> bool:
    """Whether a harmless change of the sensor would look like damage under the running statistics.

    Half the contrast, learned half-way, is harmless. If source samples are then answered wrongly, as with plain
    BatchNorm, they must be checked under their own statistics instead. Methods that use the batch's statistics always
    need this.
    """
    backbone = method.backbone
    if not method.batch_free:
        return True
    if not any(name.endswith("running_mean") for name in backbone.source) or len(canaries) < 2:
        return False
    draft = Draft(backbone)
    faded = canaries.mean() + (canaries - canaries.mean()) / 2
    with torch.no_grad():
        draft.predict(faded, momentum=0.5)
    device = backbone.device
    source = bench.answer(backbone.source, canaries)
    chances = source.float().softmax(dim=1).gather(1, answers.to(device)[:, None])[:, 0]
    moved = bench.answer(draft.tensors, canaries)
    return float(lost_probability(moved, answers.to(device), chances).mean()) > tolerance / 2


def _quantiles(entropy: Tensor, answers: Tensor, classes: int) -> Tensor:
    points = torch.linspace(0, 1, QUANTILES)
    everything = entropy.quantile(points)
    rows = [entropy[answers == label] for label in range(classes)]
    own = [row.quantile(points) if len(row) >= PER_CLASS else everything for row in rows]
    return torch.stack([*own, everything])


def inputs_and_labels(batch: Any) -> tuple[Tensor, Tensor | None]:
    """Split a batch of a source into inputs and, if it has them, labels."""
    if isinstance(batch, Tensor):
        return batch, None
    if isinstance(batch, tuple | list) and batch and isinstance(batch[0], Tensor):
        if len(batch) == 1:
            return batch[0], None
        if len(batch) == 2:
            labels = torch.as_tensor(batch[1]).cpu()
            if labels.shape != batch[0].shape[:1]:
                raise ValueError(
                    f"source has a batch of {len(batch[0])} inputs with labels of shape {tuple(labels.shape)}"
                )
            return batch[0], labels
    raise TypeError(f"source must yield batches x or (x, y), got {type(batch).__name__}")


def _read(path: Path, backbone: Backbone) -> Reference:
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        reference = Reference.of_state(load_plain(path))
    except Exception as error:  # a damaged or crafted file can raise anything
        raise ValueError(f"{path} is not a file that watch.reference.save wrote: {error}") from None
    if reference.fingerprint != backbone.fingerprint:
        raise ValueError(
            f"{path} belongs to another model: its fingerprint is {reference.fingerprint!s:.40}, this model's is "
            f"{backbone.fingerprint}. Give the source samples instead"
        )
    return reference
