"""Several networks that are worked out together: a teacher, its student, an anchor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from .draft import Draft, Value


class Drafts:
    """Drafts by name, loaded from one value and making one value.

    In that value the tensors of the first draft, which is the method's model, go by their own names, those of
    each other one by `name/…`. The optimizer's memory is that of the draft that learns.

    Args:
        **drafts: The drafts. The first is the model's; one has an optimizer.
    """

    def __init__(self, **drafts: Draft) -> None:
        self.drafts = drafts
        self.pieces = sum(draft.pieces for draft in drafts.values())

    @property
    def piece_done(self) -> Callable[[], None] | None:
        """What is called after each piece of the work, whichever draft it is of."""
        return next(iter(self.drafts.values())).piece_done

    @piece_done.setter
    def piece_done(self, call: Callable[[], None] | None) -> None:
        for draft in self.drafts.values():
            draft.piece_done = call

    def __getitem__(self, name: str) -> Draft:
        return self.drafts[name]

    def load(self, value: Value) -> None:
        """Start from a value, of which nothing is changed."""
        for prefix, draft in self._by_prefix():
            own = {name: value.tensors[prefix + name] for name in draft.tensors}
            draft.load(Value(own, value.moments if draft.optimizer is not None else {}))

    def value(self) -> Value:
        """What was worked out, in tensors of its own."""
        tensors: dict[str, Tensor] = {}
        moments: dict[int, Mapping[str, Any]] = {}
        for prefix, draft in self._by_prefix():
            tensors |= prefixed(prefix, draft.tensors)
            moments |= draft.moments()
        return Value(tensors, moments).clone()

    def _by_prefix(self) -> Iterator[tuple[str, Draft]]:
        for index, (name, draft) in enumerate(self.drafts.items()):
            yield (f"{name}/" if index else ""), draft


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under longer names."""
    return {prefix + name: tensor for name, tensor in tensors.items()}
