"""Losses without labels."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ..nn.functional import widened


def entropies(logits: Tensor) -> Tensor:
    """Shannon entropy of the softmax of each row, summed over classes, in at least float32."""
    log_p = widened(logits).log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def entropy(logits: Tensor) -> Tensor:
    """Entropy of the softmax, averaged over samples.

    Example:
        >>> import torch
        >>> entropy(torch.zeros(3, 2)).item() == torch.tensor(2.0).log().item()
        True
    """
    return entropies(logits).mean()


def pseudo_label_loss(logits: Tensor) -> Tensor:
    """Cross-entropy to the model's own hard predictions."""
    return F.cross_entropy(widened(logits), logits.argmax(dim=1))


def soft_cross_entropies(target: Tensor, logits: Tensor) -> Tensor:
    """Cross-entropy between the softmax of `target` and the softmax of `logits`, per row."""
    return -(widened(target).softmax(dim=1) * widened(logits).log_softmax(dim=1)).sum(dim=1)


def soft_likelihood_ratios(logits: Tensor) -> Tensor:
    """ROID's loss per row: −Σ p ln(p / (1 − p)), with p at most 0.99.

    Unlike the gradient of the entropy, its gradient does not vanish for confident predictions.
    """
    p = widened(logits).softmax(dim=1).clamp(max=0.99)
    return -(p * (p / (1 - p) + 1e-5).log()).sum(dim=1)
