"""The notebook `examples/quickstart.ipynb`: the quickstart page, cell by cell, executed.

`python docs/tools/notebook.py` writes it.
"""

from __future__ import annotations

import re
import tempfile
import textwrap

import nbformat
from code_blocks import ROOT, find_blocks
from nbclient import NotebookClient
from nbformat import NotebookNode

PAGE, NOTEBOOK = ROOT / "docs" / "quickstart.md", ROOT / "examples" / "quickstart.ipynb"
_PYTHON = re.compile(r"^ *```python.*?^ *```[ ]*$", re.MULTILINE | re.DOTALL)
_OUTPUT = re.compile(r'```text title="Output"\n.*?^```[ ]*$', re.MULTILINE | re.DOTALL)
_DETAILS = re.compile(r'^\?\?\? note "(.*)"$', re.MULTILINE)
_REFERENCE = re.compile(r"\[(`[^`]+`)\]\[[^\]]+\]")
_LINK = re.compile(r"\]\((\w[\w-]*\.md)\)")


def make_notebook(text: str) -> NotebookNode:
    """A page as a notebook: words and Python blocks as cells, outputs left to the kernel."""
    words = [_plain(part) for part in _PYTHON.split(text)]
    cells = [nbformat.v4.new_markdown_cell(words[0])]
    for block, after in zip(find_blocks(text), words[1:], strict=True):
        cells.append(nbformat.v4.new_code_cell(block.code.strip()))
        if after:
            cells.append(nbformat.v4.new_markdown_cell(after))
    for i, cell in enumerate(cells):
        cell["id"] = f"cell-{i}"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=kernel)


def execute(notebook: NotebookNode) -> NotebookNode:
    """Run every cell in an empty folder; an error stops it."""
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=300, kernel_name="python3", record_timing=False, coalesce_streams=True
        )
        client.execute(cwd=folder)
    notebook.metadata.pop("language_info", None)
    return notebook


def _plain(text: str) -> str:
    """Remove the parts of MkDocs' Markdown that a notebook does not support."""
    text = _DETAILS.sub(r"**\1**", _OUTPUT.sub("", text))
    text = _LINK.sub(r"](../docs/\1)", _REFERENCE.sub(r"\1", text))
    return re.sub(r"\n{3,}", "\n\n", textwrap.dedent(text)).strip()


if __name__ == "__main__":
    nbformat.write(execute(make_notebook(PAGE.read_text(encoding="utf-8"))), NOTEBOOK)
