"""A service on a small model, as a process of its own: `python app_for_kills.py STORE PORT`."""

import sys

import torch

import note_tta as tta
from note_tta.serve import serve
from note_tta.serve.limits import Limits
from tests.serve.helpers import small_model

if __name__ == "__main__":
    torch.set_num_threads(1)
    fleet = tta.Fleet(small_model(), lambda model: tta.NOTE(model, interval=16), spill=sys.argv[1], max_resident=8)
    serve(fleet, port=int(sys.argv[2]), limits=Limits(rate=1e6))
