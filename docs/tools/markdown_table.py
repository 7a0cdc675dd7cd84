"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(heads: Sequence[str], rows: Iterable[Iterable[object]], *, words: int = 1) -> str:
    """A table whose first columns, `words` of them, hold words. The others hold numbers, which stand at the right."""
    rule = "|" + "---|" * words + "---:|" * (len(heads) - words)
    lines = [f"| {' | '.join(map(str, line))} |" for line in (heads, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]])
