"""A small classifier of handwritten digits, trained in a few seconds. Use your own model instead."""

import torch
from torch import nn

import note_tta as tta
from note_tta.data import open_dataset
from note_tta.models import build_model


def train_digits(norm: str = "iabn", samples: int = 1500, epochs: int = 4, width: int = 4) -> nn.Module:
    """Train on clean 32x32 digits for a few seconds.

    Args:
        norm: "iabn" for NOTE, or "bn" for the baselines.
        samples: The number of training images.
        epochs: The number of passes over them.
        width: Channels of the first convolution.
    """
    train = open_dataset("digits").domain("train")
    x, y = train.inputs(slice(samples)), train.labels[:samples]
    torch.manual_seed(0)
    model = build_model("digits_cnn", num_classes=10, width=width)
    if norm == "iabn":
        model = tta.convert_iabn(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    steps = epochs * -(-samples // 32)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(epochs):
        for part in torch.randperm(samples).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()
