"""A fleet of 200 streams, most of them spilled, killed again and again."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import torch

from note_tta.fleet import Fleet

from . import small

STREAMS, RESIDENT, ROWS = 200, 20, 400


def whole_after(kills: int, folder: Path, every: int) -> int:
    """After how many kills every stream was whole, and at most `every` updates behind what it had told.

    The process forks, so it must not have computed on more than one thread.

    Args:
        kills: How often the process is killed, each time within a second after its first call.
        folder: Where the streams are kept.
        every: The fleet's `checkpoint_every`.
    """
    chance, before, whole = random.Random(every), dict[str, int](), 0
    for trial in range(kills):
        told = _told_before_a_kill(folder, every, trial, chance.random())
        left = _left(folder, trial)
        late = [made - left.get(name, 0) for name, made in (before | told).items()]
        whole += max(late) <= every
        before = left
    if len(before) < STREAMS or sum(before.values()) < 10 * kills:
        raise RuntimeError("the kills came before there was anything to lose")
    return whole


def _told_before_a_kill(folder: Path, every: int, trial: int, moment: float) -> dict[str, int]:
    """The updates that streams said to have made before their process was killed."""
    hear, say = os.pipe()
    child = os.fork()
    if child == 0:
        _live(folder, every, trial, say)
    os.close(say)
    with os.fdopen(hear) as lines:
        first = lines.readline()
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        told = [first, *lines]
    os.waitpid(child, 0)
    made: dict[str, int] = {}
    for line in told:
        made |= json.loads(line) if line.endswith("\n") else {}
    return made


def _live(folder: Path, every: int, trial: int, say: int) -> None:
    """Run streams until somebody kills the process; after each call, tell how many updates they have made."""
    fleet = Fleet(small.network(), small.method, RESIDENT, folder, every)
    for call in range(10_000):
        generator = torch.Generator().manual_seed(10_000 * trial + call)
        ids = torch.randint(STREAMS, (ROWS,), generator=generator).tolist()
        fleet(ids, small.images(ROWS, call))
        made = {str(name): fleet.counters(name)["updates"] for name in set(ids)}
        os.write(say, json.dumps(made).encode() + b"\n")


def _left(folder: Path, trial: int) -> dict[str, int]:
    """The updates of every stream in the folder; each is read, and a tenth of them are loaded into a method."""
    with Fleet(small.network(), small.method, spill=folder) as fleet:
        states = {str(name): fleet.state_dict(name) for name in fleet}
    for state in list(states.values())[trial % 10 :: 10]:
        small.method(small.network()).load_state_dict(state)
    return {name: state["counters"]["updates"] for name, state in states.items()}
