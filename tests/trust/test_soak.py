"""A long stream in bounded memory."""

import pytest

from benchmarks.trust.soak import LIMIT_MB, soak


@pytest.mark.slow
def test_fifty_thousand_samples_do_not_grow_the_process():
    figures = soak(50_000, warm_up=20_000, marks=10)
    assert figures["samples"] == 49_984 and figures["updates"] == 781
    assert figures["growth_mb"] < LIMIT_MB
