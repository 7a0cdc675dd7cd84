"""The temporal filter: it corrects answers by the answers before them, if the order of the stream is informative."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from textwrap import indent
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .methods.method import Method
from .methods.wrapper import Wrapper

__all__ = ["TemporalFilter"]

Floats = npt.NDArray[np.float64]
ARRAYS = ("belief", "usual", "expected", "weights")
NUMBERS = ("samples", "last", "settled", "changes")
CHUNK = 64
"""How many rows are converted to probabilities at a time."""
WORDS = {0.125: "cut to an eighth", 0.25: "quartered", 0.5: "halved", 1.0: "taken as it is", 2.0: "doubled"}


class Runs:
    """A Bayesian filter over the classes of a stream whose labels may come in runs.

    A run has a class and a stay probability s, both drawn when it begins. Each sample then ends the run with
    probability 1 - s. The filter does not know how far it can trust the model's confidence, so it runs once per trust
    T. With p = softmax(T · logits) and r = p / usual, over stay probabilities and classes::

        predicted = s · belief + P(the last run has ended) · P(a new run is of this kind)
        evidence  = Σ predicted · r
        belief    = predicted · r / evidence
        gain      = evidence / Σ expected · r
        answer    = Σ_T weight(T) · belief(T) + (1 - Σ weight) · softmax(logits)

    `expected` is the running mean of `predicted`, including the prediction for this sample. If the order of a stream
    carries no information, no prediction is better than the mean of all predictions, for any model (Jensen's
    inequality). Then the gain is less than 1 on average, and the answers become those of the model. The weights follow
    Bayes' rule, in which the model's own answer has the gain 1. With a small probability per sample the stream changes
    its character, and the weights start again.

    `usual` is the running mean of p. Without it, a class that the model predicts too often would look like a long run.
    A sample has less weight in this mean, in proportion, the more its class was expected. So a class that really is
    more frequent than others is not mistaken for one that the model prefers.

    The defaults were chosen on validation data (docs/filter.md), and `TemporalFilter` always uses them.

    Args:
        stay: Stay probabilities of short, medium and long runs.
        brevity: How much more often short runs begin than long ones: in proportion to (1 - s) to this power.
        trust: Factors of the logits; 1 must be among them.
        prior: The prior probability that the order is informative.
        change: The probability per sample that the stream changes its character.
        lately: The maximum number of samples in the mean `expected`.
        memory: The maximum number of samples in the mean `usual`.
        start: The weight, in samples, of the initial `usual`, in which all classes are equal.
        balance: How much less weight an expected class has in `usual`: 0 means no less, 1 means in proportion.

    Example:
        Ten classes in runs of 50, and a confident model that is wrong on about two samples in nine:

        >>> labels = torch.arange(2000) // 50 % 10
        >>> generator = torch.Generator().manual_seed(0)
        >>> wrong = torch.rand(2000, generator=generator) < 0.25
        >>> named = torch.where(wrong, torch.randint(10, (2000,), generator=generator), labels)
        >>> runs = Runs()
        >>> answers = runs(5.0 * torch.eye(10)[named])
        >>> int((named != labels).sum()), int((answers.argmax(1) != labels).sum())
        (458, 133)
        >>> runs
        runs of about 47, confidence halved
    """

    def __init__(
        self,
        *,
        stay: Sequence[float] = (0.5, 0.9, 0.99),
        brevity: float = 0.5,
        trust: Sequence[float] = (0.125, 0.25, 0.5, 1.0, 2.0),
        prior: float = 0.002,
        change: float = 0.001,
        lately: int = 300,
        memory: int = 5000,
        start: int = 60,
        balance: float = 1.0,
    ) -> None:
        self._stay, self._leave = np.array(stay)[:, None, None], 1 - np.array(stay)
        self._kinds = self._leave**brevity / (self._leave**brevity).sum()
        self._trust, self._own = np.array(trust), list(trust).index(1.0)
        self._prior = np.append(np.full(len(trust), prior / len(trust)), 1 - prior)
        self._change, self._lately, self._memory = change, lately, memory
        self._start_weighs, self._balance = start, balance
        self._start(0)

    def _start(self, classes: int) -> None:
        trusts, share = len(self._trust), 1 / max(classes, 1)
        self.samples = 0
        self._begin = self._kinds[:, None, None] * share
        self.belief = self._begin.repeat(trusts, 1).repeat(classes, 2)
        self.usual = np.full((trusts, classes), share)
        self.expected = self.usual.copy()
        self.weights = self._prior.copy()
        self.changes, self.last, self.settled = 0.0, 0, 0

    def __call__(self, logits: Tensor) -> Tensor:
        """Filter rows in their order. A row that is not finite is returned unchanged and has no effect.

        Args:
            logits: The model's logits `[B, K]`.

        Returns:
            Log-probabilities `[B, K]`, with the dtype and device of `logits`.

        Raises:
            ValueError: The number of classes has changed.
        """
        if self.samples and logits.shape[1] != self.belief.shape[2]:
            raise ValueError(
                f"the stream has {self.belief.shape[2]} classes, got logits of {logits.shape[1]} classes"
            )
        rows = logits.detach().to("cpu", torch.float64, copy=True).numpy()
        finite = np.flatnonzero(np.isfinite(rows).all(1))
        for start in range(0, len(finite), CHUNK):
            here = finite[start : start + CHUNK]
            rows[here] = self._filtered(rows[here])
        return torch.from_numpy(rows).to(logits)

    def _filtered(self, rows: Floats) -> Floats:
        if not self.samples:
            self._start(rows.shape[1])
        p = np.exp(self._trust[:, None] * (rows - rows.max(1, keepdims=True))[:, None])
        p /= p.sum(2, keepdims=True)
        answers = np.stack([self._step(each) for each in p])
        return np.log(np.maximum(answers, 1e-300))

    def _step(self, p: Floats) -> Floats:
        classes, total = p.shape[1], np.add.reduce
        r = p / self.usual

        belief = self.belief * self._stay
        belief += self._begin * (self._leave @ total(self.belief, 2))[:, None]
        predicted = total(belief, 0)
        evidence = total(predicted * r, 1)
        told = r / evidence[:, None]
        belief *= told
        now = predicted * told

        _move(self.expected, predicted, max(3 / (6 + self.samples), 1 / self._lately))
        weights = self.weights.copy()
        weights[:-1] *= evidence / total(self.expected * r, 1)
        weights /= total(weights)
        answer: Floats = weights[:-1] @ now + weights[-1] * p[self._own]
        _move(weights, self._prior, self._change)

        rarity = (total(now / self.expected, 1) / classes) ** self._balance
        usual = rarity[:, None] * p + 0.02 / classes
        _move(self.usual, usual, max(1 / (self._start_weighs + 1 + self.samples), 1 / self._memory))

        named = int(answer.argmax())
        changed = named == self.last != self.settled  # a class that is predicted twice in a row begins a run
        self.changes += (changed - self.changes) * max(1 / (1 + self.samples), 1 / self._memory)
        self.last, self.settled = named, named if changed else self.settled
        self.belief, self.weights = belief, weights  # last, so that an interrupt leaves them whole
        self.samples += 1
        return answer

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain values."""
        arrays = {name: torch.from_numpy(getattr(self, name).copy()) for name in ARRAYS}
        return {name: getattr(self, name) for name in NUMBERS} | arrays

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state, with any number of classes; one that does not fit is refused."""
        fresh = copy.copy(self)
        fresh._start(state["belief"].shape[-1])
        for name in ARRAYS:
            array = state[name].detach().to("cpu", torch.float64).numpy().copy()
            if array.shape != getattr(fresh, name).shape:
                raise ValueError(f"its {name} has the shape {array.shape}")
            if not (array >= 0).all() or (name in ("usual", "expected") and not array.all()):
                raise ValueError(f"its {name} is not positive")
            setattr(fresh, name, array)
        for name in NUMBERS:
            if type(state[name]) is not type(getattr(fresh, name)) or not 0 <= state[name] < 2**62:
                raise ValueError(f"its {name} must be a number from 0, got {state[name]!r:.40}")
            setattr(fresh, name, state[name])
        if abs(fresh.weights.sum() - 1) > 1e-6:
            raise ValueError(f"its weights sum to {fresh.weights.sum()}, not to 1")
        self.__dict__.update(vars(fresh))

    def __repr__(self) -> str:
        if self.weights[-1] > 0.5:
            return "the order is not informative: answers are not changed"
        most = int(self.weights[:-1].argmax())
        trust, length = float(self._trust[most]), 1 / max(self.changes, 1 / self._memory)
        return f"runs of about {float(f'{length:.2g}'):g}, confidence {WORDS.get(trust, f'times {trust:g}')}"


def _move(mean: Floats, value: Floats, rate: float) -> None:
    """Move a running mean by `rate` towards a value."""
    mean *= 1 - rate
    mean += rate * value


class TemporalFilter(Wrapper):
    """A wrapper that corrects answers by the answers before them, if the order of the stream is informative.

    If labels come in runs, past answers are evidence about the next label. `Runs` weighs this evidence against the
    model's own answer. It learns how long runs are, how far the model's confidence can be trusted, and whether the
    order is informative. On a shuffled stream the answers are those of the inner method. There are no settings. The
    inner method stores and learns from its own, unfiltered answers.

    While the method is paused, each call starts from the filter's state at the pause and does not change it.

    Args:
        method: Any method.

    Example:
        >>> import note_tta as tta
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
        >>> method = tta.TemporalFilter(tta.Source(model))
        >>> method(torch.rand(5, 1, 2, 2)).shape
        torch.Size([5, 3])
        >>> print(method)
        TemporalFilter: the order is not informative: answers are not changed
          Source(Sequential)
          ...
    """

    uses_order = True

    def __init__(self, method: Method) -> None:
        super().__init__(method)
        self.runs = self.part("runs", Runs())

    def after(self, x: Tensor, logits: Tensor) -> Tensor:
        """Filter the inner method's answers."""
        return (copy.deepcopy(self.runs) if self.paused else self.runs)(logits)

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.runs!r}\n{indent(repr(self.method), '  ')}"
