"""Kill -9 in the middle of work: a smaller edition of `benchmarks.trust.kills`.

Training and grids of runs are killed in the tests of `train` and of `note-tta reproduce`.
"""

import random

import pytest

from benchmarks.trust.jobs import JOBS
from benchmarks.trust.kills import digest, storm

ELSEWHERE = {"train", "reproduce"}


@pytest.mark.slow
@pytest.mark.parametrize("job", [job for job in JOBS if job.name not in ELSEWHERE], ids=lambda job: job.name)
def test_a_killed_run_is_finished_by_the_next_as_if_never_disturbed(job):
    row = storm(job, 1, random.Random(5))
    assert row["kills"] == 1 and row["identical"] and row["left_half_written"] == 0


def test_digests_tell_outcomes_apart():
    assert digest({"a": b"1"}) == digest({"a": b"1"}) != digest({"a": b"2"})
    assert digest({"error": 1.0}) != digest({"error": 1.5})
