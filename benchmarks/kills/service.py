"""Services to be killed: `python -m benchmarks.kills.service STORE PORT` starts one for each line it reads.

Each is a process of its own, forked so that torch is imported once, with what it imports at the first update; its id
is printed.
"""

from __future__ import annotations

import os
import signal
import sys

import torch

from note_tta.fleet import Fleet
from note_tta.serve import Limits, serve

from . import small


def run(store: str, port: int) -> None:
    """Serve until the process is killed."""
    fleet = Fleet(small.network(), small.method, max_resident=8, spill=store)
    serve(fleet, port=port, limits=Limits(rate=1e6))


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    torch.set_num_threads(1)
    small.method(small.network())(small.images(8, 0))
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                run(sys.argv[1], int(sys.argv[2]))
            finally:
                os._exit(0)
        print(child, flush=True)
