"""Options that take several values after one name, or none: `--seeds 0 1 2`, `--ray`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Any

from typer.core import TyperCommand


def spread(args: Sequence[str], several: Collection[str], positional: Collection[str] = ()) -> list[str]:
    """Rewrite arguments for the parser: repeat an option before each of its values, and add an address to `--ray`.

    Options in `several` take all words up to the next option or `positional` word.

    Example:
        >>> spread(["table1", "--seeds", "0", "1", "--ray"], ["--seeds"])
        ['table1', '--seeds', '0', '--seeds', '1', '--ray', 'local']
    """
    words: list[str] = []
    option = ""  # whose values follow
    for word, after in zip_longest(args, args[1:], fillvalue="-"):
        value_follows = not after.startswith("-") and after not in positional
        if word.startswith("-") or word in positional:
            option = word if word in several and value_follows else ""
            words += [] if option else [word]
            words += ["local"] if word == "--ray" and not value_follows else []
        else:
            words += [option, word] if option else [word]
    return words


def taking_several(several: Collection[str], positional: Collection[str] = ()) -> type[TyperCommand]:
    """A command class whose arguments go through `spread` first."""

    class SeveralValues(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            rest: list[str] = super().parse_args(ctx, spread(args, several, positional))
            return rest

    return SeveralValues
