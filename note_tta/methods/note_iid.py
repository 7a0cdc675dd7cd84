"""NOTE*: NOTE for streams that are known to be i.i.d."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..nn.iabn import IABN
from .backbone import Backbone
from .norm import batch_norms
from .tent import TENT


class NOTEIID(TENT):
    """The paper's NOTE*, which is TENT on a model with IABN: no memory, one Adam step per batch.

    If samples are known to be i.i.d., the batch is as balanced as the memory of PBRS and more recent, and the
    learning rate can be ten times that of NOTE. A model without IABN is refused, because NOTE* would then be TENT.

    Args:
        model: A model with IABN.
        **settings: See `TENT`.
    """

    title = "NOTE*"
    citation = "Gong et al., NeurIPS 2022"
    needs_norm = "IABN"
    licence = "MIT"
    trained_with = "iabn"

    def __init__(self, model: nn.Module | Backbone, **settings: Any) -> None:
        super().__init__(model, **settings)
        if not any(isinstance(layer, IABN) for layer in batch_norms(self.backbone.module).values()):
            raise ValueError(
                f"{type(model).__name__} has no IABN layer, and NOTE* without IABN is TENT: "
                "convert the model with convert_iabn, or use TENT"
            )
