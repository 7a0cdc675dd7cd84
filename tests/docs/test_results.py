"""The published results are what `note-tta report` makes of the committed result files, byte for byte."""

from note_tta.report.build import build_report


def test_the_results_page_and_its_figures_are_those_of_the_result_files(root, tool, tmp_path):
    results = tool("published").RESULTS
    written = [path for path in build_report(results, tmp_path) if path.name != "index.html"]
    assert written
    stale = [
        str(path.relative_to(tmp_path))
        for path in written
        if (root / "docs" / path.relative_to(tmp_path)).read_bytes() != path.read_bytes()
    ]
    assert not stale, f"run `note-tta report {results} --out docs`"
