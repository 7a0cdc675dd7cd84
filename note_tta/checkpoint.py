"""Checkpoints (safetensors with a card that describes the weights), weights from other sources, and states.

Nothing here runs code from a file: safetensors and JSON hold data only, and `.pt` files are opened with
`weights_only=True`.
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from .files import write_atomically
from .methods import Method
from .models import AUTHORS_INPUT, Normalize, architecture, build_model, iabn_settings
from .safe_load import load_plain, save_plain

_CARD = "note_tta_card"
_ARCHITECTURE = {"name", "num_classes", "norm", "width", "in_channels", "mean", "std"}
_WRAPPERS = ("state_dict", "model", "net")
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def save_checkpoint(path: str | Path, model: nn.Module, card: Mapping[str, Any]) -> None:
    """Write a network of `build_model` and its card.

    The card is written twice: into the header of the weights, which is the one that is read back, so that the
    two cannot be separated; and beside them as JSON, for people and other tools.

    Args:
        path: The file of the weights, `*.safetensors`; the readable card has the same name with `.json`.
        model: The network.
        card: Plain values that say where the weights come from. The key `architecture` is added.
    """
    path = _named(path)
    full = {**card, "architecture": _plain(architecture(model))}
    try:
        text = json.dumps(full, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the card of {path} must hold plain JSON values only: {error}") from None
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_atomically(path, to_safetensors(tensors, metadata={_CARD: text}))
    write_atomically(path.with_suffix(".json"), (text + "\n").encode())


def restore_card(path: str | Path) -> dict[str, Any]:
    """Write the readable card again if it differs from the one in the header of the weights; return the card."""
    path = _named(path)
    card = read_card(path)
    text = (json.dumps(card, indent=2) + "\n").encode()
    beside = path.with_suffix(".json")
    if not beside.is_file() or beside.read_bytes() != text:
        write_atomically(beside, text)
    return card


def read_card(path: str | Path) -> dict[str, Any]:
    """Return a checkpoint's card without reading its weights."""
    path = _named(path)
    return _parse_card(path, _read_safetensors(path, only_header=True)[1])


def load_checkpoint(
    path: str | Path, *, num_classes: int | None = None, in_channels: int | None = None
) -> tuple[nn.Module, dict[str, Any]]:
    """Rebuild the network that `save_checkpoint` wrote, in eval mode, on the CPU.

    Args:
        path: The file of the weights.
        num_classes: If given, the checkpoint must have this many classes.
        in_channels: If given, the checkpoint must take this many channels.

    Returns:
        The network and its card.

    Raises:
        ValueError: The file is damaged, is not a checkpoint of this library, or does not match the arguments.
    """
    path = _named(path)
    tensors, metadata = _read_safetensors(path)
    card = _parse_card(path, metadata)
    arguments = card["architecture"]
    if ":" in (name := str(arguments["name"])):
        advice = "make the network and load them with load_weights"
        raise ValueError(f"{path} holds weights of your own network {name}: {advice}")
    try:
        if isinstance(arguments.get("alpha"), str):
            arguments = {**arguments, "alpha": float(arguments["alpha"])}
        # A crafted card may claim any width. On the meta device shapes cost nothing; a network is allocated
        # only if the file really fills it.
        with torch.device("meta"):
            shapes = build_model(**arguments).state_dict()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{path}: its card describes no network that can be built: {error}") from None
    _check_fit(path, tensors, shapes, head=None)
    for label, wanted in (("num_classes", num_classes), ("in_channels", in_channels)):
        if wanted is not None and arguments[label] != wanted:
            raise ValueError(f"{path} holds a network of {label} {arguments[label]}, but {wanted} are needed")
    model = build_model(**arguments)
    model.load_state_dict(tensors)
    return model.eval(), card


def weights_fingerprint(source: str | Path | nn.Module) -> str:
    """A short digest of the tensors alone: the same weights have the same digest, whenever they were saved.

    Args:
        source: A file of weights, or a module.

    Example:
        >>> weights_fingerprint(nn.BatchNorm1d(2)) == weights_fingerprint(nn.BatchNorm1d(2))
        True
    """
    tensors = source.state_dict() if isinstance(source, nn.Module) else _read_tensors(Path(source))
    digest = hashlib.sha256()
    for name in sorted(name for name, value in tensors.items() if isinstance(value, Tensor)):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return f"weights:{digest.hexdigest()[:16]}"


