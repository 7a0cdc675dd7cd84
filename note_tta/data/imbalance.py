"""Domains in which some classes are rarer than others, as in most streams outside of benchmarks."""

from __future__ import annotations

import math

import numpy as np

from .base import Dataset, Domain, Floats, IntArray, content_digest


def thin_out(dataset: Dataset, imbalance: float) -> Dataset:
    """The dataset with fewer samples from class to class in its targets; the source does not change.

    The first samples of each class are kept: all of the first class, a share of `1 / imbalance` of the last
    class, and in between a share that falls by the same factor from class to class. An imbalance of 1 changes nothing.
    """
    if isinstance(imbalance, bool) or not isinstance(imbalance, (int, float)):
        raise ValueError(f"imbalance must be a number, got {imbalance!r}")
    if not 1 <= imbalance < math.inf:
        raise ValueError(f"imbalance must be at least 1 and finite, got {imbalance}")
    if imbalance == 1:
        return dataset
    return dataset.with_targets(lambda domain: _thinned(domain, len(dataset.classes), imbalance))


def _thinned(domain: Domain, classes: int, imbalance: float) -> Domain:
    labels: IntArray = domain.labels.numpy()
    parts = []
    for label in range(classes):
        members = np.flatnonzero(labels == label)
        parts.append(members[: max(1, round(len(members) * imbalance ** (-label / max(1, classes - 1))))])
    kept = np.sort(np.concatenate(parts))

    def read(indices: IntArray) -> Floats:
        return domain.inputs(kept[indices]).numpy()

    def digest() -> str:
        return content_digest(np.frombuffer(domain.fingerprint.encode(), np.uint8), kept)

    return Domain(domain.name, labels[kept], read, digest, domain.origin)
