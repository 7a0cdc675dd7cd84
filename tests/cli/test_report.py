import pytest

from note_tta.experiments.cell import Cell, Stream
from note_tta.experiments.store import Record, Store


@pytest.fixture
def results(tmp_path):
    store = Store(tmp_path / "results")
    for i, method in enumerate(("source", "tent", "note")):
        norm = "iabn" if method == "note" else "bn"
        stream = Stream("kitti", "rain", "chronological")
        cell = Cell(stream, method, model="resnet50_imagenet", norm=norm)
        result = {"error": 30.0 - i, "samples": 10, "labels": [0, 1, 1], "wrong": [2, 1, i]}
        store.save(Record(cell, result, {"commit": "abc"}))
    return store.folder


def test_it_writes_a_page_a_document_tables_and_figures(results, tmp_path, program, capsys):
    out = tmp_path / "out"
    assert program("report", results, "--out", out) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "details-kitti.md",
        "figures",
        "index.html",
        "results.md",
        "tables.tex",
    ]
    assert capsys.readouterr().out.startswith(f"The page is {out / 'index.html'}, with results.md")
    assert "| NOTE | **28.0** (10.9 ± 3.6, +17.1) |" in (out / "results.md").read_text()


def test_an_empty_folder_is_one_line_and_exit_code_2(tmp_path, program, capsys):
    assert program("report", tmp_path / "none") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: no results in {tmp_path / 'none'}; make some with: note-tta reproduce")
    assert error.count("\n") == 1


def test_results_of_another_version_are_one_line_and_exit_code_2(results, program, capsys):
    (path,) = results.glob("kitti-*.jsonl")
    path.write_text(path.read_text().replace('"schema":2', '"schema":7'))
    assert program("report", results) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        f"error: {path}, line 1 has result schema 7, but this version of note-tta reads 2"
    )
    assert error.count("\n") == 1
