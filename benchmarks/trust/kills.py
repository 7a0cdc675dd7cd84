"""Kill -9 at random moments, again and again; in the end there must be what an undisturbed run gives.

python -m benchmarks.trust.kills --kills 50
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .common import RESULTS, TREE, write
from .jobs import JOBS, READY, Job

PATIENCE = 900
"""Seconds after which an undisturbed run counts as hanging."""


def start(job: Job, folder: Path) -> subprocess.Popen[str]:
    """Start a job and wait until its imports are done, so that a kill finds it at work."""
    code, *arguments = job.command(folder)
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=TREE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == READY:
            break
    return process


def finish(job: Job, folder: Path) -> float:
    """Run a job to its end; the seconds of work."""
    process, begun = start(job, folder), time.monotonic()
    _, errors = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise RuntimeError(f"{job.name} ended with {process.returncode}: {errors[-2000:]}")
    return time.monotonic() - begun


def storm(job: Job, kills: int, rng: random.Random) -> dict[str, Any]:
    """Run a job undisturbed, then kill it `kills` times and let it end.

    After every kill each file that is there under its final name is read; one that cannot be raises. A run
    that ended before its kill came does not count: its outcome is compared, and the next begins anew.
    """
    with tempfile.TemporaryDirectory() as name:
        calm, wild = Path(name, "calm"), Path(name, "wild-0")
        job.prepare(calm)
        seconds = finish(job, calm)
        job.prepare(wild)
        done, rounds, whole = 0, 0, True
        while done < kills:
            process, begun = start(job, wild), time.monotonic()
            try:
                process.communicate(timeout=rng.uniform(0, seconds))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()  # not for the end of its pipes: a worker holds them for another moment
                done, whole = done + 1, False
                job.check(wild)
                continue
            if process.returncode:
                raise RuntimeError(f"{job.name}: a rerun ended with {process.returncode}")
            same = digest(job.outcome(wild)) == digest(job.outcome(calm))
            if not same:
                raise RuntimeError(f"{job.name}: another outcome after {done} kills")
            if whole:  # the first run was slower: let the next kill come in time
                seconds = min(seconds, time.monotonic() - begun)
            rounds, whole = rounds + 1, True
            wild = Path(name, f"wild-{rounds}")
            job.prepare(wild)
        finish(job, wild)
        job.check(wild)
        left = sorted(path.name for path in wild.rglob("*.part"))
        return {
            "kills": done,
            "identical": digest(job.outcome(wild)) == digest(job.outcome(calm)),
            "left_half_written": len(left),
            "seconds_undisturbed": round(seconds, 2),
        }


def digest(outcome: Any) -> str:
    """A digest of plain values and bytes."""
    plain = json.dumps(outcome, sort_keys=True, default=lambda value: hashlib.sha256(value).hexdigest())
    return hashlib.sha256(plain.encode()).hexdigest()


def main() -> int:
    """Storm every job; the exit code is 1 where an outcome differs."""
    parser = argparse.ArgumentParser(prog="benchmarks.trust.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=54, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=[job.name for job in JOBS], help="these jobs alone")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    known = RESULTS / "kills.json"
    rows = json.loads(known.read_text())["jobs"] if arguments.only and known.exists() else {}
    identical = True
    for job in JOBS:
        if arguments.only and job.name not in arguments.only:
            continue
        rows[job.name] = storm(job, -(-arguments.kills // len(JOBS)), rng)
        print(f"{job.name}: {rows[job.name]}", file=sys.stderr, flush=True)
        identical = all(row["identical"] and not row["left_half_written"] for row in rows.values())
        total = sum(row["kills"] for row in rows.values())
        write("kills", {"kills": total, "all_identical": identical, "jobs": rows, "seed": arguments.seed})
    return int(not identical)


if __name__ == "__main__":
    sys.exit(main())
