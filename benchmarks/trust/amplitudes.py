"""How near real samples come to NOTE's bound of amplitude, on every dataset whose data is there.

    NOTE_TTA_DATA=... python -m benchmarks.trust.amplitudes

A network of random weights stands for each dataset; its first norm layer is set by the training data. On the
digits the trained one is there.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

import note_tta as tta
from note_tta.data import DATASETS, Dataset, MissingData, open_dataset
from note_tta.methods.norm import batch_norms
from note_tta.methods.reach import source_extent
from note_tta.models import build_model

from .common import source_model, write

SAMPLES = 1000
REACH = tta.NOTE.__init__.__kwdefaults__["reach"]


def ratios(model: nn.Module, x: Tensor) -> Tensor:
    """How far each sample reaches at the first norm layer, in units of what the source had in the channel."""
    layer, found = next(iter(batch_norms(model).values())), []
    hook = layer.register_forward_pre_hook(
        lambda _, args: found.append(args[0].flatten(2) if args[0].ndim > 2 else args[0][..., None])
    )
    with torch.no_grad():
        model(x)
    hook.remove()
    return (found[0].double().square().mean(dim=2).sqrt() / source_extent(layer)).amax(dim=1)


def calibrated(data: Dataset) -> nn.Module:
    """A narrow network whose first norm layer has seen training data."""
    torch.manual_seed(0)
    name = DATASETS[data.name].network
    model = build_model(name, len(data.classes), in_channels=data.input_shape[0], width=8)
    layer, train = next(iter(batch_norms(model).values())), data.domain("train")
    layer.momentum = None
    model.train()
    with torch.no_grad():
        for part in torch.randperm(len(train))[: 2 * SAMPLES].split(250):
            model(train.inputs(part))
    return model.eval()


def main() -> int:
    """Measure every dataset that is there."""
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}
    for name in DATASETS:
        try:
            data = open_dataset(name)
            model = source_model("iabn") if name == "digits" else calibrated(data)
            largest, beyond = {}, 0
            for target in data.targets:
                domain = data.domain(target)
                chosen = torch.randperm(len(domain), generator=torch.Generator().manual_seed(0))[:SAMPLES]
                found = torch.cat([ratios(model, domain.inputs(part)) for part in chosen.split(250)])
                largest[target] = float(found.max())
                beyond += int((found > REACH).sum())
        except MissingData as error:
            print(error, file=sys.stderr)
            continue
        top = max(largest, key=largest.__getitem__)
        rows[name] = {
            "domains": len(largest),
            "largest": round(largest[top], 2),
            "in": top,
            "beyond": beyond,
        }
    unlearned = sum(row["beyond"] for row in rows.values())
    write("amplitudes", {"datasets": rows, "reach": REACH, "unlearned": unlearned, "samples": SAMPLES})
    return 0


if __name__ == "__main__":
    sys.exit(main())
