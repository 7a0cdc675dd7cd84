import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def data_root() -> Path:
    """The folder of published datasets, for tests marked `real_data`."""
    root = os.environ.get("NOTE_TTA_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("NOTE_TTA_DATA does not point at a folder of published datasets")
    return Path(root)