def load_weights(model: nn.Module, path: str | Path, *, new_head: bool = False) -> nn.Module:
    """Load weights made elsewhere into `model`, in place, and return it.

    It reads safetensors and `.pt` files of tensors. An enclosing `state_dict` or `model` entry and the `module.`
    prefix of data-parallel training are removed. Checkpoints of NOTE's authors load: the `._bn.` level of their
    IABN layers is removed, and `shortcut` in their CIFAR networks becomes `downsample`. BatchNorm weights fit
    IABN layers as they are; a model with GroupNorm takes all but their statistics. The model changes only if
    everything fits.

    A warning says if the tensors fit but the file's network computes something else: with other norm layers, or,
    in the authors' CIFAR networks, with another input normalisation.

    Args:
        model: Any module.
        path: The file.
        new_head: Keep the model's last linear layer if its shape differs from the file's, to fine-tune on
            other classes.

    Raises:
        ValueError: The file cannot be read as weights, or its tensors do not fit the model.

    Example:
        >>> import tempfile
        >>> source, target = nn.Linear(2, 3), nn.Linear(2, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     torch.save({"state_dict": {f"module.{k}": v for k, v in source.state_dict().items()}},
        ...                f"{folder}/weights.pt")
        ...     _ = load_weights(target, f"{folder}/weights.pt")
        >>> torch.equal(source.weight, target.weight)
        True
    """
    path = Path(path)
    own = dict(model.state_dict())
    found = _read_tensors(path)
    tensors = {_own_name(name, own): tensor for name, tensor in found.items()}
    if not _has_statistics(own):
        tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith(_STATISTICS)}
    head = next((n for n, m in reversed(list(model.named_modules())) if isinstance(m, nn.Linear)), None)
    if new_head and head is not None:
        for name in (f"{head}.weight", f"{head}.bias"):
            if name in own and (name not in tensors or tensors[name].shape != own[name].shape):
                tensors[name] = own[name]
    _check_fit(path, tensors, own, head)
    counters = {n: t for n, t in own.items() if n.endswith("num_batches_tracked") and n not in tensors}
    model.load_state_dict({**tensors, **counters})
    for difference in _differences(model, found, _norm_settings(path, found)):
        warnings.warn(f"{path}: {difference}", stacklevel=2)
    return model


def save_state(path: str | Path, method: Method) -> None:
    """Write a method's state. After a kill the file holds either the old state or the new one.

    Args:
        path: The file, with any name, in an existing folder; one process at a time may write it.
        method: Any method. The weights that never change are not in the state.

    Example:
        >>> import tempfile, note_tta as tta
        >>> method = tta.NOTE(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten()))
        >>> _ = method(torch.rand(10, 1, 3, 3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_state(f"{folder}/stream.pt", method)
        ...     method.reset()
        ...     load_state(f"{folder}/stream.pt", method)
        >>> method.counters["samples"]
        10
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no such folder: {path.parent}")
    for left_by_a_kill in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        if "." not in left_by_a_kill.name.removeprefix(f".{path.name}.").removesuffix(".part"):
            left_by_a_kill.unlink(missing_ok=True)  # others are of files whose names begin like this one's
    save_plain(path, method.state_dict())


def load_state(path: str | Path, method: Method) -> None:
    """Let a method continue from a state that `save_state` wrote. Its settings become those of the state.

    Args:
        path: The file.
        method: The same kind of method, on the same model.

    Raises:
        ValueError: The file is damaged, or of another method or model. The method has not changed.
    """
    path = Path(path)
    state = _read_plain(path, "the state of a method")
    try:
        method.load_state_dict(state)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _named(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(f"a checkpoint's name ends in .safetensors, got {path}")
    return path


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """Write an infinite alpha as a string, since JSON has no infinity."""
    return {**arguments, "alpha": "inf"} if math.isinf(arguments.get("alpha", 0.0)) else arguments


def _parse_card(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    if _CARD not in metadata:
        raise ValueError(f"{path} has no card of note-tta; load_weights reads it into a model")
    try:
        card = json.loads(metadata[_CARD])
    except (ValueError, RecursionError):
        raise ValueError(f"{path} has a card that is not JSON; the file is damaged") from None
    if not isinstance(card, dict) or not isinstance(card.get("architecture"), dict):
        raise ValueError(f"{path} has a card without an architecture; the file is damaged")
    absent = _ARCHITECTURE - card["architecture"].keys()
    if absent:
        raise ValueError(f"{path} has a card whose architecture lacks {', '.join(sorted(absent))}")
    return card


def _read_safetensors(path: Path, *, only_header: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(path, framework="pt") as file:
            names = [] if only_header else file.keys()
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return _read_safetensors(path)[0]
    content = _read_plain(path, "a file of weights only")
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not content:
        raise ValueError(f"{path} holds no state dict but a {type(content).__name__}")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            kind = type(value).__name__
            raise ValueError(f"{path} holds no state dict: {name!r} is a {kind}, not a tensor")
    return dict(content)


def _read_plain(path: Path, what: str) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        return load_plain(path)
    except Exception as error:  # a damaged or crafted pickle can raise anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read as {what}: {reason}") from None


def _own_name(name: str, own: Mapping[str, Tensor]) -> str:
    """The name in the model of a tensor that another library's file calls `name`."""
    if name in own:
        return name
    while name.startswith("module."):
        name = name.removeprefix("module.")
    name = name.replace("._bn.", ".")
    renamed = name.replace(".shortcut.", ".downsample.")
    return renamed if renamed in own else name


