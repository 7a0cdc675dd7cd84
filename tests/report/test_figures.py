import xml.etree.ElementTree as ElementTree

import matplotlib.figure
import pytest

from note_tta.experiments.catalog import EXPERIMENTS
from note_tta.report.figures import curve, make_figures, runs_of_stream
from note_tta.report.scores import Scores, Setup
from note_tta.report.tables import make_tables

SVG = "{http://www.w3.org/2000/svg}"
METHODS = ["Source", "BN Stats", "ONDA", "PL", "TENT", "LAME", "CoTTA", "NOTE"]


@pytest.fixture(scope="module")
def scores(everything):
    return Scores(everything)


def figures(scores, name):
    experiment = EXPERIMENTS[name]
    return make_figures(experiment, scores, make_tables(experiment, scores))


def painted(scores, name):
    """The axes of a figure's first picture."""
    canvas = matplotlib.figure.Figure()
    figures(scores, name)[0].paint(canvas)
    return canvas.axes


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
def test_every_figure_is_there_and_the_first_is_well_formed_svg(scores, name, count):
    made = figures(scores, name)
    assert len(made) == count
    assert len({figure.id for figure in made}) == count
    root = ElementTree.fromstring(made[0].file())
    assert root.tag == f"{SVG}svg"
    assert root.find(f"{SVG}title").text == made[0].title


def test_a_picture_is_the_same_bytes_each_time_and_follows_the_readers_theme(scores):
    (figure,) = figures(scores, "figure5a")
    text = figure.file()
    assert text == figure.file()
    assert "var(--fg)" in text and "prefers-color-scheme:dark" in text
    assert "DejaVu" not in text


def test_bars_stand_for_both_streams_of_every_method(scores):
    (axes,) = painted(scores, "figure2")
    bars = [bar for group in axes.containers for bar in group if bar.get_height()]
    assert len(bars) == 16
    assert [label.get_text() for label in axes.get_xticklabels()] == METHODS


def test_a_sweep_has_a_line_per_method_and_a_mark_per_point(scores):
    (axes,) = painted(scores, "figure5a")
    assert [line.get_label() for line in axes.lines] == METHODS
    assert {(len(line.get_xdata()), line.get_marker()) for line in axes.lines} == {(6, "o")}


def test_streams_are_strips_from_correlated_to_uniform(scores):
    strips = painted(scores, "figure4")
    runs = [len(axes.collections[0].get_paths()) for axes in strips]
    assert len(runs) == 6
    assert runs[0] < runs[-1]


def test_a_real_stream_has_its_classes_under_the_curves(scores):
    curves, strip = painted(scores, "figure-realtime")
    assert [line.get_label() for line in curves.lines] == METHODS
    assert len(strip.collections[0].get_paths()) == 10


def test_cumulative_error_is_a_mean_over_domains_of_the_rows_that_cover_as_much_as_note(fakes):
    wanted = {"datasets": ["cifar10"], "seeds": (0,), "targets": {"cifar10": ["fog", "snow"]}}
    cells = [c for c in fakes.cells("figure-cumulative", **wanted) if c.method in ("source", "note", "tent")]
    levels = {"fog": 10.0, "snow": 20.0}
    cells = [c for c in cells if (c.method, c.stream.domain) != ("tent", "fog")]
    scores = Scores([fakes.record(c, levels[c.stream.domain]) for c in cells])
    (axes,) = painted(scores, "figure-cumulative")
    assert [line.get_label() for line in axes.lines] == ["Source", "NOTE"]
    ends = [curve(record)[-1] for record in scores.records if record.job.method == "note"]
    assert axes.lines[1].get_ydata()[-1] == pytest.approx(sum(ends) / 2)
    assert len(axes.lines[1].get_ydata()) == 100


def test_a_turned_sensor_frame_is_left_to_the_explorer(fakes):
    turned = {"data_options": (("rotation", "x90"),)}
    cells = fakes.cells("figure-realtime", datasets=["hapt"], **turned)
    scores = Scores([fakes.record(cell) for cell in cells])
    assert figures(scores, "figure-realtime") == []
    assert runs_of_stream(scores, Setup("hapt", "sensor_cnn4", **turned), "correlated").keys() == {
        "user22",
        "user23",
    }


def test_every_row_that_ran_over_a_stream_is_there_by_its_lowest_seed(scores):
    runs = runs_of_stream(scores, Setup("cifar10", "resnet18"), "correlated")["fog"]
    assert {"source", "note", "iabn_rs"} <= runs.keys()
    assert {record.job.stream.seed for record in runs.values()} == {0}
    assert all(len(curve(record)) == 100 for record in runs.values())
