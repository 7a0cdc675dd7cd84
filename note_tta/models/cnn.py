"""Plain convolutional networks: for windows of sensor readings and for small grey digits."""

from __future__ import annotations

from torch import Tensor, nn

from .normalize import Normalize


class SensorCNN(nn.Module):
    """One-dimensional convolutions, each followed by BatchNorm, then one linear layer.

    The paper's networks for wearables: four convolutions for HARTH, two for ExtraSensory. It leaves kernel
    sizes and widths open; here each convolution doubles the channels, and in the deep network each but the
    last is followed by a max-pool over pairs of readings. The linear layer sees the mean over time, so the
    length of a window is free.

    Args:
        normalize: Input scaling; its channel count is the network's.
        num_classes: Outputs.
        convolutions: How many, 4 or 2 in the paper.
        width: Channels after the first convolution.
        kernel: Odd kernel size.
        pool: Halve the length between convolutions.
    """

    def __init__(
        self,
        normalize: Normalize,
        num_classes: int,
        *,
        convolutions: int,
        width: int,
        kernel: int,
        pool: bool,
    ) -> None:
        super().__init__()
        self.normalize = normalize
        inputs = normalize.mean.numel()
        layers: list[nn.Module] = []
        for index in range(convolutions):
            outputs = width * 2**index
            convolution = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
            layers += [convolution, nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]
            if pool and index < convolutions - 1:
                layers.append(nn.MaxPool1d(2))
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map windows `[B, C, L]` to logits `[B, num_classes]`."""
        return self.fc(self.features(self.normalize(x)).mean(2))


class DigitsCNN(nn.Module):
    """Six 3x3 convolutions of strides 1, 1, 2, 1, 2, 1, each with BatchNorm, for 32x32 grey digits.

    Args:
        normalize: Input normalisation; its channel count is the network's.
        num_classes: Outputs.
        width: Channels of the first two convolutions, doubled at each stride of 2.
    """

    def __init__(self, normalize: Normalize, num_classes: int, *, width: int = 16) -> None:
        super().__init__()
        self.normalize = normalize
        inputs, outputs = normalize.mean.numel(), width
        layers: list[nn.Module] = []
        for stride in (1, 1, 2, 1, 2, 1):
            outputs *= stride
            convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` in [0, 1] to logits `[B, num_classes]`."""
        return self.fc(self.features(self.normalize(x)).mean((2, 3)))
