"""The pages' figures of fleets and of the service are those of the measurements."""

from functools import partial

import matplotlib
import pytest

from benchmarks.measure import Figure, write_figures


@pytest.fixture
def folder(tmp_path):
    write = lambda name, *figures: write_figures(tmp_path / f"{name}.json", figures)  # noqa: E731
    of = {"samples/s ÷ one NOTE's": 0.9, "p50": 200.0, "p99": 412.3, "memory, MB": 7.0}
    mixes = {mix: dict.fromkeys(("fleet", "separate", "copies"), of) for mix in ("uniform", "skewed")}
    times = {"fleet": {"p50": 210.0}, "separate": {"p50": 260.0}, "source": {"p50": 50.0}}
    ones = (1.25, 1.2, 1.3, 1.5, False, "", times)
    write(
        "fleet",
        Figure("ResNet-20, 16 streams, uniform: samples/s of the fleet ÷ separate methods one by one", *ones),
        Figure("ResNet-20, samples/s of one NOTE at B=64, the limit, ÷ 16 separate methods", 1.31, 1.3, 1.32),
        *[
            Figure(f"{n:,} streams: lowest", 1, 1, 1, detail={"streams": n, "mixes": mixes})
            for n in (1, 1000)
        ],
    )
    write("serve", Figure("note-tta serve --demo, from a fresh clone: until", 6.4, 6.0, 7.0, 60.0, unit="s"))
    write(
        "kills", Figure("fleet: whole", 50, 50, 50, 50), Figure("service: as if undisturbed", 20, 20, 20, 20)
    )
    return tmp_path


def test_what_has_a_bar_is_in_the_tables(tool, folder):
    tables = tool("live_tables")
    fleet, service = tables.fleet_table(folder), tables.serve_table(folder)
    assert "| 1.25 | 1.20 – 1.30 | ≥ 1.50 | **missed** |" in fleet and "fleet: whole" in fleet
    assert "lowest" not in fleet and "service" not in fleet
    assert "| 6.40 s |" in service and "as if undisturbed" in service


def test_sizes_have_a_column_each(tool, folder):
    lines = tool("live_tables").size_table(folder).splitlines()
    cells = "| 0.90<br>200 / 412 ms | 0.90<br>200 / 412 ms |"
    assert lines == ["| mix | 1 | 1,000 |", "|---|---:|---:|", f"| uniform {cells}", f"| skewed {cells}"]


def test_sizes_have_a_picture(tool, folder, tmp_path):
    drawings, tables = tool("drawings"), tool("live_tables")
    svg = drawings.draw(partial(drawings.many_streams, folder=folder), (760, 280), "test")
    assert all(f">{words}<" in svg for words in ("uniform", "skewed", "a fleet", "a copy of the model each"))
    assert "many-streams.svg" in tables.picture(folder) and tables.picture(tmp_path / "empty") == ""


def test_the_picture_is_there_where_sizes_were_measured(tool, root):
    path, drawings = root / "docs" / "pictures" / "many-streams.svg", tool("drawings")
    assert path.exists() == ("many-streams" in drawings.DRAWINGS), "run `make figures`"
    if path.exists() and f"Matplotlib v{matplotlib.__version__}," in path.read_text(encoding="utf-8"):
        assert drawings.drawing("many-streams") == path.read_text(encoding="utf-8"), "run `make figures`"


def test_lines_tell_what_was_measured(tool, folder):
    tables = tool("live_tables")
    line = tables.separate_line(folder)
    assert "1.25 times as many samples" in line and "4.2 times as long" in line and "5.2 times (210" in line
    assert "1.31 times as many as the methods" in line
    assert "they appear after 6 seconds" in tables.demo_line(folder)


def test_what_is_not_measured_is_said(tool, tmp_path):
    tables = tool("live_tables")
    for make in (tables.fleet_table, tables.serve_table, tables.size_table, tables.separate_line):
        assert "Not measured yet" in make(tmp_path)
    assert "seconds" not in tables.demo_line(tmp_path)
