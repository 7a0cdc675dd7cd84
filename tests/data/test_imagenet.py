import numpy as np
import pytest
from PIL import Image
from published_formats import write_imagenet, write_picture

from note_tta.data import BadData, MissingData, open_dataset
from note_tta.data import imagenet as module


def test_folders_load_sorted_by_class(tmp_path):
    write_imagenet(tmp_path)
    dataset = open_dataset("imagenet", tmp_path)
    assert dataset.classes == ("n01440764", "n01443537")
    assert dataset.stream == "sorted"
    test = dataset.domain("test")
    assert test.labels.tolist() == [0, 0, 1, 1]
    assert test.inputs([3, 0]).shape == (2, 3, 224, 224)
    assert test.inputs([]).shape == (0, 3, 224, 224)
    assert test.fingerprint.startswith("names:")


def test_opening_reads_no_picture(tmp_path, monkeypatch):
    write_imagenet(tmp_path)

    def fail(file):
        raise AssertionError(f"{file} was read")

    monkeypatch.setattr(module, "read_picture", fail)
    domain = open_dataset("imagenet", tmp_path).domain("test")
    assert len(domain) == 4
    assert domain.fingerprint


def test_a_published_corruption_is_read_as_it_is(tmp_path):
    picture = tmp_path / "ImageNet-C" / "fog" / "5" / "n01440764" / "a.JPEG"
    write_picture(picture, (224, 224))
    fog = open_dataset("imagenet", tmp_path).domain("fog")
    assert fog.origin == "published"
    expected = np.asarray(Image.open(picture)).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(fog.inputs([0])[0], expected, atol=1e-6)
    with pytest.raises(MissingData, match="ImageNet-C snow at severity 5 not found"):
        open_dataset("imagenet", tmp_path).domain("snow")


def test_the_centre_is_cut_out(tmp_path):
    image = np.zeros((256, 512, 3), np.uint8)
    image[:, 144:368] = 255
    Image.fromarray(image).save(tmp_path / "wide.png")
    assert module.read_picture(tmp_path / "wide.png").min() == 255


def test_bad_pictures_and_folders_are_refused(tmp_path):
    write_imagenet(tmp_path)
    picture = tmp_path / "imagenet" / "val" / "n01440764" / "n01440764_0.JPEG"
    picture.write_bytes(picture.read_bytes()[:200])
    dataset = open_dataset("imagenet", tmp_path)
    with pytest.raises(BadData, match=r"n01440764_0.JPEG: not a readable picture"):
        dataset.domain("test").inputs([0])
    write_picture(picture, (4, 300))
    with pytest.raises(BadData, match="4×300 is too small"):
        dataset.domain("test").inputs([0])
    (tmp_path / "imagenet" / "train" / "n99999999").mkdir()
    with pytest.raises(BadData, match="unknown class folder 'n99999999'"):
        dataset.domain("train")
    for file in (tmp_path / "imagenet" / "val").rglob("*.JPEG"):
        file.unlink()
    with pytest.raises(BadData, match=r"no images in class folders; images end in \.jpeg, \.jpg, \.png"):
        dataset.domain("test")
