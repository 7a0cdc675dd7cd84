import numpy as np
import pytest
import torch
from PIL import Image
from published_formats import write_kitti, write_picture

from note_tta.data import BadData, MissingData, open_dataset


def test_frames_are_cut_to_their_largest_box(tmp_path):
    write_kitti(tmp_path)
    dataset = open_dataset("kitti", tmp_path)
    assert len(dataset.classes) == 9
    assert dataset.targets == ("rain_200",)
    source = dataset.domain("source")
    assert [dataset.classes[label] for label in source.labels] == ["Car", "Tram"]
    picture = Image.open(tmp_path / "kitti/object/training/image_2/000000.png").crop((10, 20, 60, 70))
    expected = np.asarray(picture.resize((224, 224), Image.Resampling.BILINEAR)).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(source.inputs([0])[0], expected, atol=1e-6)


def test_tracking_frames_come_in_order_and_rain_is_rendered(tmp_path):
    write_kitti(tmp_path)
    dataset = open_dataset("kitti", tmp_path)
    clear, rain = dataset.domain("tracking"), dataset.domain("rain_200")
    assert [dataset.classes[label] for label in rain.labels] == ["Person_sitting", "Cyclist"]
    assert rain.origin == "regenerated"
    assert (rain.inputs() - clear.inputs()).abs().mean() > 0.01
    assert torch.equal(rain.inputs([1]), open_dataset("kitti", tmp_path).domain("rain_200").inputs([1]))
    assert rain.fingerprint != clear.fingerprint
    assert open_dataset("kitti", tmp_path, rate=50.0).targets == ("rain_50",)


def test_one_sequence_is_a_part_of_the_stream(tmp_path):
    write_kitti(tmp_path)
    labels = tmp_path / "kitti/tracking/training/label_02"
    (labels / "0003.txt").write_text("0 1 Tram 0 0 0 1 1 50 50 1 1 1 0 0 0 0\n")
    whole = open_dataset("kitti", tmp_path).domain("rain_200")
    part = open_dataset("kitti", tmp_path, sequence=0).domain("rain_200")
    assert (len(whole), len(part)) == (3, 2)
    assert whole.labels[:2].tolist() == part.labels.tolist()
    with pytest.raises(MissingData, match="sequence 0004 of KITTI's tracking set"):
        open_dataset("kitti", tmp_path, sequence=4).domain("rain_200")


def test_a_rendered_tree_and_depth_maps_are_used(tmp_path):
    write_kitti(tmp_path)
    depth = tmp_path / "kitti/tracking/training/depth_02/0000/000000.png"
    depth.parent.mkdir(parents=True)
    flat = open_dataset("kitti", tmp_path).domain("rain_200").inputs([0])
    Image.fromarray(np.full((75, 124), 60 * 256, np.uint16)).save(depth)
    far = open_dataset("kitti", tmp_path).domain("rain_200").inputs([0])
    assert not torch.equal(flat, far)
    Image.fromarray(np.zeros((10, 10), np.uint16)).save(depth)
    with pytest.raises(BadData, match=r"depth map of \[10, 10\] for a frame of \[75, 124\]"):
        open_dataset("kitti", tmp_path).domain("rain_200").inputs([0])
    for frame in (0, 2):
        rendered = tmp_path / f"kitti/tracking_rain/training/image_02/0000/{frame:06d}.png"
        write_picture(rendered, (124, 75), seed=9)
    rain = open_dataset("kitti", tmp_path).domain("rain_200")
    assert rain.origin == "published"
    assert rain.inputs([0]).shape == (1, 3, 224, 224)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Bicycle 0 0 0 1 1 5 5 1 1 1 0 0 0 0", "line 2: unknown label 'Bicycle'"),
        ("Car 0 0 0 1 1 5", "line 2: expected at least 8 fields, found 7"),
        ("Car 0 0 0 1 1 x 5", "line 2: the box must be four numbers"),
        ("Car 0 0 0 5 5 5 9", r"line 2: the box \(5.0, 5.0, 5.0, 9.0\) is empty"),
    ],
)
def test_bad_labels_are_refused_with_their_line(tmp_path, line, message):
    write_kitti(tmp_path)
    file = tmp_path / "kitti/object/training/label_2/000000.txt"
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(BadData, match=f"000000.txt, {message}"):
        open_dataset("kitti", tmp_path).domain("train")


def test_bad_and_missing_frames_are_refused(tmp_path):
    write_kitti(tmp_path)
    source = open_dataset("kitti", tmp_path).domain("source")
    picture = tmp_path / "kitti/object/training/image_2/000000.png"
    write_picture(picture, (8, 8))
    with pytest.raises(BadData, match=r"000000.png: the labelled box .* lies outside this 8x8 picture"):
        source.inputs([0])
    picture.write_bytes(picture.read_bytes()[:60])
    with pytest.raises(BadData, match=r"000000.png: not a readable picture"):
        source.inputs([0])
    picture.unlink()
    with pytest.raises(MissingData, match="a KITTI frame not found"):
        source.inputs([0])
    (tmp_path / "kitti/tracking/training/label_02/0000.txt").write_text("x 1 Car 0 0 0 1 1 5 5\n")
    with pytest.raises(BadData, match=r"0000.txt, line 1: the first field must be a frame number"):
        open_dataset("kitti", tmp_path).domain("rain_200")
