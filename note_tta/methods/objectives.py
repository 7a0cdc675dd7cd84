"""What methods without labels minimise."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ..nn.functional import widened


def entropies(logits: Tensor) -> Tensor:
    """Shannon entropy of each row's softmax, summed over classes, in at least float32."""
    log_p = widened(logits).log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def entropy(logits: Tensor) -> Tensor:
    """Mean over samples of the entropy of the softmax.

    Example:
        >>> import torch
        >>> entropy(torch.zeros(3, 2)).item() == torch.tensor(2.0).log().item()
        True
    """
    return entropies(logits).mean()


def pseudo_label_loss(logits: Tensor) -> Tensor:
    """Cross-entropy to one's own hard predictions."""
    return F.cross_entropy(widened(logits), logits.argmax(dim=1))


def soft_cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """Mean cross-entropy from the softmax of `target`, as it is, to the softmax of `logits`."""
    chances = widened(target.detach()).softmax(dim=1)
    return -(chances * widened(logits).log_softmax(dim=1)).sum(dim=1).mean()
