import pytest
import torch

from benchmarks.trust.common import source_model
from benchmarks.trust.watch_streams import correlated, source_batches
from note_tta.watch import journal


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _stopped_clock(monkeypatch):
    """Events carry the time, so twins would differ by it."""
    monkeypatch.setattr(journal, "_now", lambda: "2026-01-01T00:00:00+00:00")


@pytest.fixture(scope="session")
def digits():
    return source_model("iabn")


@pytest.fixture(scope="session")
def source():
    return source_batches()


@pytest.fixture(scope="session")
def clean():
    """2,048 samples like the source's, in a correlated order, and their labels."""
    x, y = zip(*correlated("test", 2048, seed=11), strict=True)
    return torch.cat(x)[:2048], torch.cat(y)[:2048]


@pytest.fixture(scope="session")
def noise():
    return torch.rand(4096, 1, 32, 32, generator=torch.Generator().manual_seed(7))
