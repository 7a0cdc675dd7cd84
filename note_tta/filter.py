"""Correlation is information: answers filtered by what came before."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .methods.method import Method
from .methods.wrapper import Wrapper

Floats = npt.NDArray[np.float64]

STAY = np.array([0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995])[:, None, None]
"""How likely the next sample is of the same class, one hypothesis each; 0 is a shuffled stream."""
TRUST = np.array([0.5, 0.7, 1.0])[None, :, None]
"""What the model's log-probabilities are multiplied by, one hypothesis each; 1 takes its confidence as it is."""
PRIOR = np.where(STAY[:, :, 0] > 0, -5.0, 0.0) + np.where(TRUST[:, :, 0] < 1, -2.0, 0.0)
"""Log odds of each hypothesis before anything is known."""
EVIDENCE_KEPT, SHARES_KEPT, SHARES_START = 0.998, 0.9998, 300.0
"""How much of the evidence and of the classes' shares stays at a sample; the samples that equal shares weigh as."""


class Runs:
    """A Bayesian filter over the classes, sure of neither how long runs are nor how far to trust the model.

    For each stay probability s and trust T it keeps a posterior q over the classes, and for each T the shares π
    of the classes among all samples. With the model's log-probabilities l::

        p = softmax(T · l);  r = p / π;  predicted = s · q + (1 − s) · π;  evidence = Σ predicted · r
        q ← predicted · r / evidence;  log w ← 0.998 · log w + log evidence;  π takes in p
        answer = log Σ softmax(log w + prior) · q

    At s = 0 and T = 1, q is the model's own answer. Dividing by π keeps a class that is merely predicted too often
    from passing for a long run. The constants are a start: they are not chosen on validation data yet.
    """

    def __init__(self) -> None:
        self._start(0)

    def _start(self, classes: int) -> None:
        self.posterior = np.full((STAY.size, TRUST.size, classes), 1 / max(classes, 1))
        self.counts = np.full((1, TRUST.size, classes), SHARES_START / max(classes, 1))
        self.evidence = np.zeros((STAY.size, TRUST.size))

    def __call__(self, logits: Tensor) -> Tensor:
        """Filter rows `[B, K]` in the order in which they came; a row that is not finite leaves no trace."""
        if self.posterior.shape[2] not in (0, logits.shape[1]):
            raise ValueError(f"the stream has {self.posterior.shape[2]} classes, got {logits.shape[1]}")
        rows = logits.detach().to("cpu", torch.float64, copy=True).numpy()
        for row in rows:
            if np.isfinite(row).all():
                row[:] = self._step(row)
        return torch.from_numpy(rows).to(logits)

    def _step(self, row: Floats) -> Floats:
        if self.posterior.shape[2] == 0:
            self._start(len(row))
        p = np.exp(TRUST * (row - row.max()))
        p /= p.sum(2, keepdims=True)
        shares = self.counts / self.counts.sum(2, keepdims=True)
        joint = (STAY * self.posterior + (1 - STAY) * shares) * (p / shares)
        evidence = joint.sum(2, keepdims=True)
        self.posterior = joint / evidence
        self.evidence = EVIDENCE_KEPT * self.evidence + np.log(evidence[:, :, 0])
        self.counts = SHARES_KEPT * self.counts + p
        answer: Floats = (self.weights()[:, :, None] * self.posterior).sum((0, 1))
        return np.log(np.maximum(answer, 1e-300))

    def weights(self) -> Floats:
        """How much each hypothesis counts."""
        odds = self.evidence + PRIOR
        odds = np.exp(odds - odds.max())
        return np.asarray(odds / odds.sum())

    def state_dict(self) -> dict[str, Any]:
        """The state as tensors."""
        return {name: torch.from_numpy(array.copy()) for name, array in vars(self).items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state, of any number of classes."""
        fresh = Runs()
        fresh._start(state["posterior"].shape[-1])
        for name, array in vars(fresh).items():
            given = state[name].detach().to("cpu", torch.float64).numpy().copy()
            if given.shape != array.shape:
                raise ValueError(f"its {name} has the shape {given.shape}")
            if name != "evidence" and not (given > 0).all():
                raise ValueError(f"its {name} is not positive")
            setattr(self, name, given)

    def __repr__(self) -> str:
        weights = self.weights()
        if weights[0].sum() > 0.5:
            return "no runs found: answers pass as they are"
        stay = float((weights[1:].sum(1) * STAY[1:, 0, 0]).sum() / weights[1:].sum())
        trust = float(TRUST[0, weights[1:].sum(0).argmax(), 0])
        words = {0.5: "halved", 0.7: "lowered", 1.0: "taken as it is"}[trust]
        return f"runs of about {1 / (1 - stay):.2g}, confidence {words}"


class TemporalFilter(Wrapper):
    """A method whose answers are filtered by what came before.

    Labels that come in runs are evidence about the next label; see `Runs`. On a shuffled stream the answers are the
    inner method's. There is nothing to set. What the inner method stores and learns from are its own answers,
    unfiltered. While paused, each call is filtered from the state at the pause, and the filter keeps nothing of it.

    Args:
        method: Any method.

    Example:
        >>> import note_tta as tta
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
        >>> method = tta.TemporalFilter(tta.Source(model))
        >>> method(torch.rand(5, 1, 2, 2)).exp().sum(1).round(decimals=3)
        tensor([1., 1., 1., 1., 1.])
        >>> print(method)
        TemporalFilter: no runs found: answers pass as they are
          Source(Sequential)
          ...
    """

    uses_order = True

    def __init__(self, method: Method) -> None:
        super().__init__(method)
        self.runs = self.part("runs", Runs())

    def after(self, x: Tensor, logits: Tensor) -> Tensor:
        """The inner method's answers, filtered."""
        return (copy.deepcopy(self.runs) if self.paused else self.runs)(logits)

    def __repr__(self) -> str:
        inside = "\n".join(f"  {line}" for line in repr(self.method).splitlines())
        return f"{type(self).__name__}: {self.runs!r}\n{inside}"
