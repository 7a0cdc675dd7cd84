"""Several networks that one update changes together: a teacher, its student, an anchor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from .draft import Draft, Value


class Drafts:
    """Drafts by name that start from one value and result in one value.

    In that value the tensors of the first draft, the method's model, keep their names; those of the others are
    called `draft/tensor`. The moments are those of the draft that has an optimizer.

    Args:
        **drafts: The drafts. The first is the model's; one has an optimizer.
    """

    def __init__(self, **drafts: Draft) -> None:
        self.drafts = drafts

    def report(self, done: Callable[[], None] | None) -> None:
        """From now on call `done` after each piece of the work, in any draft."""
        for draft in self.drafts.values():
            draft.report(done)

    def count_pieces(self, samples: int) -> int:
        """About how many pieces an update on so many samples has."""
        return sum(draft.count_pieces(samples) for draft in self.drafts.values())

    def __getitem__(self, name: str) -> Draft:
        return self.drafts[name]

    def load(self, value: Value) -> None:
        """Start from a value, which stays as it is."""
        for prefix, draft in self._by_prefix():
            own = {name: value.tensors[prefix + name] for name in draft.tensors}
            draft.load(Value(own, value.moments if draft.optimizer is not None else {}))

    def value(self) -> Value:
        """The result, in new tensors."""
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
