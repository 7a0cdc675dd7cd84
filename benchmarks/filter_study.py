"""The choices of the temporal filter and of `tta.adapt`, made anew from validation data alone.

    python -m benchmarks.filter_study answers --work FOLDER     # hours: train, run, keep the logits
    python -m benchmarks.filter_study score --work FOLDER       # minutes: filter them, write the figures
    python -m benchmarks.filter_study vary --work FOLDER        # minutes: the same with settings changed
    python -m benchmarks.filter_study cost                      # seconds: time per sample, on a quiet machine

No target of a table is looked at: CIFAR has the four corruptions that the paper does not use, HAPT and
ExtraSensory have source users that the model of their fold was not trained on, digits are not in the paper.
What was computed stays in the folder, and a run that is started again goes on. CIFAR needs checkpoints
(`--checkpoints`), named as `note-tta train` names them.
"""

from __future__ import annotations

import argparse
import inspect
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import note_tta as tta
from note_tta.checkpoint import load_checkpoint
from note_tta.data import DATASETS, extrasensory, hapt, open_dataset, resolve_root
from note_tta.data.base import sensor_domain
from note_tta.data.cifar import read_clean
from note_tta.data.corruptions.engine import corrupt
from note_tta.data.corruptions.names import VALIDATION_CORRUPTIONS
from note_tta.data.windows import Scale, Windows, join
from note_tta.files import write_text
from note_tta.filter import Runs
from note_tta.models import build_model
from note_tta.provenance import provenance
from note_tta.train import train

OUT = Path("results/studies/filter.json")
FOLDS, EPOCHS, WIDTH = 3, 20, 8
LAYERS = ("bn", "swapped", "iabn")
"""Trained with BatchNorm, the same with IABN swapped in, trained with IABN."""
FEW = 2_000
"""Images of the CIFAR streams on which layers and warm starts are compared, which takes many runs."""
FEW_CORRUPTIONS = 2
VARIED = 2_000
"""Samples of each stream over which settings are varied."""

DATA = ("hapt", "extrasensory", "digits", f"cifar10-{FEW}", f"cifar100-{FEW}", "cifar10", "cifar100")

WARM = {f"note warm {n}": partial(tta.NOTE, warm_start=n) for n in (10, 30)}
METHODS: dict[str, Callable[[nn.Module], tta.Method]] = {
    "source": tta.Source,
    "note": tta.NOTE,
    "lame": tta.LAME,
    **WARM,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "as chosen": {},
    "one stay probability, 0.99": {"stay": (0.99,)},
    "short runs begin as often as long ones": {"brevity": 0.0},
    "confidence taken as it is": {"trust": (1.0,)},
    "prior 0.02": {"prior": 0.02},
    "predictions' mean over 5,000": {"lately": 5000},
    "start weighs 30": {"start": 30},
    "start weighs 100": {"start": 100},
    "start weighs 300": {"start": 300},
    "every sample weighs alike in `usual`": {"balance": 0.0},
    "an expected class weighs less in `usual`, by a square root": {"balance": 0.5},
    "an expected class weighs less in `usual`, by a power of 1.5": {"balance": 1.5},
    "`usual` stays even": {"start": 10**9},
}


@dataclass(frozen=True)
class Stream:
    """A validation stream in its own order, and the models that answer it."""

    data: str
    name: str
    x: Tensor
    labels: Tensor
    models: dict[str, Callable[[], nn.Module]]
    methods: tuple[str, ...] = tuple(METHODS)
    chronological: bool = False
    seed: int = 0

    def orders(self) -> dict[str, Tensor]:
        """The correlated order and a shuffled one."""
        here = torch.Generator().manual_seed(self.seed)
        return {
            "correlated": torch.arange(len(self.labels))
            if self.chronological
            else tta.streams.dirichlet(self.labels, 0.1, here),
            "shuffled": tta.streams.iid(self.labels, torch.Generator().manual_seed(self.seed)),
        }


def sensors(data: str, users: dict[str, Windows], work: Path) -> Iterator[Stream]:
    """The source users, each answered by the model of a fold that was trained on others."""
    kind = "minmax" if data == "hapt" else "standard"
    names = sorted(users)
    for fold in range(FOLDS):
        held_out = names[fold::FOLDS]
        source = join([users[name] for name in names if name not in held_out])
        scale = Scale.fit(source, kind)
        domain = sensor_domain("train", scale(source.values), source.labels, origin="published")
        recipe = replace(DATASETS[data].recipe, epochs=EPOCHS)
        files = {norm: work / f"{data}-{norm}-fold{fold}.safetensors" for norm in ("bn", "iabn")}
        for norm, file in files.items():
            if not file.exists():
                torch.manual_seed(fold)
                classes, channels = DATASETS[data].classes, source.values.shape[1]
                model = build_model(DATASETS[data].network, classes, norm=norm, in_channels=channels)
                train(model, domain, recipe, out=file, seed=fold, show_progress=False)
        for name in held_out:
            x = torch.from_numpy(scale(users[name].values))
            labels = torch.from_numpy(users[name].labels)
            yield Stream(data, name, x, labels, _models(files), chronological=True, seed=fold)


