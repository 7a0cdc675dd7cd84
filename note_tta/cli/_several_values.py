"""Options that take several values after one name, or none: `--seeds 0 1 2`, `--ray`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from typer.core import TyperCommand


def spread(
    args: Sequence[str],
    several: Mapping[str, Callable[[str], bool]],
    optional: Mapping[str, str],
    positional: Collection[str] = (),
) -> list[str]:
    """Rewrite arguments for the parser: the option's name before each of its values.

    Args:
        args: The arguments as typed.
        several: Options that take all values up to the next option, each with a test of what is a value.
        optional: Options that need no value, with their value if none is given.
        positional: Words that are never the value of an option.

    Example:
        >>> spread(["table1", "--seeds", "0", "1", "--ray"], {"--seeds": str.isdigit}, {"--ray": "local"})
        ['table1', '--seeds', '0', '--seeds', '1', '--ray', 'local']
    """
    spread_args: list[str] = []
    i = 0
    while i < len(args):
        word = args[i]
        i += 1
        if word in several:
            fits, first = several[word], i
            while i < len(args) and not args[i].startswith("-") and (i == first or fits(args[i])):
                if args[i] in positional:
                    break
                spread_args += [word, args[i]]
                i += 1
            if i == first:
                spread_args.append(word)
        elif word in optional:
            has_value = i < len(args) and not args[i].startswith("-") and args[i] not in positional
            spread_args += [word, args[i] if has_value else optional[word]]
            i += has_value
        else:
            spread_args.append(word)
    return spread_args


def is_pair(word: str) -> bool:
    """Whether a word has the form `name=value`."""
    return "=" in word


def taking_several(
    several: Mapping[str, Callable[[str], bool]],
    optional: Mapping[str, str],
    positional: Collection[str] = (),
) -> type[TyperCommand]:
    """A command class whose arguments go through `spread` first."""

    class SeveralValues(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            rest: list[str] = super().parse_args(ctx, spread(args, several, optional, positional))
            return rest

    return SeveralValues
