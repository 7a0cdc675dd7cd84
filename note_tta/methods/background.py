"""The thread that computes an update: how many processors it uses, and how it gives way to the callers' threads."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading

import torch

from ..nn.native import torch_library

NICENESS = 10
"""A low priority, where 0 is usual and 19 the lowest."""


def give_way() -> None:
    """Give this thread a low priority, so that callers' threads go first (on Linux; elsewhere it stays as it is)."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            niceness = max(os.getpriority(os.PRIO_PROCESS, thread), NICENESS)
            os.setpriority(os.PRIO_PROCESS, thread, niceness)


def compute_alone() -> None:
    """Let torch compute in this thread only. The number of threads that other threads compute with stays.

    A thread that computes with OpenMP has a pool of threads of its own. While two pools have more threads than there
    are processors, GNU's OpenMP puts idle threads to sleep at once. Waking them delays every layer of every call.
    """
    torch.get_num_threads()  # otherwise torch sets the number at the first operation of this thread
    for name in ("omp_set_num_threads", "MKL_Set_Num_Threads_Local"):
        if function := getattr(torch_library(), name, None):
            function(1)


def step_aside(thread: int) -> None:
    """Let a thread, given by its native id, run only where a processor is idle; see `can_step_aside`."""
    _set_policy(thread, os.SCHED_IDLE)


def come_back(thread: int) -> None:
    """Let a thread that has stepped aside compete for processors again, since someone waits for it."""
    _set_policy(thread, os.SCHED_OTHER)


@functools.cache
def can_step_aside() -> bool:
    """Whether threads of this process may leave Linux's idle class again once they are in it.

    Without this right, a machine that others keep busy would hardly ever compute such a thread, and a call would wait
    for it.
    """
    if sys.platform != "linux":
        return False
    tried = threading.Event()
    trial = threading.Thread(target=tried.wait, daemon=True)
    trial.start()
    assert trial.native_id is not None
    try:
        step_aside(trial.native_id)
        come_back(trial.native_id)
    except OSError:
        return False
    finally:
        tried.set()
    return True


def _set_policy(thread: int, policy: int) -> None:
    os.sched_setscheduler(thread, policy, os.sched_param(0))
