import matplotlib.figure
import pytest

from note_tta.report.drawing import class_colour, error_axis, method_style, strip


def test_classes_and_methods_can_be_told_apart():
    assert len({class_colour(label, 10) for label in range(10)}) == 10
    keys = [
        "source",
        "bn_stats",
        "onda",
        "pl",
        "tent",
        "lame",
        "cotta",
        "note",
        "a method to come",
        "another",
    ]
    assert len({method_style(key) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    ("values", "top", "ticks"), [([3.2, None], 4, 5), ([41.0], 50, 6), ([99.0], 100, 6), ([], 12, 7)]
)
def test_errors_go_from_nought_to_a_round_value(values, top, ticks):
    axes = matplotlib.figure.Figure().subplots()
    error_axis(axes, values)
    assert axes.get_ylim() == (0, top)
    assert len(axes.get_yticks()) == ticks


def test_a_strip_is_a_stretch_per_run():
    axes = matplotlib.figure.Figure().subplots()
    strip(axes, [1, 1, 0, 1], 2)
    (bars,) = axes.collections
    assert [path.get_extents().width for path in bars.get_paths()] == [2, 1, 1]
    assert len({tuple(colour) for colour in bars.get_facecolors()}) == 2
