import pytest
import torch

import note_tta as tta
from note_tta.serve import Client

from .helpers import running, small_model


@pytest.fixture
def model():
    return small_model()


@pytest.fixture
def serving():
    return running


@pytest.fixture
def client(model):
    with running(tta.Fleet(model)) as address:
        yield Client(address)


@pytest.fixture
def x():
    """Samples as a camera sends them: in steps of 1/255."""
    return torch.randint(0, 256, (400, 1, 8, 8), generator=torch.Generator().manual_seed(1)).float() / 255
