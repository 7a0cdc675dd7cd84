import xml.etree.ElementTree as ElementTree

import pytest

from note_tta.experiments.catalog import EXPERIMENTS
from note_tta.report.figures import make_figures, make_panels
from note_tta.report.layouts import make_tables
from note_tta.report.results import Results
from note_tta.report.svg import class_colour, method_colour

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def results(everything):
    return Results(everything)


def figures(results, name):
    experiment = EXPERIMENTS[name]
    return make_figures(experiment, results, make_tables(experiment, results))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("figure2", 1),
        ("figure4", 1),
        ("figure5a", 1),
        ("figure5b", 1),
        ("figure-cumulative", 4),
        ("figure-realtime", 7),
    ],
)
def test_every_figure_is_well_formed_svg(results, name, count):
    made = figures(results, name)
    assert len(made) == count
    for figure in made:
        assert ElementTree.fromstring(figure.file()).tag == f"{SVG}svg"


def test_bars_stand_for_both_streams_of_every_method(results):
    root = ElementTree.fromstring(figures(results, "figure2")[0].file())
    titles = [node.text for node in root.iter(f"{SVG}title")]
    assert sum("NOTE" in title for title in titles) == 2
    assert len([title for title in titles if title.endswith(" %")]) == 16


def test_a_sweep_has_a_line_a_method_and_a_mark_a_point(results):
    root = ElementTree.fromstring(figures(results, "figure5a")[0].file())
    lines = root.findall(f"{SVG}g[@data-method]")
    assert len(lines) == 8
    assert all(len(line.findall(f"{SVG}circle")) == 6 for line in lines)


def test_streams_are_strips_from_correlated_to_uniform(results):
    root = ElementTree.fromstring(figures(results, "figure4")[0].file())
    strips = root.findall(f"{SVG}g[@class='strip']")
    assert len(strips) == 6
    assert len(strips[0]) < len(strips[-1])


def test_cumulative_error_is_a_mean_over_domains_of_the_rows_that_cover_as_much_as_note(fakes):
    wanted = {"datasets": ["cifar10"], "seeds": (0,), "targets": {"cifar10": ["fog", "snow"]}}
    cells = [c for c in fakes.cells("figure-cumulative", **wanted) if c.method in ("source", "note", "tent")]
    levels = {"fog": 10.0, "snow": 20.0}
    cells = [c for c in cells if (c.method, c.stream.domain) != ("tent", "fog")]
    records = [fakes.record(c, levels[c.stream.domain]) for c in cells]
    root = ElementTree.fromstring(figures(Results(records), "figure-cumulative")[0].file())
    lines = {node.get("data-method"): node.get("points") for node in root.iter(f"{SVG}polyline")}
    assert lines.keys() == {"source", "note"}
    assert len(lines["note"].split()) == 100


def test_a_turned_sensor_frame_is_left_to_the_explorer(fakes):
    turned = {"data_options": (("rotation", "x90"),)}
    records = [fakes.record(cell) for cell in fakes.cells("figure-realtime", datasets=["hapt"], **turned)]
    assert figures(Results(records), "figure-realtime") == []
    assert make_panels(Results(records))


def test_panels_hold_the_stream_and_every_row(results):
    panel = next(p for p in make_panels(results) if (p.title, p.domain) == ("CIFAR10-C", "Fog"))
    assert panel.samples == 10_000
    assert {"source", "note", "iabn_rs"} <= {series.key for series in panel.series}
    assert all(len(series.values) == 100 for series in panel.series)


def test_classes_and_methods_can_be_told_apart():
    assert len({class_colour(label, 10) for label in range(10)}) == 10
    keys = ["source", "bn_stats", "onda", "pl", "tent", "lame", "cotta", "note"]
    assert len({method_colour(key) for key in keys}) == len(keys)
