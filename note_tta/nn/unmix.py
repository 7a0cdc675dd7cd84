"""UnMix-TNS: BatchNorm whose statistics are a mixture of components, each moved by the samples that resemble it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .functional import normalize, widened
from .iabn import refuse_own_forward, swap_modules

TEMPERATURE = 0.07
"""How sharply a sample is assigned to the components that its means resemble."""

SPREAD = 0.5
"""The initial share of the source's variance that lies between the components (α in the paper)."""


class UnMixTNS2d(nn.BatchNorm2d):
    """Unmixing Test-time Normalization Statistics over `[B, C, H, W]` (Tomar et al., ICLR 2024).

    The layer has several components, each with a mean and a variance per channel. The statistics of a sample are
    mixed into the components that it resembles, and the sample is normalised with the statistics of this mixture.
    So its answer does not depend on its batch. In train mode, or with `moves` set, the components then move
    towards the samples of the batch; in eval mode they stay. `running_mean` and `running_var` are the source's
    statistics and only set the initial components.

    The authors' layer moves in every pass, even in eval mode, so a second pass moves it again. Therefore this layer
    has a switch, `moves`. As in their code, a sample's own term in the variance of the components,
    (1 − q)·q·(mean − M)², is left out, and each sample is normalised by itself.

    Args:
        num_features: Number of channels C.
        components: The number of components (G in the paper).
        batch_size: The batch size at which components move by the full momentum; smaller batches move them less.
        eps: Added to variances.
        momentum: How far a component moves per batch.
        affine: Learn a scale and a shift per channel.
        device: The device of the parameters.
        dtype: The dtype of the parameters.

    Example:
        >>> layer = UnMixTNS2d(3, components=4)
        >>> layer(torch.randn(2, 3, 8, 8)).shape, layer.component_mean.shape
        (torch.Size([2, 3, 8, 8]), torch.Size([4, 3]))
    """

    component_mean: Tensor
    component_var: Tensor

    def __init__(
        self,
        num_features: int,
        components: int = 16,
        batch_size: int = 64,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, device=device, dtype=dtype)
        self.components, self.batch_size, self.moves = components, batch_size, False
        self.register_buffer("component_mean", torch.zeros(components, num_features, device=device))
        self.register_buffer("component_var", torch.ones(components, num_features, device=device))

    def spread(self, generator: torch.Generator | None = None) -> None:
        """Place the components around the source's mean, so that the mixture has the source's expected variance."""
        assert self.running_mean is not None and self.running_var is not None
        mean, var = self.running_mean.float(), self.running_var.float()
        share = SPREAD if self.components > 1 else 0.0
        width = math.sqrt(share * self.components / max(self.components - 1, 1))
        draws = torch.randn(self.component_mean.shape, generator=generator)
        with torch.no_grad():
            self.component_mean.copy_(mean + width * var.sqrt() * draws.to(mean))
            self.component_var.copy_(((1 - share) * var).expand_as(self.component_var))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each sample with the mixture; then move the components, if the layer moves."""
        self._check_input_dim(x)
        wide = widened(x)
        sample_var, sample_mean = torch.var_mean(wide, dim=(2, 3), correction=0)
        means, variances = self.component_mean.to(wide.dtype), self.component_var.to(wide.dtype)
        assigned = assignments(sample_mean.detach(), means)
        mean, var = mixture(sample_mean, sample_var, means, variances, assigned)
        if self.training or self.moves:
            self._move(sample_mean.detach(), sample_var.detach(), assigned)
        return normalize(wide, mean, var, self.weight, self.bias, self.eps).to(x.dtype)

    @torch.no_grad()
    def _move(self, sample_mean: Tensor, sample_var: Tensor, assigned: Tensor) -> None:
        share = 1 - (1 - (self.momentum or 0.0)) ** (len(sample_mean) / self.batch_size)
        for component, sample in ((self.component_mean, sample_mean), (self.component_var, sample_var)):
            pull = assigned.T @ sample - assigned.sum(dim=0)[:, None] * component.to(sample.dtype)
            component.add_((share * pull / len(sample)).to(component.dtype))

    def extra_repr(self) -> str:
        """Return the settings of this layer."""
        return f"{self.num_features}, components={self.components}, eps={self.eps}, momentum={self.momentum}"


def assignments(sample_mean: Tensor, component_mean: Tensor) -> Tensor:
    """How much each sample `[B, C]` belongs to each component `[G, C]`, by the angle of their means, as `[B, G]`."""
    likeness = F.cosine_similarity(sample_mean[:, None], component_mean[None], dim=2)
    return (likeness / TEMPERATURE).softmax(dim=1)


def mixture(
    sample_mean: Tensor, sample_var: Tensor, means: Tensor, variances: Tensor, assigned: Tensor
) -> tuple[Tensor, Tensor]:
    """Return mean and variance `[B, C]` of the mixture, after each sample is mixed into its assigned components."""
    weight = assigned[..., None]
    mixed_means = torch.lerp(means[None], sample_mean[:, None], weight)
    mixed_variances = torch.lerp(variances[None], sample_var[:, None], weight)
    between, mean = torch.var_mean(mixed_means, dim=1, correction=0)
    return mean, mixed_variances.mean(dim=1) + between


def convert_unmix_tns(
    model: nn.Module,
    components: int = 16,
    *,
    batch_size: int = 64,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Replace every BatchNorm2d in `model` by an UnMix-TNS with the same parameters and source statistics.

    It works in place, as `convert_iabn` does. BatchNorm1d and BatchNorm3d layers are not changed.

    Args:
        model: A model with BatchNorm2d layers that keep running statistics.
        components: See `UnMixTNS2d`. The paper has 16, and 128 for streams of mixed domains.
        batch_size: See `UnMixTNS2d`. The paper has 64, and 16 on ImageNet.
        generator: Source of randomness for the initial components; None means a new generator with torch's default
            seed.

    Returns:
        `model`, or the layer that replaces it.

    Raises:
        ValueError: There is no BatchNorm2d layer, or one cannot be replaced.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        >>> convert_unmix_tns(model)[1]
        UnMixTNS2d(8, components=16, eps=1e-05, momentum=0.1)
    """
    for name, value in {"components": components, "batch_size": batch_size}.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    generator = torch.Generator() if generator is None else generator
    replaced: dict[nn.Module, nn.Module] = {}
    for layer_name, layer in model.named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            _refuse_unsuitable(layer_name, layer)
            replaced[layer] = _converted(layer, components, batch_size, generator)
    if not replaced:
        raise ValueError(
            f"UnMix-TNS replaces BatchNorm2d layers, but {type(model).__name__} has none: "
            "use NOTE, SAR or RoTTA, which adapt other norm layers"
        )
    return swap_modules(model, replaced)


def _refuse_unsuitable(name: str, layer: nn.BatchNorm2d) -> None:
    if layer.running_mean is None:
        raise ValueError(
            f"layer {name!r} has no running statistics to start from (track_running_stats=False)"
        )
    refuse_own_forward(layer, UnMixTNS2d.forward)


def _converted(
    layer: nn.BatchNorm2d, components: int, batch_size: int, generator: torch.Generator
) -> nn.Module:
    """Make an UnMix-TNS layer that shares the layer's parameters, running statistics, hooks and mode."""
    assert layer.running_mean is not None
    new = UnMixTNS2d(1, device="meta")
    new.__dict__.update({key: v for key, v in vars(layer).items() if key not in ("alpha", "correction")})
    new.components, new.batch_size, new.moves = components, batch_size, False
    new.momentum = 0.1 if layer.momentum is None else layer.momentum
    room = torch.empty(components, layer.num_features, device=layer.running_mean.device)
    new._buffers = {**layer._buffers, "component_mean": room, "component_var": room.clone()}
    new.spread(generator)
    return new
