"""The training loop: seeded by epoch, saved after every epoch, resumed exactly."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam

from ..checkpoint import load_weights, read_card, restore_card, save_checkpoint, weights_fingerprint
from ..data import Recipe
from ..models import architecture
from ..progress import Follow, progress_bars
from ..provenance import provenance
from ..safe_load import load_plain, save_plain
from .processes import Team, join_team
from .samples import Samples, augment, epoch_batches, read_batches

Epoch = dict[str, float]
OnEpoch = Callable[[int, Epoch], None]
_WITH_STATE = ("model", "optimizer", "scaler")
_TEMPERATURE, _TEACHER_WEIGHT = 4.0, 0.9  # usual for distillation on CIFAR-100
_BAR = "epoch {task.fields[epoch]}, loss {task.fields[loss]:.3f}, error {task.fields[error]:.1f} %"


class Diverged(ValueError):
    """The loss is no longer finite. The message says what to change."""


@dataclass
class _Run:
    """The parts of a run and its progress."""

    model: nn.Module
    recipe: Recipe
    samples: Samples
    seed: int
    team: Team
    workers: int
    teacher: nn.Module | None
    epoch: int = 0
    seconds: float = 0.0
    history: list[Epoch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.device = next(self.model.parameters()).device
        self.optimizer = make_optimizer(self.recipe, self.model)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.device.type == "cuda")

    def state(self) -> dict[str, Any]:
        progress = {"epoch": self.epoch, "seconds": self.seconds, "history": self.history}
        return {name: getattr(self, name).state_dict() for name in _WITH_STATE} | progress

    def load_state(self, state: Mapping[str, Any]) -> None:
        for name in _WITH_STATE:
            getattr(self, name).load_state_dict(state[name])
        self.epoch, self.seconds, self.history = state["epoch"], state["seconds"], state["history"]


def train(
    model: nn.Module,
    samples: Samples,
    recipe: Recipe,
    *,
    out: str | Path,
    test: Samples | None = None,
    seed: int = 0,
    facts: Mapping[str, Any] | None = None,
    workers: int = 0,
    teacher: nn.Module | None = None,
    restart: bool = False,
    show_progress: bool = True,
    on_epoch: OnEpoch | None = None,
) -> dict[str, Any]:
    """Train a network of `build_model`, on the device it is on, and write its checkpoint.

    Shuffling, augmentation and the optimizer depend only on the recipe, the seed and the epoch. The whole state
    is saved beside `out` after each epoch. A killed run that is started again continues from there and, on the
    same machine with the same number of threads, ends with exactly the same weights. If the run is complete, it
    returns at once. On CUDA it uses mixed precision. Under `torchrun` the processes share each batch.

    Args:
        model: The network; it is trained in place and left in eval mode.
        samples: The training data.
        recipe: How to train.
        out: The checkpoint to write, `*.safetensors`.
        test: Clean test data; the error on it is written into the card.
        seed: Seed of shuffling and augmentation; the caller seeds the initial weights.
        facts: Further plain values for the card, such as the dataset's name. They identify the run: a run with
            other facts does not continue from its state.
        workers: Processes that read data ahead.
        teacher: A network whose answers are learned as well (distillation), on the same device, in eval mode. They
            weigh nine times as much as the labels, and are softened by a temperature of 4. The loss that is reported is
            that on the labels.
        restart: Delete the state or result of an earlier run instead of continuing it.
        show_progress: Show a progress bar on a terminal.
        on_epoch: Called with the number of epochs done and `{"loss", "error", "lr"}` of the last one.

    Returns:
        The checkpoint's card.

    Raises:
        Diverged: The loss became infinite or NaN.
        ValueError: `out` or its saved state belongs to a run with other settings.
    """
    out = Path(out)
    if out.suffix != ".safetensors":
        raise ValueError(f"a checkpoint's name ends in .safetensors, got {out}")
    device = next(model.parameters()).device
    origin = provenance()  # of the code that is loaded now; the files may change during training
    with join_team(device) as team:
        identity: dict[str, Any] = {
            "architecture": {k: str(v) if k == "alpha" else v for k, v in architecture(model).items()},
            "recipe": asdict(recipe),
            "seed": seed,
            "data": samples.fingerprint,
            "samples": len(samples),
            "processes": team.size,
            "facts": dict(facts or {}),
        }
        if teacher is not None:
            identity["teacher"] = _describe_teacher(teacher)
        saved = out.with_suffix(".training.pt")
        if team.is_first:
            _tidy(out, saved, restart=restart)
        team.wait()
        if out.exists():
            _check_same(out, read_card(out).get("run", {}), identity)
            load_weights(model, out).eval()
            return restore_card(out) if team.is_first else read_card(out)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        run = _Run(model, recipe, samples, seed, team, workers, teacher)
        if saved.exists():
            run.load_state(_read_state(saved, identity, device))
        team.wait()
        if recipe.epochs:
            _train_epochs(run, saved, identity, show_progress, on_epoch)
        model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        model.eval()
        if team.is_first:
            card = {
                **dict(facts or {}),
                "seed": seed,
                "recipe": asdict(recipe),
                "clean_error": None if test is None else clean_error(model, test, recipe.batch_size),
                "test_samples": None if test is None else len(test),
                "train_samples": len(samples),
                "history": run.history,
                "seconds": round(run.seconds, 1),
                "run": identity,
                "provenance": origin,
            }
            save_checkpoint(out, model, card)
            saved.unlink(missing_ok=True)
        team.wait()
    return read_card(out)


def _describe_teacher(teacher: nn.Module) -> dict[str, Any]:
    """What identifies a run with a teacher."""
    if teacher.training:
        raise ValueError(
            "the teacher is in train mode, in which its answers depend on the batch: call teacher.eval()"
        )
    return {
        "weights": weights_fingerprint(teacher),
        "temperature": _TEMPERATURE,
        "weight": _TEACHER_WEIGHT,
    }


def _train_epochs(
    run: _Run, saved: Path, identity: dict[str, Any], show_progress: bool, on_epoch: OnEpoch | None
) -> None:
    """Train the remaining epochs, and save the state after each."""
    team, epochs = run.team, run.recipe.epochs
    model = DistributedDataParallel(run.model) if team.size > 1 else run.model
    steps = len(_batches(run, 0))
    if team.is_first:
        # A folder that cannot be written to fails now.
        save_plain(saved, {"identity": identity, **run.state()})
    with progress_bars(_BAR, enabled=show_progress and team.is_first) as show:
        while run.epoch < epochs:
            try:
                _train_epoch(run, model, steps, show)
            except Diverged:
                saved.unlink(missing_ok=True)
                raise
            if team.is_first:
                save_plain(saved, {"identity": identity, **run.state()})
                _warn_if_lost(run, identity["architecture"]["num_classes"])
                if on_epoch is not None:
                    on_epoch(run.epoch, run.history[-1])


def make_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """The recipe's optimizer of all parameters of the model."""
    shared: Any = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    if recipe.optimizer == "adam":
        return Adam(model.parameters(), **shared)
    return SGD(model.parameters(), momentum=recipe.momentum, nesterov=recipe.momentum > 0, **shared)


