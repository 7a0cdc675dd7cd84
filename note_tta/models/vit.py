"""A small vision transformer for 32x32 images: LayerNorm throughout, no BatchNorm."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .normalize import Normalize


class Attention(nn.Module):
    """Self-attention of several heads over tokens `[B, T, width]`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Let every token look at all tokens of its own sample."""
        batch, tokens, width = x.shape
        parts = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        return self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a LayerNorm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens `[B, T, width]` to tokens."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Patches of 4x4 pixels as tokens, a class token, and `depth` blocks.

    Norm layers go by the names that are customary for vision transformers (`blocks.0.norm1`, ..., `norm`).

    Args:
        normalize: Input normalisation; its channel count is the network's.
        num_classes: Outputs.
        width: Numbers per token, a multiple of 64 or less than 128.
        depth: Blocks.
        side: Height and width of the images.
    """

    def __init__(
        self, normalize: Normalize, num_classes: int, *, width: int = 192, depth: int = 6, side: int = 32
    ) -> None:
        super().__init__()
        patch, heads = 4, max(1, width // 64)
        if width % heads:
            raise ValueError(f"width must be a multiple of 64 or less than 128, got {width}")
        self.normalize = normalize
        self.side = side
        self.patch_embed = nn.Conv2d(normalize.mean.numel(), width, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (side // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, num_classes)
        for tensor in (self.cls_token, self.pos_embed):
            nn.init.trunc_normal_(tensor, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Map images `[B, C, side, side]` in [0, 1] to logits `[B, num_classes]`."""
        if x.shape[2:] != (self.side, self.side):
            raise ValueError(f"images must be {self.side}x{self.side}, got {x.shape[2]}x{x.shape[3]}")
        tokens = self.patch_embed(self.normalize(x)).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], dim=1) + self.pos_embed
        return self.head(self.norm(self.blocks(tokens))[:, 0])
