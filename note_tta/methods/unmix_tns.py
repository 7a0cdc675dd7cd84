"""UnMix-TNS: statistics that are split into components and follow the stream, without gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..nn.unmix import UnMixTNS2d, convert_unmix_tns
from .backbone import Backbone, Output, refuse_unsuitable, structural_copy
from .draft import Draft, Value, copy_all
from .method import Method
from .norm import components as components_of
from .parts import Randomness
from .settings import check_count, check_share


class UnMixTNS(Method):
    """Replace every BatchNorm2d layer by `UnMixTNS2d`, whose components move with each batch.

    A sample's answer does not depend on the other samples of its batch. But the components depend on the batch
    boundaries: a batch of B samples moves them by 1 − (1 − momentum)^(B / batch_size) at once. `model` has its own
    layers in place of the caller's, and their components are among its tensors.

    The layers alone, made by `convert_unmix_tns`, can be used with other methods. TENT, ROID and similar methods move
    the components in each pass, NOTE in its updates. The paper's learning rates with these layers are 1e-5 on CIFAR
    and 2.5e-6 on ImageNet-C.

    Args:
        model: A model with BatchNorm2d layers; it is not changed.
        components: The number of components per layer; the paper has 128 for streams of mixed domains.
        momentum: How far the components move per batch of `batch_size`; 0 keeps them fixed.
        batch_size: The batch size that `momentum` refers to. The paper has 64, and 16 on ImageNet-C.
        generator: Source of randomness for the initial components; None means a new generator with torch's default
            seed.
        output: See `Method`.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 10))
        >>> method = UnMixTNS(model)
        >>> method(torch.rand(64, 3, 8, 8)).shape
        torch.Size([64, 10])
        >>> type(method.model[1]).__name__, type(model[1]).__name__
        ('UnMixTNS2d', 'BatchNorm2d')
    """

    title = "UnMix-TNS"
    citation = "Tomar et al., ICLR 2024"
    needs_norm = "batch"
    keeps = "16 statistics per layer"
    licence = "none given"

    def __init__(
        self,
        model: nn.Module | Backbone,
        *,
        components: int = 16,
        momentum: float = 0.1,
        batch_size: int = 64,
        generator: torch.Generator | None = None,
        output: Output = None,
    ) -> None:
        check_count("components", components, 1)
        check_count("batch_size", batch_size, 1)
        check_share("momentum", momentum)
        self.random = Randomness(generator)
        if isinstance(model, nn.Module):
            refuse_unsuitable(model)
            own = structural_copy(model, {})
            model = convert_unmix_tns(own, components, batch_size=batch_size, generator=self.generator)
        super().__init__(model, components_of, output=output)
        self.components, self.momentum, self.batch_size = components, momentum, batch_size

    @property
    def generator(self) -> torch.Generator:
        """The source of randomness."""
        return self.random.generator

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch, and move the components towards it."""
        if self.paused:
            return self.all_finite(self.predict(x))
        draft: Draft = self.made("draft", lambda: Draft(self.backbone, prepare=self._with_batch_size))
        draft.load(Value(self.tensors, {}))
        logits = self.all_finite(draft.predict(x, momentum=self.momentum))
        value = draft.value()
        if self.count_update(value.is_finite()):
            copy_all(self.tensors, value.tensors)
        return logits

    def _with_batch_size(self, module: nn.Module) -> nn.Module:
        for layer in module.modules():
            if isinstance(layer, UnMixTNS2d):
                layer.batch_size = self.batch_size
        return module