def digits(work: Path) -> Iterator[Stream]:
    """Three drifts of handwritten digits."""
    dataset = open_dataset("digits", seed=0)
    files = {norm: work / f"digits-{norm}-0.safetensors" for norm in ("bn", "iabn")}
    for norm, file in files.items():
        if not file.exists():
            torch.manual_seed(0)
            model = build_model(DATASETS["digits"].network, 10, norm=norm, width=WIDTH)
            recipe = DATASETS["digits"].recipe
            train(model, dataset.domain("train"), recipe, out=file, seed=0, show_progress=False)
    for target in dataset.targets:
        domain = dataset.domain(target)
        yield Stream("digits", f"{target}0", domain.inputs(), domain.labels, _models(files))


def cifar(data: str, root: Path, checkpoints: Path, images: int) -> Iterator[Stream]:
    """The four extra corruptions at severity 5: `images` test images, all of them for the filter."""
    clean, labels = read_clean(data, root, "test")
    network = "resnet20" if data == "cifar10" else "resnet20_projection"
    files = {norm: checkpoints / f"{data}-{network}-{norm}-seed0.safetensors" for norm in ("bn", "iabn")}
    few = images < len(labels)
    for corruption in VALIDATION_CORRUPTIONS[: FEW_CORRUPTIONS if few else None]:
        x = corrupt(clean[:images], corruption, 5, table="cifar", seed=0).astype(np.float32) / 255
        yield Stream(
            f"{data}-{images}" if few else data,
            corruption,
            torch.from_numpy(x.transpose(0, 3, 1, 2)).contiguous(),
            torch.from_numpy(labels[:images]),
            _models(files, LAYERS if few else ("iabn",) if files["iabn"].exists() else ("swapped",)),
            methods=tuple(METHODS) if few else ("source", "note"),
        )


def _models(files: dict[str, Path], layers: tuple[str, ...] = LAYERS) -> dict[str, Callable[[], nn.Module]]:
    def make(layer: str) -> nn.Module:
        model, _ = load_checkpoint(files["iabn" if layer == "iabn" else "bn"])
        return tta.convert_iabn(model) if layer == "swapped" else model

    there = [layer for layer in layers if files["iabn" if layer == "iabn" else "bn"].exists()]
    return {layer: partial(make, layer) for layer in there}


def streams(data: str, work: Path, root: Path, checkpoints: Path) -> Iterator[Stream]:
    """The validation streams of a dataset."""
    if data == "hapt":
        folder = hapt.raw_folder(root)
        users = {f"{user:02d}": hapt._read_users(folder, (user,), None) for user in hapt.SOURCE_USERS}
        yield from sensors(data, users, work)
    elif data == "extrasensory":
        folder = extrasensory.user_folder(root)
        names = (
            file.name.removesuffix(extrasensory.SUFFIX) for file in folder.glob(f"*{extrasensory.SUFFIX}")
        )
        others = tuple(name for name in sorted(names) if name not in extrasensory.PAPER_WINDOWS)
        yield from sensors(data, {name[:3]: w for name, w in extrasensory.source_users(folder, others)}, work)
    elif data == "digits":
        yield from digits(work)
    else:
        name, _, few = data.partition("-")
        yield from cifar(name, root, checkpoints, int(few or 10_000))


def keep_answers(stream: Stream, work: Path) -> None:
    """Run every method on every model over a stream, and keep log-probabilities and labels."""
    for order, indices in stream.orders().items():
        for layer, make in stream.models.items():
            for name in stream.methods:
                file = work / "answers" / f"{stream.data}.{layer}.{name}.{order}.{stream.name}.npz"
                few, rare = str(FEW) in stream.data, name == "note warm 30"
                skipped = order == "shuffled" and (few or rare or name == "lame")
                skipped |= few and rare and layer != "iabn"
                if skipped or file.exists():
                    continue
                method = METHODS[name](make())
                logits = torch.cat([method(x) for x in stream.x[indices].split(64)]).log_softmax(1)
                file.parent.mkdir(parents=True, exist_ok=True)
                np.savez(file, logits=logits.float().numpy(), labels=stream.labels[indices].numpy())
                print(file.stem, _error(logits, stream.labels[indices]), flush=True)


def read_answers(work: Path) -> dict[tuple[str, ...], list[tuple[Tensor, Tensor]]]:
    """Log-probabilities and labels of every stream, by data, layers, method and order."""
    groups: dict[tuple[str, ...], list[tuple[Tensor, Tensor]]] = {}
    for file in sorted((work / "answers").glob("*.npz")):
        held = np.load(file)
        logits, labels = torch.from_numpy(held["logits"]), torch.from_numpy(held["labels"])
        groups.setdefault(tuple(file.name.split(".")[:4]), []).append((logits, labels))
    return dict(sorted(groups.items()))


