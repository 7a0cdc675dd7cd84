"""Find and run the Python blocks of a Markdown page, and write their output into the page or compare it.

A ```` ```python ```` block is run; blocks of one page share their names, as cells of a notebook do. A
```` ```text ```` block titled "Output" right after it holds what it prints. `# include "file"` in a block
stands for the text of that file.

    python docs/tools/code_blocks.py docs/quickstart.md     # run the page and rewrite its outputs
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[a-z]+[^\n]*)\n(?P<body>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL
)
_INCLUDE = re.compile(r'^(?P<indent> *)# include "(?P<file>[^"]+)"$', re.MULTILINE)
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """A Python block: its code, the line it starts at, and the output that the page shows, if any.

    `span` is where in the page the output's text stands.
    """

    code: str
    line: int
    output: str | None
    span: tuple[int, int] | None
    indent: str


def find_blocks(text: str) -> list[Block]:
    """The Python blocks of a page, in order."""
    fences = list(_FENCE.finditer(text))
    blocks = []
    for i, fence in enumerate(fences):
        if fence["info"].split()[0] != "python":
            continue
        code = include_files(textwrap.dedent(fence["body"]))
        after = fences[i + 1] if i + 1 < len(fences) else None
        shown = (
            after is not None
            and after["info"].startswith('text title="Output"')
            and not text[fence.end() : after.start()].strip()
        )
        blocks.append(
            Block(
                code,
                text.count("\n", 0, fence.start()) + 2,
                textwrap.dedent(after["body"]) if shown and after else None,
                after.span("body") if shown and after else None,
                fence["indent"],
            )
        )
    return blocks


def include_files(text: str) -> str:
    """`text` with every `# include "file"` line replaced by that file of the project, indented alike."""
    return _INCLUDE.sub(
        lambda line: textwrap.indent(
            (ROOT / line["file"]).read_text(encoding="utf-8").rstrip(), line["indent"]
        ),
        text,
    )


def run_page(path: Path) -> list[tuple[Block, str]]:
    """Run a page's blocks in an empty folder; return what each of them printed."""
    page = sys.modules["__page__"] = ModuleType("__page__")  # so that what a page defines can be pickled
    namespace: dict[str, Any] = page.__dict__
    done = []
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block in find_blocks(path.read_text(encoding="utf-8")):
                code = compile("\n" * (block.line - 1) + block.code, str(path), "exec", dont_inherit=True)
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(code, namespace)
                done.append((block, printed.getvalue()))
        finally:
            os.chdir(before)
            del sys.modules["__page__"]
    return done


def differs(shown: str, printed: str) -> str:
    """Say why an output differs from the one shown; empty if it does not.

    Words and whole numbers must be the same: they count things. Numbers with a decimal point may differ by 15
    percent points or a third, which is what another seed does to the small models of these pages: on another
    kind of processor sums round otherwise, and a training then goes another way.
    """
    if _NUMBER.sub("#", shown).split() != _NUMBER.sub("#", printed).split():
        return f"shown:\n{shown}\nprinted:\n{printed}"
    for expected, found in zip(_numbers(shown), _numbers(printed), strict=True):
        slack = 0 if expected == int(expected) and found == int(found) else max(15.0, abs(expected) / 3)
        if abs(expected - found) > slack:
            return f"{expected:g} is shown, {found:g} was printed:\n{printed}"
    return ""


def write_outputs(path: Path) -> int:
    """Run a page and write its outputs into it; return the number of outputs that changed."""
    text = path.read_text(encoding="utf-8")
    changed = 0
    for block, printed in reversed(run_page(path)):
        if block.span is not None and block.output != printed:
            text = text[: block.span[0]] + textwrap.indent(printed, block.indent) + text[block.span[1] :]
            changed += 1
    path.write_text(text, encoding="utf-8")
    return changed


def _numbers(text: str) -> list[float]:
    return [float(match.replace(",", "")) for match in _NUMBER.findall(text)]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}: {write_outputs(Path(name).resolve())} outputs changed")
