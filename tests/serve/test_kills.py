"""Kill -9 of the server under load: each sample is learned from exactly once."""

from pathlib import Path

import pytest

from benchmarks.kills import serve

KILLS = 8


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="it needs /proc to see that a process is gone")
def test_kills_leave_every_stream_as_if_undisturbed(tmp_path):
    """Eight kills; `python -m benchmarks.kills` makes thirty, and its outcome is in `results/benchmarks`."""
    assert serve.undisturbed_after(KILLS, tmp_path) == serve.STREAMS
