"""The metrics of the service, for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Metrics:
    """Counters of one application, not per stream, since there may be thousands."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.refused = Counter(
            "note_tta_refused_samples", "Requests for samples that were refused, by status.", ["status"],
            registry=self.registry,
        )  # fmt: skip
        self.samples = Counter(
            "note_tta_samples", "New samples that were answered; repeated ones are not counted again.",
            registry=self.registry,
        )  # fmt: skip
        self.answer_seconds = Histogram(
            "note_tta_answer_seconds", "From a request's last byte to its answer.", buckets=_SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self.call_seconds = Histogram(
            "note_tta_call_seconds", "One call of the fleet.", buckets=_SECONDS, registry=self.registry
        )
        self.call_samples = Histogram(
            "note_tta_call_samples", "Samples of one call of the fleet.", buckets=(1, 2, 4, 8, 16, 32, 64, 128),
            registry=self.registry,
        )  # fmt: skip
        self.streams = Gauge("note_tta_streams", "Streams by state.", ["state"], registry=self.registry)
        self.waiting = Gauge("note_tta_waiting_samples", "Samples that wait.", registry=self.registry)

    def call(self, results: Sequence[Any], seconds: float) -> None:
        """Count what requests that were answered together have brought: new samples, if there were any."""
        answers = [result for result in results if not isinstance(result, Exception)]
        samples = sum(len(answer["classes"]) - answer["repeated"] for answer in answers)
        if samples:
            self.samples.inc(samples)
            self.call_samples.observe(samples)
            self.call_seconds.observe(seconds)

    def text(self, states: dict[str, int], waiting: int) -> bytes:
        """All metrics as text."""
        self.streams.clear()
        for state, count in states.items():
            self.streams.labels(state).set(count)
        self.waiting.set(waiting)
        return generate_latest(self.registry)
