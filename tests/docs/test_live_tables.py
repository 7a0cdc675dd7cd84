"""The pages' figures of fleets and of the service are those of the measurements."""

import pytest

from benchmarks.measure import Figure, write_figures


@pytest.fixture
def folder(tmp_path):
    write = lambda name, *figures: write_figures(tmp_path / f"{name}.json", figures)  # noqa: E731
    of = {"samples/s ÷ one NOTE's": 0.9, "p50": 200.0, "p99": 412.3}
    times = {name: {"p50": 50.0} for name in ("fleet", "separate", "source")}
    ones = (1.25, 1.2, 1.3, 1.5, False, "", times)
    write(
        "fleet",
        Figure("ResNet-20, 16 streams, uniform: samples/s of the fleet ÷ separate methods one by one", *ones),
        Figure("ResNet-20, 1 to 10,000 streams, skewed: lowest", 1, 1, 1, detail={"1": {"fleet": of}}),
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
    assert "1 to 10,000" not in fleet and "service" not in fleet
    assert "| 6.40 s |" in service and "as if undisturbed" in service


def test_sizes_have_a_column_each(tool, folder):
    lines = tool("live_tables").size_table(folder).splitlines()
    assert lines == ["| mix | 1 |", "|---|---:|", "| skewed | 0.90<br>200 / 412 ms |"]


def test_lines_tell_what_was_measured(tool, folder):
    tables = tool("live_tables")
    assert "1.25 times as many samples" in tables.separate_line(folder)
    assert "6 seconds after the command in a fresh clone" in tables.demo_line(folder)


def test_what_is_not_measured_is_said(tool, tmp_path):
    tables = tool("live_tables")
    for make in (tables.fleet_table, tables.serve_table, tables.size_table, tables.separate_line):
        assert "Not measured yet" in make(tmp_path)
    assert "seconds" not in tables.demo_line(tmp_path)
