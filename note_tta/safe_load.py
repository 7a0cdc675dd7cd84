"""Read untrusted files of `torch.save`: tensors and plain values only, in bounded memory and time."""

from __future__ import annotations

import io
import pickletools
import zipfile
from pathlib import Path
from typing import IO, Any

import torch

from .files import write_atomically

_TUPLES = {"EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
_PUTS, _GETS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}, {"GET", "BINGET", "LONG_BINGET"}
_OLD_PICKLES = 5
_HEAVIEST = 100_000
"""The most values that a tuple may hold, including those of the tuples in it each time they occur."""


def load_plain(path: Path, map_location: torch.device | str = "cpu") -> Any:
    """What `torch.save` wrote to `path`, if it is tensors and plain values.

    It uses torch's `weights_only`, and also refuses a file that unpacks to more than its size, or with tuples
    that hold the same tuple twice, and so on: hashing such a tuple would take practically for ever.

    Raises:
        Exception: The file is damaged or crafted; a damaged pickle can raise nearly anything.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
                raise ValueError("it unpacks to more than its size")
            for name in archive.namelist():
                if name.endswith("/data.pkl"):
                    check_tuples(archive.read(name))
    else:  # torch's format before 1.6: some pickles one after another, then the tensors' bytes
        with path.open("rb") as file:
            for _ in range(_OLD_PICKLES):
                check_tuples(file)
    return torch.load(path, map_location=map_location, weights_only=True)


def save_plain(path: Path, content: Any) -> None:
    """Write tensors and plain values so that after a kill the file is either the old one or the new one."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(path, buffer.getvalue())


def check_tuples(pickled: bytes | IO[bytes]) -> None:
    """Refuse a pickle with tuples that unfold to far too many values, or with gaps in its memo.

    The hash of such a tuple would take practically for ever, and a large gap would reserve gigabytes. The
    instructions are followed without creating objects; only the number of values of each is counted.

    Example:
        >>> import pickle
        >>> check_tuples(pickle.dumps({"betas": (0.9, 0.999)}))
        >>> twice = ()
        >>> for _ in range(60):
        ...     twice = (twice, twice)
        >>> check_tuples(pickle.dumps(twice))
        Traceback (most recent call last):
        ...
        ValueError: it holds tuples of tuples of tuples without end
    """
    stack: list[int | None] = []  # None is a mark
    memo: dict[int, int] = {}
    for opcode, argument, _ in pickletools.genops(pickled):
        name = opcode.name
        if name in _GETS:
            stack.append(memo[int(str(argument))])
        elif name in _PUTS:
            place = len(memo) if argument is None else int(argument)
            if place > len(memo) + 1:
                raise ValueError("its memo is not filled in order")
            memo[place] = stack[-1] or 1
        elif name == "MARK":
            stack.append(None)
        elif name == "DUP":
            raise ValueError("nothing plain needs the instruction DUP")
        else:
            taken = _take(stack, opcode)
            weight = 1 + sum(taken) if name in _TUPLES else 1
            if weight > _HEAVIEST:
                raise ValueError("it holds tuples of tuples of tuples without end")
            stack += [weight] * len(opcode.stack_after)


def _take(stack: list[int | None], opcode: pickletools.OpcodeInfo) -> list[int]:
    """Pop what an instruction takes from the stack."""
    needs = [kind.name for kind in opcode.stack_before]
    taken: list[int] = []
    if "mark" in needs:
        while (weight := stack.pop()) is not None:
            taken.append(weight)
        needs = needs[: needs.index("mark")]
    for _ in needs:
        taken.append(stack.pop() or 1)
    return taken
