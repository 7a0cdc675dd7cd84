"""Plain helpers for the independent references that methods are tested against."""

import copy

import torch
from torch import nn


def with_batch_statistics(model):
    """BatchNorm in train mode without running statistics: the usual way to get test-batch statistics."""
    model = copy.deepcopy(model).eval()
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.train()
            m.running_mean = m.running_var = None
            m.track_running_stats = False
    return model


def affine(model):
    """The scales and shifts of all norm layers, in order."""
    kinds = (nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
    return [p for m in model.modules() if isinstance(m, kinds) for p in m.parameters()]


def entropies(logits):
    p = logits.softmax(1)
    return -(p * p.log()).sum(1)


def same_affine(method, reference, **slack):
    torch.testing.assert_close(
        affine(method.model), affine(reference), **({"atol": 1e-5, "rtol": 1e-4} | slack)
    )
