"""ResNet-20/32/44/56 for 32x32 images, with parameter-free shortcuts.

The state dict has the keys of the widely used public CIFAR-10 weights of these networks.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from .normalize import Normalize
from .resnet import stage


class PaddedBlock(nn.Module):
    """Two 3x3 convolutions; where shapes change, the shortcut drops pixels and pads channels with zeros."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.stride = stride
        self.new_channels = planes - inputs

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, inputs, H, W]` to `[B, planes, H / stride, W / stride]`."""
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(out)) + self._shortcut(x), inplace=True)

    def _shortcut(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            before = self.new_channels // 2
            x = F.pad(x, (0, 0, 0, 0, before, self.new_channels - before))
        return x


class SmallResNet(nn.Module):
    """Three stages of `PaddedBlock`s at 32, 16 and 8 pixels.

    Args:
        normalize: Input normalisation; its channel count is the network's.
        depth: Layers with weights: 20, 32, 44 or 56.
        num_classes: Outputs.
        width: Channels of the first stage, doubled by each further one; the published networks have 16.
    """

    def __init__(self, normalize: Normalize, depth: int, num_classes: int, *, width: int = 16) -> None:
        super().__init__()
        self.normalize = normalize
        self.conv1 = nn.Conv2d(normalize.mean.numel(), width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        blocks = (depth - 2) // 6
        self.layer1 = stage(PaddedBlock, width, width, blocks, stride=1)
        self.layer2 = stage(PaddedBlock, width, 2 * width, blocks, stride=2)
        self.layer3 = stage(PaddedBlock, 2 * width, 4 * width, blocks, stride=2)
        self.linear = nn.Linear(4 * width, num_classes)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` in [0, 1] to logits `[B, num_classes]`."""
        x = F.relu(self.bn1(self.conv1(self.normalize(x))), inplace=True)
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))