@torch.no_grad()
def clean_error(model: nn.Module, samples: Samples, batch_size: int = 128) -> float:
    """The error in percent of the model in eval mode."""
    model.eval()
    device = next(model.parameters()).device
    wrong = 0
    for x, y in read_batches(samples, list(torch.arange(len(samples)).split(batch_size))):
        wrong += int((model(x.to(device)).argmax(1).cpu() != y).sum())
    return 100.0 * wrong / len(samples)


def _tidy(out: Path, saved: Path, *, restart: bool) -> None:
    """Remove the incomplete files of a killed run, the state of a finished run and, at a restart, everything."""
    for name in (out.name, out.with_suffix(".json").name, saved.name):
        for part in out.parent.glob(f".{name}.*.part"):
            part.unlink(missing_ok=True)
    if restart:
        out.unlink(missing_ok=True)
    if restart or out.exists():
        saved.unlink(missing_ok=True)


def _batches(run: _Run, epoch: int) -> list[Tensor]:
    """Return this epoch's batches of indices, the same in every process."""
    generator = torch.Generator().manual_seed(_epoch_seed(run.seed, epoch))
    return epoch_batches(
        len(run.samples), run.recipe.batch_size, generator=generator, processes=run.team.size
    )


def _epoch_seed(seed: int, epoch: int) -> int:
    return (seed * 1_000_003 + epoch) % 2**63


