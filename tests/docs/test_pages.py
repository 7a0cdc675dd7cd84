"""Every Python block on the site runs, and prints what the page shows."""

import ast
import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.rglob("*.md")
    if "```python" in path.read_text(encoding="utf-8")
)
PAGES.append("../README.md")
QUICK = {"../README.md", "index.md", "api/index.md"}


def test_the_pages_are_found():
    assert {"quickstart.md", "adapt.md", "time-series.md", "add-a-method.md"} <= set(PAGES)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page in QUICK else pytest.mark.slow) for page in PAGES]
)
def test_the_blocks_run_and_print_what_is_shown(page, tool, tmp_path, monkeypatch):
    monkeypatch.setenv("NOTE_TTA_DATA", str(tmp_path))  # nothing there: pages must do without downloads
    run(page, tool)


@pytest.mark.slow
@pytest.mark.real_data
def test_the_time_series_page_runs_on_the_real_recordings(data_root, tool):
    if not (data_root / "HAPT").is_dir():
        pytest.skip("HAPT is not in the data root")
    run("time-series.md", tool)


def run(page, tool):
    import note_tta as tta

    blocks = tool("code_blocks")
    registered = dict(tta.METHODS)
    try:
        for block, printed in blocks.run_page(DOCS / page):
            if block.output is not None:
                assert blocks.differs(block.output, printed) == "", f"{page}, line {block.line}"
    finally:
        tta.METHODS.clear()
        tta.METHODS.update(registered)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_python(page, tool):
    for block in tool("code_blocks").find_blocks((DOCS / page).read_text(encoding="utf-8")):
        ast.parse(block.code)


@pytest.mark.slow
def test_the_transcript_can_be_replayed(tool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "first-steps.md").read_text(encoding="utf-8")
    session = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    examples = doctest.DocTestParser().get_examples(session)
    assert len(examples) > 25
    namespace = {}
    for example in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(example.source, "<first-steps>", "single"), namespace)
            except ValueError as error:
                assert example.exc_msg == f"ValueError: {error}\n"
                continue
        assert tool("code_blocks").differs(example.want, printed.getvalue()) == "", example.source


PAGE = """# Page

```python
total = 40
```

??? note "More"

    ```python
    print("so", total + 2)
    ```

    ```text title="Output"
    so 42
    ```

```bash
rm -rf nothing
```
"""


def test_blocks_share_names_and_know_their_output(tool, tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    (first, nothing), (second, printed) = tool("code_blocks").run_page(path)
    assert (first.output, nothing) == (None, "")
    assert (second.output, printed) == ("so 42\n", "so 42\n")
    assert second.line == 10


def test_an_output_is_written_into_its_page_in_place(tool, tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE.replace("so 42", "so far nothing"))
    assert tool("code_blocks").write_outputs(path) == 1
    assert path.read_text() == PAGE
    assert tool("code_blocks").write_outputs(path) == 0


def test_an_error_names_the_page_and_the_line(tool, tmp_path):
    import traceback

    path = tmp_path / "page.md"
    path.write_text("\n\n```python\nx = 1\nx / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as failure:
        tool("code_blocks").run_page(path)
    frame = traceback.extract_tb(failure.value.__traceback__)[-1]
    assert (frame.filename, frame.lineno) == (str(path), 5)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("error 80.3 %", "error  79.0 %", True),
        ("error 80.3 %", "error 60.8 %", True),
        ("error 80.3 %", "error 50.0 %", False),
        ("error 16.4 %", "error 24.6 %", True),
        ("error 16.4 %", "error 35.0 %", False),
        ("1,200 images", "1,100 images", False),
        ("64 samples, error 12.0 %", "64 samples, error 12.5 %", True),
        ("1,200 images", "1,200 pictures", False),
        ("a 1", "a 1 2", False),
    ],
)
def test_words_must_agree_and_numbers_nearly(tool, shown, printed, same):
    assert (tool("code_blocks").differs(shown, printed) == "") is same