def _norm_settings(path: Path, found: Mapping[str, Tensor]) -> dict[str, Any]:
    """The settings of a file's IABN layers: those of its card, or those of the authors' runs."""
    if any("._bn." in name for name in found):
        return {"alpha": 4.0, "correction": 1}
    try:
        card = read_card(path) if path.suffix == ".safetensors" else {}
    except ValueError:  # weights from another source
        return {}
    built = card.get("architecture", {})
    if built.get("norm", "bn") == "bn":
        return {}
    return {"alpha": float(built.get("alpha", 4.0)), "correction": built.get("correction", 0)}


def _has_statistics(tensors: Mapping[str, Tensor]) -> bool:
    return any(name.endswith(_STATISTICS) for name in tensors)


def _differences(model: nn.Module, found: Mapping[str, Tensor], iabn: Mapping[str, Any]) -> list[str]:
    """How a model computes something else than the network of a file, although the file's tensors fit it."""
    told = []
    own = iabn_settings(model)
    if _has_statistics(found) and not _has_statistics(model.state_dict()):
        told.append("its layers are BatchNorm, the model's are not: train the model before you use it")
    elif iabn and own != iabn:
        settings = "alpha={alpha:g}, correction={correction}"
        kind = f"IABN layers of {settings.format(**own)}" if own else "BatchNorm layers"
        wanted = settings.format(**iabn)
        advice = f"convert_iabn(model, {wanted}) makes them alike"
        told.append(f"its layers are IABN of {wanted}, but the model has {kind}: {advice}")
    normalize = next((m for m in model.modules() if isinstance(m, Normalize)), None)
    if normalize is not None and any(".shortcut." in name for name in found):
        classes = next((len(tensor) for name, tensor in found.items() if name.endswith("fc.bias")), 10)
        mean, std = AUTHORS_INPUT.get(classes, AUTHORS_INPUT[10])
        held = torch.stack([normalize.mean, normalize.std]).cpu().float()
        if not torch.allclose(held, torch.tensor([mean, std]), atol=2e-3):
            told.append(
                "its tensors have the names of NOTE's authors' CIFAR networks, which normalise the input by mean "
                f"{mean} and deviation {std}; the model has other values: build_model(..., mean={mean}, std={std})"
            )
    return told


def _check_fit(
    path: Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], head: str | None
) -> None:
    missing = [n for n in wanted if n not in found and not n.endswith("num_batches_tracked")]
    unexpected = [n for n in found if n not in wanted]
    differing = [n for n in wanted if n in found and found[n].shape != wanted[n].shape]
    if not (missing or unexpected or differing):
        return
    if head and not missing and not unexpected and all(n.startswith(f"{head}.") for n in differing):
        classes = [tensors[differing[0]].shape[0] for tensors in (found, wanted)]
        if classes[0] != classes[1]:
            advice = "new_head=True (--new-head) keeps all but its last layer"
            raise ValueError(f"{path} has {classes[0]} classes, the model {classes[1]}; {advice}")
    shapes = [f"{n} {tuple(found[n].shape)} against {tuple(wanted[n].shape)}" for n in differing]
    problems = {"tensors are missing": missing, "are not the model's": unexpected, "differ in shape": shapes}
    told = [f"{len(names)} {what} ({_few(names)})" for what, names in problems.items() if names]
    raise ValueError(f"{path} does not fit the network: {'; '.join(told)}")


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
