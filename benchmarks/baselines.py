"""What we measure against: IABN as its equations read, and the online loop as research code writes it."""

from __future__ import annotations

import math
from collections import Counter

import torch
from sklearn.metrics import accuracy_score, f1_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from note_tta.memory import PBRS, Memory


class PlainIABN2d(nn.BatchNorm2d):
    """IABN, equation by equation: every intermediate map is a tensor of its own."""

    alpha = 4.0

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x`."""
        positions = x.shape[2] * x.shape[3]
        if self.training:
            var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0, keepdim=True)
            with torch.no_grad():
                count = x.numel() / x.shape[1]
                self.running_mean.lerp_(mean.flatten(), self.momentum)
                self.running_var.lerp_(var.flatten() * count / (count - 1), self.momentum)
        else:
            mean, var = self.running_mean.view(1, -1, 1, 1), self.running_var.view(1, -1, 1, 1)
        own_var, own_mean = torch.var_mean(x, dim=(2, 3), correction=0, keepdim=True)
        mean = mean + self._shrink(own_mean - mean, torch.sqrt((var + self.eps) / positions))
        var = var + self._shrink(own_var - var, (var + self.eps) * math.sqrt(2 / (positions - 1)))
        normalized = (x - mean) / torch.sqrt(torch.clamp(var, min=0) + self.eps)
        return normalized * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)

    def _shrink(self, deviation: Tensor, error: Tensor) -> Tensor:
        width = self.alpha * error
        return torch.sign(deviation) * torch.clamp(deviation.abs() - width, min=0)


def plain_iabn(model: nn.Module) -> nn.Module:
    """Give `model` a `PlainIABN2d` in the place of every norm layer, with its parameters."""
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm2d):
            layer = PlainIABN2d(child.num_features, child.eps)
            layer.load_state_dict(child.state_dict())
            setattr(model, name, layer.train(child.training))
        else:
            plain_iabn(child)
    return model


class ResearchLoop:
    """NOTE as research code runs it: sample by sample, in the style of the authors' release.

    Each sample is forwarded alone twice, once to be scored and once for its pseudo-label; accuracy and F1 are
    computed over the whole history after each; an update goes through a DataLoader.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.layers = model, _let_norm_layers_learn(model)
        for layer in self.layers:
            layer.momentum = 0.01
        self.optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4)
        self.memory = PBRS(64)
        self.predictions: list[int] = []
        self.truth: list[int] = []
        self.scores: list[tuple[float, float]] = []

    def __call__(self, x: Tensor, y: Tensor) -> None:
        """Take a batch of the stream, one sample after another."""
        for sample, label in zip(x, y.tolist(), strict=True):
            with torch.no_grad():
                self.predictions.append(int(self.model(sample[None]).argmax()))
                self.truth.append(label)
                self.scores.append(
                    (
                        accuracy_score(self.truth, self.predictions),
                        f1_score(self.truth, self.predictions, average="macro", zero_division=0),
                    )
                )
                self.memory.add(sample, int(self.model(sample[None]).argmax()))
            if len(self.truth) % 64 == 0:
                self._update()

    def _update(self) -> None:
        for layer in self.layers:
            layer.train()
        for (x,) in DataLoader(TensorDataset(self.memory.inputs()), batch_size=64):
            log_p = self.model(x).log_softmax(1)
            loss = -(log_p.exp() * log_p).sum(1).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        for layer in self.layers:
            layer.eval()


class Arithmetic:
    """What NOTE cannot do without, on plain BatchNorm: no memory, no optimizer, no bookkeeping.

    A batch is an eval forward, and a train forward and backward of as many samples without weight gradients.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.layers = model, _let_norm_layers_learn(model)

    def __call__(self, x: Tensor) -> None:
        """Take a batch."""
        with torch.no_grad():
            self.model(x)
        for layer in self.layers:
            layer.train()
        log_p = self.model(x).log_softmax(1)
        (-(log_p.exp() * log_p).sum(1).mean()).backward()
        for layer in self.layers:
            layer.eval()
            layer.weight.grad = layer.bias.grad = None


def _let_norm_layers_learn(model: nn.Module) -> list[nn.BatchNorm2d]:
    """Put a model into eval mode, let nothing but its BatchNorm layers learn, and return these layers."""
    layers = [m for m in model.eval().modules() if isinstance(m, nn.BatchNorm2d)]
    model.requires_grad_(False)
    for layer in layers:
        layer.requires_grad_(True)
    return layers


class CountingPBRS(Memory):
    """PBRS as Algorithm 1 of the paper reads: the classes in memory are counted anew for each sample."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._seen: Counter[int] = Counter()

    def _place(self, label: int, entropy: float | None) -> int | None:
        self._seen[label] += 1
        if len(self) < self.capacity:
            return len(self)
        held = Counter(self._labels)
        most = max(held.values())
        if held[label] < most:
            slots = [slot for slot, other in enumerate(self._labels) if held[other] == most]
        elif self._uniform() < held[label] / self._seen[label]:
            slots = [slot for slot, other in enumerate(self._labels) if other == label]
        else:
            return None
        return slots[int(self._uniform() * len(slots))]
