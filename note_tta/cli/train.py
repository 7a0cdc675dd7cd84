"""`note-tta train`: a source model by the paper's recipe, or by your own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..names import DATASET_HOMES, check_known
from ._cells import parse_options
from ._options import DataRoot, Device, Width, find_device

if TYPE_CHECKING:
    from torch import nn

    from ..data import Dataset
    from ..train import Samples

app = typer.Typer(add_completion=False)


@app.command()
def train(
    dataset: Annotated[str, typer.Option(help=f"{' '.join(DATASET_HOMES)}.")],
    model: Annotated[
        str | None, typer.Option(help="Network, or module:function of your own; by default the paper's.")
    ] = None,
    norm: Annotated[
        str | None, typer.Option(help="Norm layers: bn, iabn, in, gn or ln; by default the network's own.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data; 0 only wraps --init.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate at the start.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples per step.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd or adam.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="L2 penalty.")] = None,
    schedule: Annotated[str | None, typer.Option(help="cosine or constant learning rate.")] = None,
    width: Width = None,
    alpha: Annotated[float, typer.Option(help="IABN's width of soft shrinkage.")] = 4.0,
    correction: Annotated[int, typer.Option(help="IABN's variance: 0 (paper) or 1 (authors' code).")] = 0,
    mean: Annotated[str | None, typer.Option(help="Input mean per channel: 0.49,0.48,0.45.")] = None,
    std: Annotated[str | None, typer.Option(help="Input standard deviation per channel.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, order and augmentation.")] = 0,
    init: Annotated[Path | None, typer.Option(help="Start from these weights (.pt or .safetensors).")] = None,
    new_head: Annotated[bool, typer.Option("--new-head", help="Initialise the last layer again.")] = False,
    teacher: Annotated[
        Path | None, typer.Option(help="Learn the answers of this checkpoint as well (distillation).")
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Do not start from the paper's ImageNet weights.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Checkpoint; by default under <data root>/models.")] = None,
    data_root: DataRoot = None,
    data_option: Annotated[
        list[str] | None, typer.Option(help="Option that changes the training data, such as source_seed=0.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Use only this many training and test samples.")] = None,
    threads: Annotated[int | None, typer.Option(help="Number of torch's threads.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that read data ahead.")] = 0,
    device: Device = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Delete the state or result of an earlier run.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print a line after each epoch.")] = False,
) -> None:
    """Train a source model with the paper's recipe for the dataset; options change parts of it.

    Give the same command again to continue a run that was killed. Examples:

        note-tta train --dataset hapt --norm iabn

        note-tta train --dataset cifar10 --model my_package:make_model --norm iabn

        note-tta train --dataset cifar10 --model resnet20 --norm iabn --init resnet20.pt --epochs 3 --lr 0.01

        torchrun --nproc-per-node 2 --no-python note-tta train --dataset cifar10
    """
    from dataclasses import replace

    import torch

    from ..checkpoint import load_checkpoint, load_weights
    from ..data import find_dataset, open_dataset, resolve_root
    from ..experiments.source_models import checkpoint_name
    from ..files import file_digest
    from ..models import MODELS, architecture, build_model
    from ..train import train as run_training

    if threads is not None:
        if threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        torch.set_num_threads(threads)
    data_options = parse_options(data_option or [], "--data-option")
    record, opened = find_dataset(dataset), open_dataset(dataset, data_root, **data_options)
    if without_effect := data_options.keys() - record.source_options:
        raise ValueError(f"{', '.join(without_effect)} does not change the training data of {dataset}")
    size: dict[str, Any] = {"epochs": epochs, "lr": lr, "batch_size": batch_size}
    steps: dict[str, Any] = {"optimizer": optimizer, "weight_decay": weight_decay, "schedule": schedule}
    recipe = replace(record.recipe, **_given(**size, **steps))
    if teacher is not None and recipe.epochs == 0:
        raise ValueError("--epochs 0 learns nothing, so --teacher has no effect: leave it out")
    if init is None and recipe.epochs == 0:
        raise ValueError("--epochs 0 keeps the initial weights as they are: give them with --init")
    if init is None and recipe.pretrained and not from_scratch:
        start = f"the paper's {dataset} model starts from ImageNet weights"
        raise ValueError(f"{start}: give them with --init, or use --from-scratch")
    name = model or record.network
    shape = _given(width=width, mean=_numbers("mean", mean), std=_numbers("std", std))
    torch.manual_seed(seed)
    if ":" in name:
        if shape:
            raise ValueError(f"--{next(iter(shape))} is for the networks of this package, not for {name}")
        network = _own_network(name, opened, norm, alpha, correction)
        norm = architecture(network)["norm"]
    else:
        check_known("model", name, MODELS, hint=", or module:function")
        norm = norm or MODELS[name].norms[0]
        iabn: dict[str, Any] = {"alpha": alpha, "correction": correction}
        inputs: dict[str, Any] = {"in_channels": opened.input_shape[0], **_inherited(init), **shape}
        network = build_model(name, len(opened.classes), norm=norm, **iabn, **inputs)
    facts: dict[str, Any] = {"dataset": dataset, "model": name, "norm": norm, "init": None}
    if data_options:
        facts["data_options"] = data_options
    if init is not None:
        load_weights(network, init, new_head=new_head)
        facts["init"] = {"file": init.name, "sha256": file_digest(init), "new_head": new_head}
    place = find_device(device)
    network.to(place)
    teacher_network = None
    if teacher is not None:
        needed: dict[str, Any] = {"num_classes": len(opened.classes), "in_channels": opened.input_shape[0]}
        teacher_network = load_checkpoint(teacher, **needed)[0].to(place)
        facts["teacher"] = {"file": teacher.name, "sha256": file_digest(teacher)}
    train_samples, test_samples = _domains(opened, samples)
    file = checkpoint_name(dataset, name, norm, seed, width, data_options)
    target = out or resolve_root(data_root) / "models" / file

    def on_epoch(done: int, measured: dict[str, float]) -> None:
        line = f"epoch {done}/{recipe.epochs}: loss {measured['loss']:.4f}, error {measured['error']:.2f} %"
        print(line, file=sys.stderr, flush=True)

    card = run_training(
        network,
        train_samples,
        recipe,
        out=target,
        test=test_samples,
        seed=seed,
        facts=facts,
        workers=workers,
        teacher=teacher_network,
        restart=restart,
        on_epoch=on_epoch if verbose else None,
    )
    if os.environ.get("RANK", "0") == "0":
        clean = f"clean error {card['clean_error']:.2f} % on {card['test_samples']} samples"
        print(f"{target}: {clean}, {recipe.epochs} epochs in {card['seconds']:.0f} s")


def _own_network(name: str, dataset: Dataset, norm: str | None, alpha: float, correction: int) -> nn.Module:
    """Make the network of `module:function`, with IABN if required, and try it on one sample."""
    import torch

    from ..models.user_model import count_classes, make_model
    from ..nn import convert_iabn

    if norm not in (None, "iabn"):
        raise ValueError(f"for your own network --norm must be iabn or left out, got {norm}")
    network = make_model(name)
    shape, classes = dataset.input_shape, len(dataset.classes)
    told = count_classes(name, network, torch.zeros(1, *shape))
    if told != classes:
        raise ValueError(f"{name} has {told} classes, but {dataset.name} has {classes}")
    if norm == "iabn":
        network = convert_iabn(network, alpha=alpha, correction=correction)
    # For the checkpoint's card; only the function itself can build the network again.
    facts = {"name": name, "num_classes": classes, "in_channels": shape[0], "width": 0, "mean": [], "std": []}
    network.architecture = facts  # type: ignore[assignment]
    return network


def _inherited(init: Path | None) -> dict[str, Any]:
    """Return the width and input normalisation of the initial checkpoint, if this library has written it."""
    from ..checkpoint import read_card

    if init is None or init.suffix != ".safetensors":
        return {}
    try:
        card = read_card(init)
    except ValueError:  # weights from another source
        return {}
    return {option: card["architecture"][option] for option in ("width", "mean", "std")}


def _given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def _numbers(option: str, text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--{option} takes numbers separated by commas, got {text!r}") from None


def _domains(dataset: Dataset, count: int | None) -> tuple[Samples, Samples]:
    from ..train import Subset

    whole = dataset.domain("train"), dataset.domain("test")
    if count is None:
        return whole
    if count < 1:
        raise ValueError(f"--samples must be at least 1, got {count}")
    return Subset(whole[0], min(count, len(whole[0]))), Subset(whole[1], min(count, len(whole[1])))