def settings() -> str:
    """The filter's settings in words: figures that were measured with others are marked on the page."""
    found = inspect.signature(Runs).parameters.values()
    return " ".join(f"{each.name}={each.default}".replace(", ", ",") for each in found)


def score(work: Path, known: dict[str, Any]) -> dict[str, Any]:
    """Errors with and without the filter, by data, layers, method and order.

    A known row stays if the folder has no answers for it, or those of fewer streams.
    """
    rows = {_key(row): row for row in known.get("rows", [])}
    answers = read_answers(work)
    for key, kept in answers.items():
        data, layer, method, order = key
        if key in rows and len(kept) < rows[key]["streams"]:
            continue
        plain = [_error(logits, labels) for logits, labels in kept]
        filtered = [_error(Runs()(logits), labels) for logits, labels in kept]
        row = {"data": data, "layers": layer, "method": method, "order": order, "streams": len(kept)}
        row["samples"] = round(sum(len(labels) for _, labels in kept) / len(kept))
        row["run"] = round(sum(tta.streams.mean_run_length(labels) for _, labels in kept) / len(kept), 2)
        row["error"], row["filtered"] = _mean(plain), _mean(filtered)
        if order == "correlated" and method != "lame":
            row["doubled"] = _mean(_error(Runs()(2 * logits), labels) for logits, labels in kept)
            shuffled = answers.get((data, layer, method, "shuffled"), [])
            if len(shuffled) == len(kept):
                row["after shuffled"] = _mean(
                    _error(Runs()(torch.cat([first, then]))[len(first) :], labels)
                    for (first, _), (then, labels) in zip(shuffled, kept, strict=True)
                )
        row["worst"] = round(max(b - a for a, b in zip(plain, filtered, strict=True)), 3)
        row["filter"] = settings()
        rows[key] = row
        print(row, flush=True)
    return {"filter": settings(), "rows": [rows[key] for key in sorted(rows)]}


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("data", "layers", "method", "order"))


def vary(work: Path) -> dict[str, Any]:
    """Errors of what `adapt` makes of BatchNorm models, with one of the filter's settings changed."""
    groups = {
        f"{data} {order}": kept
        for (data, layer, method, order), kept in read_answers(work).items()
        if (layer, method) == ("swapped", "note warm 10")
    }
    variants = {}
    for name, changed in VARIANTS.items():
        variants[name] = {
            group: _mean(_error(Runs(**changed)(x[:VARIED]), y[:VARIED]) for x, y in kept)
            for group, kept in groups.items()
        }
        print(name, variants[name], flush=True)
    return {"variants": variants, "varied": {group: len(kept) for group, kept in groups.items()}}


def cost(classes: tuple[int, ...] = (10, 100, 1000), samples: int = 500, rounds: int = 9) -> dict[str, Any]:
    """Microseconds of processor time per sample, median of the rounds; to be run on a quiet machine."""
    found = {}
    for count in classes:
        logits, runs, seconds = 3 * torch.randn(samples, count), Runs(), []
        for _ in range(rounds):
            start = time.process_time()
            runs(logits)
            seconds.append(time.process_time() - start)
        found[str(count)] = round(1e6 * sorted(seconds)[rounds // 2] / samples, 1)
    print(found)
    return {"cost": found}


def _error(logits: Tensor, labels: Tensor) -> float:
    return round(100 * float((logits.argmax(1) != labels).double().mean()), 3)


def _mean(values: Any) -> float:
    values = list(values)
    return round(sum(values) / len(values), 3)


def main() -> None:
    """Keep answers, or score those that are kept."""
    parser = argparse.ArgumentParser(prog="benchmarks.filter_study", description=__doc__)
    parser.add_argument("step", choices=["answers", "score", "vary", "cost"])
    parser.add_argument(
        "--work", type=Path, default=Path("filter-study"), help="a folder for models and answers"
    )
    parser.add_argument("--data", nargs="*", default=DATA)
    parser.add_argument("--data-root", type=Path, help="else $NOTE_TTA_DATA, else the user's cache folder")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="of CIFAR")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.step != "answers":
        known = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
        steps = {
            "score": partial(score, arguments.work, known),
            "vary": partial(vary, arguments.work),
            "cost": cost,
        }
        found = steps[arguments.step]()
        origins = {**known.get("provenance", {}), arguments.step: provenance()}
        write_text(OUT, json.dumps(known | found | {"provenance": origins}, indent=1) + "\n")
        print(f"written to {OUT}")
        return
    arguments.work.mkdir(parents=True, exist_ok=True)
    for data in arguments.data:
        for stream in streams(data, arguments.work, resolve_root(arguments.data_root), arguments.checkpoints):
            keep_answers(stream, arguments.work)


if __name__ == "__main__":
    main()
