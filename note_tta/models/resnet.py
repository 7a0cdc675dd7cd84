"""ResNets for 32x32 images and for ImageNet, with torchvision's state-dict keys."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from .normalize import Normalize

Depths = tuple[int, int, int] | tuple[int, int, int, int]
Stem = Literal["cifar", "imagenet"]


def _conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


def _projection(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """Return the 1x1 shortcut, or None where the block's shapes agree."""
    if inputs == outputs and stride == 1:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: the block of ResNet-18 and 34."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3x3(inputs, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _conv3x3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _projection(inputs, planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, inputs, H, W]` to `[B, planes, H / stride, W / stride]`."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + shortcut)


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride) and 1x1 convolutions and a shortcut: the block of ResNet-50."""

    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = planes * self.expansion
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _conv3x3(planes, planes, stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _projection(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, inputs, H, W]` to `[B, 4 * planes, H / stride, W / stride]`."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet(nn.Module):
    """Three or four stages of residual blocks behind one of two stems.

    The keys of the state dict are torchvision's for both stems, so weight files for the ImageNet networks
    load unchanged.

    Args:
        normalize: Input normalisation; its channel count is the network's.
        block: `BasicBlock` or `Bottleneck`.
        depths: Blocks in each stage.
        num_classes: Outputs.
        width: Channels of the first stage, doubled by each further one; the published networks have 64.
        stem: `"cifar"` is a 3x3 convolution at full resolution, `"imagenet"` a 7x7 one of stride 2 and a
            max-pool.
    """

    def __init__(
        self,
        normalize: Normalize,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Depths,
        num_classes: int,
        *,
        width: int = 64,
        stem: Stem = "cifar",
    ) -> None:
        super().__init__()
        channels = normalize.mean.numel()
        self.normalize = normalize
        if stem == "cifar":
            self.conv1 = _conv3x3(channels, width)
            self.maxpool: nn.Module = nn.Identity()
        else:
            self.conv1 = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
            self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        planes = [width * 2**stage for stage in range(len(depths))]
        inputs = [width] + [p * block.expansion for p in planes]
        self.layer1 = stage(block, inputs[0], planes[0], depths[0], stride=1)
        self.layer2 = stage(block, inputs[1], planes[1], depths[1], stride=2)
        self.layer3 = stage(block, inputs[2], planes[2], depths[2], stride=2)
        self.layer4: nn.Module = nn.Identity()
        if len(depths) == 4:
            self.layer4 = stage(block, inputs[3], planes[3], depths[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs[-1], num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Map images `[B, C, H, W]` in [0, 1] to logits `[B, num_classes]`."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(self.normalize(x)))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def stage(block: Any, inputs: int, planes: int, depth: int, *, stride: int) -> nn.Sequential:
    """Blocks of one width; the first one has the stride."""
    later = (block(planes * block.expansion, planes, 1) for _ in range(depth - 1))
    return nn.Sequential(block(inputs, planes, stride), *later)
