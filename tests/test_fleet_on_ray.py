"""The example with Ray: two workers, one of which is killed in mid-stream."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.ray
def test_no_stream_is_lost_with_its_worker(tmp_path):
    pytest.importorskip("ray", reason="the ray extra is not installed")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "fleet_on_ray.py")],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    killed = re.search(r"(\d+) of 24 streams moved, ([\d,]+) samples are sent again", done.stdout)
    moved, again = int(killed[1]), int(killed[2].replace(",", ""))
    assert 0 < moved < 24 and 0 < again <= moved * (64 + 8)  # an update, and the call that was under way
    assert "24 of 24 streams are as if nothing had happened, 200 samples each" in done.stdout