def _train_epoch(run: _Run, model: nn.Module, steps: int, show: Follow) -> None:
    recipe, device, team = run.recipe, run.device, run.team
    begun = time.perf_counter()
    batches = _batches(run, run.epoch)
    augmenting = torch.Generator().manual_seed(_epoch_seed(run.seed, run.epoch) ^ (team.rank + 1) << 40)
    changes: Any = {name: getattr(recipe, name) for name in ("crop_padding", "crop_fill", "flip")}
    totals = torch.zeros(3, dtype=torch.float64)
    lr = recipe.lr
    model.train()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(_epoch_seed(run.seed, run.epoch))
        reader = read_batches(run.samples, [team.share(batch) for batch in batches], workers=run.workers)
        for index, (batch, (x, y)) in enumerate(zip(batches, reader, strict=True)):
            step = run.epoch * steps + index
            lr = recipe.lr_at(step, steps * recipe.epochs)
            for group in run.optimizer.param_groups:
                group["lr"] = lr
            x = augment(x.to(device), augmenting, **changes)
            totals += _train_step(run, model, x, y.to(device), len(batch)).cpu()
            if not math.isfinite(totals[0]):
                where = f"in epoch {run.epoch + 1} at lr {lr:g} (loss {totals[0]})"
                raise Diverged(f"training diverged {where}: {_advice(recipe)}")
            loss, error = _averages(totals)
            epoch = f"{run.epoch + 1}/{recipe.epochs}"
            show("training", step + 1, steps * recipe.epochs, epoch=epoch, loss=loss, error=error)
    loss, error = _averages(team.total(totals.to(device)).cpu())
    run.epoch += 1
    run.seconds += time.perf_counter() - begun
    run.history.append({"loss": loss, "error": error, "lr": lr})


def _train_step(run: _Run, model: nn.Module, x: Tensor, y: Tensor, batch: int) -> Tensor:
    """Take one step on this process's share of a batch; return its summed loss on the labels, errors and samples."""
    if x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    with torch.autocast(run.device.type, dtype=torch.float16, enabled=run.scaler.is_enabled()):
        logits = model(x)
    from_labels = losses = F.cross_entropy(logits.float(), y, reduction="sum")
    if run.teacher is not None:
        with torch.no_grad():
            taught = run.teacher(x)
        if not torch.isfinite(taught).all():
            raise ValueError("the teacher's answers are not finite: has it been trained on the same inputs?")
        losses = (1 - _TEACHER_WEIGHT) * from_labels + _TEACHER_WEIGHT * _distillation(logits.float(), taught)
    run.optimizer.zero_grad(set_to_none=True)
    # Data-parallel training averages gradients over processes, whose shares may differ by a sample.
    run.scaler.scale(losses * run.team.size / batch).backward()
    run.scaler.step(run.optimizer)
    run.scaler.update()
    wrong = (logits.argmax(1) != y).sum()
    return torch.stack(
        [from_labels.detach().double(), wrong.double(), torch.full_like(wrong, len(y)).double()]
    )


def _distillation(logits: Tensor, taught: Tensor) -> Tensor:
    """How far the softened answers are from the teacher's, summed over samples; scaled like the loss on labels."""
    ours, theirs = (F.log_softmax(answers / _TEMPERATURE, 1) for answers in (logits, taught))
    return _TEMPERATURE**2 * F.kl_div(ours, theirs, reduction="sum", log_target=True)


def _averages(totals: Tensor) -> tuple[float, float]:
    loss, wrong, count = totals.tolist()
    return loss / count, 100.0 * wrong / count


def _advice(recipe: Recipe) -> str:
    smaller = 0.001 if recipe.optimizer == "adam" and recipe.lr > 0.001 else recipe.lr / 10
    return f"lr {recipe.lr:g} is too large for {recipe.optimizer} here; try lr {smaller:g}"


def _warn_if_lost(run: _Run, classes: int) -> None:
    """Warn after the first epoch if the model is much worse than guessing."""
    guessing = math.log(max(classes, 2))
    if run.epoch == 1 and run.history[-1]["loss"] > 2 * guessing:
        warnings.warn(
            f"the loss of the first epoch, {run.history[-1]['loss']:.3g}, is more than twice that of guessing "
            f"({guessing:.3g}): training may be diverging. {_advice(run.recipe)}",
            stacklevel=4,
        )


def _read_state(path: Path, identity: dict[str, Any], device: torch.device) -> dict[str, Any]:
    try:
        state: dict[str, Any] = load_plain(path, device)
        made_by = state["identity"]
    except Exception as error:  # a damaged pickle can raise anything
        problem = f"cannot be read as a training state ({error})"
        raise ValueError(f"{path} {problem}; delete it or restart") from None
    _check_same(path, made_by, identity)
    return state


def _check_same(path: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    """Refuse a file of a run with other settings; the message names the first difference."""
    flat = [_flatten(settings) for settings in (there, here)]
    for name in sorted({*flat[0], *flat[1]}):
        values = [settings.get(name, "unset") for settings in flat]
        if values[0] != values[1]:
            problem = f"{path} belongs to a run with {name} {values[0]}, but here it is {values[1]}"
            raise ValueError(f"{problem}; restart to replace it (--restart), or choose another file (--out)")


def _flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": v for inner, v in _flatten(value).items()}
        else:
            flat[name] = list(value) if isinstance(value, tuple) else value
    return flat
