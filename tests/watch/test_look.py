"""One look at a memory that nothing good is learned from."""

import pytest
import torch

from note_tta.memory import FIFO
from note_tta.watch.look import _poor_memory
from note_tta.watch.tally import Tally


@pytest.mark.parametrize(("share", "samples"), [(1.0, 1024), (0.6, 1792), (0.4, None)])
def test_the_more_copies_the_sooner_the_alarm(share, samples):
    """Looks of 256 samples each at a memory of so many copies; there are no copies in the rest."""
    tally, memory = Tally(), FIFO(50)
    torch.manual_seed(0)
    for row in range(50):
        memory.add(torch.ones(8) if row < 50 * share else torch.randn(8), 0)
    for look in range(1, 10):
        copied = _poor_memory(memory, tally, None, 1024, {"watched": 256.0, "classes": 2.0})[0]
        assert (copied.strain >= 1) == (samples is not None and 256 * look >= samples)
