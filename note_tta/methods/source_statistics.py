"""Statistics of the source data: computed once from samples, or read from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .backbone import Backbone, Tensors
from .draft import Draft
from .features import Listener
from .norm import use_batch_statistics
from .objectives import pseudo_label_loss

MOST_SAMPLES = 100_000
"""The number of source samples that is enough to know the features of each class."""


class SourceStatistics:
    """Tensors that were computed from source samples with one model, for one purpose.

    Args:
        kind: The kind of statistics: "fisher" or "features".
        fingerprint: The fingerprint of their model.
        tensors: The tensors by name.
    """

    def __init__(self, kind: str, fingerprint: str, tensors: Tensors) -> None:
        self.kind, self.fingerprint, self.tensors = kind, fingerprint, tensors

    def save(self, path: str | Path) -> None:
        """Write the statistics to a safetensors file, whose path can later be given as `source=`."""
        about = {"kind": self.kind, "fingerprint": self.fingerprint}
        save_file({name: t.detach().contiguous().cpu() for name, t in self.tensors.items()}, path, about)

    @classmethod
    def load(cls, path: str | Path) -> SourceStatistics:
        """Read the statistics from a file.

        Raises:
            ValueError: The file was not written by `save`.
            FileNotFoundError: There is no such file.
        """
        if not Path(path).is_file():
            raise FileNotFoundError(f"there is no file {path}: make it with method.source.save(path)")
        try:
            with safe_open(path, "pt") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return cls(about["kind"], about["fingerprint"], tensors)
        except (SafetensorError, KeyError) as error:
            raise ValueError(f"{path} holds no source statistics: {error}") from error

    def __deepcopy__(self, memo: dict[int, Any]) -> SourceStatistics:
        return self  # they never change


SourceData = Iterable[Any] | str | Path | SourceStatistics
"""An iterable of input batches, a file of statistics, or statistics."""


def statistics_of(
    source: SourceData | None,
    kind: str,
    backbone: Backbone,
    compute: Callable[[Iterator[Tensor]], Tensors],
    refusal: str,
) -> SourceStatistics:
    """Read the statistics of the source data from a file, or compute them from its batches.

    Args:
        source: Batches, a file or statistics.
        kind: The kind that is needed.
        backbone: The model that the statistics must belong to.
        compute: Computes the statistics from batches of finite samples.
        refusal: The message if there is no source.

    Raises:
        ValueError: There is no source, it belongs to another kind or model, or its samples cannot be used.
    """
    if source is None:
        raise ValueError(refusal)
    if isinstance(source, str | Path):
        source = SourceStatistics.load(source)
    if not isinstance(source, SourceStatistics):
        return SourceStatistics(kind, backbone.fingerprint, compute(batches_of(source, backbone)))
    if source.kind != kind:
        raise ValueError(f"source holds statistics of the kind {source.kind!r}, but {kind!r} is needed")
    if source.fingerprint != backbone.fingerprint:
        raise ValueError(
            f"source holds statistics of another model, with the fingerprint {source.fingerprint}; "
            f"this model has {backbone.fingerprint}: compute the statistics again from source samples"
        )
    if not all(torch.isfinite(tensor).all() for tensor in source.tensors.values()):
        raise ValueError("source holds statistics that are not finite")
    return source


def batches_of(source: Iterable[Any], backbone: Backbone) -> Iterator[Tensor]:
    """Yield the input batches of an iterable without labels, in the model's dtype and on its device."""
    empty = True
    for batch in source:
        x = batch[0] if isinstance(batch, list | tuple) else batch
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim < 2:
            raise TypeError(
                f"source must give batches of floating-point samples, got {type(x).__name__}: "
                "a list of tensors [B, ...] or a DataLoader"
            )
        if not torch.isfinite(x).all():
            raise ValueError("source gave a batch with NaN or Inf")
        empty = False
        yield x.detach().to(backbone.device, backbone.dtype or x.dtype)
    if empty:
        raise ValueError("source gave no batches")


@torch.enable_grad()
def fisher_information(backbone: Backbone, names: list[str], batches: Iterator[Tensor]) -> Tensors:
    """Return the squared gradient of the loss to the model's own predictions, averaged over batches, per tensor.

    The gradient is that of the mean loss of a batch, normalised with its own statistics. So the batch size matters.
    """
    draft = Draft(backbone, names, prepare=use_batch_statistics)
    sums = [torch.zeros_like(tensor) for tensor in draft.learned]
    count = 0
    for x in batches:
        draft.backward(pseudo_label_loss(draft.predict(x)))
        for total, tensor in zip(sums, draft.learned, strict=True):
            if tensor.grad is not None:
                total += tensor.grad**2
        count += 1
    return {name: (total / count).detach() for name, total in zip(names, sums, strict=True)}


@torch.no_grad()
def class_features(backbone: Backbone, classifier: str, batches: Iterator[Tensor]) -> Tensors:
    """Return the mean and the unbiased variance `[K, D]` of the features per predicted class.

    A class without samples gets the mean of all samples. A class with fewer than two samples gets the variance within
    the other classes.
    """
    module = backbone.build(backbone.source)
    listener = Listener(module, classifier)
    counts, sums, squares = torch.zeros(1), torch.zeros(1), torch.zeros(1)
    for x in batches:
        logits = backbone.run(module, x)
        chosen = F.one_hot(logits.argmax(dim=1), logits.shape[1]).double()
        features = listener.take(len(x)).double()
        counts = counts + chosen.sum(dim=0)[:, None]
        sums, squares = sums + chosen.T @ features, squares + chosen.T @ features**2
        if counts.sum() > MOST_SAMPLES:
            break
    mean = torch.where(counts > 0, sums / counts.clamp_min(1), sums.sum(dim=0) / counts.sum())
    off = (squares - counts * mean**2).clamp_min(0)
    within = off.sum(dim=0) / (counts - 1).clamp_min(0).sum().clamp_min(1)
    variance = torch.where(counts > 1, off / (counts - 1).clamp_min(1), within)
    return {"mean": mean.float(), "variance": variance.float()}
