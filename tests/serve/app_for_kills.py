"""Services to be killed: `python -m tests.serve.app_for_kills STORE PORT` starts one for each line it reads.

Each is a process of its own, forked so that torch is imported once; its id is printed.
"""

import os
import signal
import sys

import torch

import note_tta as tta
from note_tta.serve import serve
from note_tta.serve.limits import Limits
from tests.serve.helpers import small_model


def run(store: str, port: int) -> None:
    torch.set_num_threads(1)
    fleet = tta.Fleet(small_model(), lambda model: tta.NOTE(model, interval=16), spill=store, max_resident=8)
    serve(fleet, port=port, limits=Limits(rate=1e6))


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                run(sys.argv[1], int(sys.argv[2]))
            finally:
                os._exit(0)
        print(child, flush=True)
