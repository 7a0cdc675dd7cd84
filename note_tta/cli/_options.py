"""Options that several subcommands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

Results = Annotated[Path, typer.Option(help="Folder of results.")]
Models = Annotated[Path | None, typer.Option(help="Folder of source models; by default <data root>/models.")]
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder of the data; by default $NOTE_TTA_DATA, else the user's cache folder."),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Option of the dataset, such as severity=3, or recorded=name for your own folder of frames."
    ),
]
Samples = Annotated[int | None, typer.Option(help="Use only the first so many samples of each domain.")]
Width = Annotated[int | None, typer.Option(help="Channels of the network's first stage.")]
Workers = Annotated[int | None, typer.Option(help="Number of processes; by default one per core.")]
Device = Annotated[str | None, typer.Option(help="Device for the models; by default CUDA if present.")]
Ray = Annotated[
    str | None,
    typer.Option(metavar="[ADDRESS]", help="Run on Ray: on this machine, or on the cluster at an address."),
]


def find_device(name: str | None) -> Any:
    """The device with this name; by default CUDA if present, else the CPU.

    Raises:
        ValueError: The device is not available.
    """
    import torch

    if name is None:
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"cannot compute on device {name!r}: {str(error).splitlines()[0]}") from None
