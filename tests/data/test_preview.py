import numpy as np
import pytest
from PIL import Image
from published_formats import write_cifar10, write_hapt, write_kitti, write_mnist

from note_tta.data import MissingData
from note_tta.data.preview import preview


def is_a_drawing(path):
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    return pixels.std() > 10


@pytest.mark.parametrize(
    ("name", "write", "said"),
    [
        ("cifar10", write_cifar10, "CIFAR10-C: 15 targets beside the clean images; 15 made for this picture"),
        ("mnist", write_mnist, "MNIST-C: 15 targets beside the clean images; 15 made for this picture"),
        ("kitti", write_kitti, "KITTI tracking frames (left) in rain of 200 mm/hr (right)"),
        ("hapt", write_hapt, "HAPT: the first channel of each target over time, coloured by class"),
    ],
)
def test_every_family_has_its_picture(tmp_path, name, write, said):
    write(tmp_path)
    out = tmp_path / "picture.png"
    assert preview(name, tmp_path, out) == said
    assert is_a_drawing(out)


def test_a_stream_is_drawn_the_same_every_time(tmp_path):
    outs = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for out in outs:
        assert preview("digits", tmp_path, out, stream="sorted") == "Digits: classes over time, sorted order"
    text = outs[0].read_text()
    assert text.startswith("<?xml")
    assert len(text) == len(outs[1].read_text())


def test_mistakes_leave_no_file(tmp_path):
    with pytest.raises(ValueError, match=r"must end in .png, .svg or .pdf, got x.gif"):
        preview("digits", tmp_path, tmp_path / "x.gif")
    with pytest.raises(
        ValueError, match="unknown stream 'random'; known are iid, dirichlet, sorted, chronological"
    ):
        preview("digits", tmp_path, tmp_path / "x.png", stream="random")
    with pytest.raises(MissingData):
        preview("hapt", tmp_path, tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []
