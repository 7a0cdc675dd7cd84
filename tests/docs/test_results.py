"""The published results are what `note-tta report` makes of the committed result files, byte for byte."""

import matplotlib
import pytest

from note_tta.report.build import build_report


def drawn_by_another(path):
    """Whether a picture was drawn by another version of matplotlib, whose bytes differ."""
    version = f"Matplotlib v{matplotlib.__version__},"
    return path.suffix == ".svg" and version not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("folder", "archive"), [("", True), ("archive", False)])
def test_the_results_pages_and_their_figures_are_those_of_the_result_files(
    root, tool, tmp_path, folder, archive
):
    published = tool("published")
    results = published.RESULTS if archive else published.ARCHIVE
    made = build_report(results, tmp_path, published.ARCHIVE if archive else None)
    written = [path.relative_to(tmp_path) for path in made]
    committed = {path: root / "docs" / folder / path for path in written if path.name != "index.html"}
    assert all(path.is_file() for path in committed.values())
    stale = [
        str(path)
        for path, there in committed.items()
        if there.read_bytes() != (tmp_path / path).read_bytes() and not drawn_by_another(there)
    ]
    assert stale == [], f"build the pages anew, as {published.__file__} says"
