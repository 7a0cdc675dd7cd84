import os
import zipfile

import numpy as np
import pytest
from PIL import Image

from note_tta.data import BadData
from note_tta.data.user_data import open_own
from note_tta.experiments.cell import Cell, Stream
from note_tta.experiments.worker import Settings, Worker
from note_tta.models.user_model import make_model

MODEL = """
from torch import nn

def make_model(classes=2):
    pooled = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*pooled, nn.Linear(4, classes))

def make_large():
    return make_model(5)

def make_nothing():
    return None

number = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_models.py").write_text(MODEL)
    return tmp_path


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(20):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{i:02}.png")
    return tmp_path / "images"


def test_a_folder_of_images_by_class(folder):
    dataset = open_own(folder)
    assert dataset.classes == ("cat", "dog")
    assert dataset.input_shape == (3, 8, 8)
    domain = dataset.domain("all")
    assert domain.labels.tolist() == [0] * 20 + [1] * 20
    x = domain.inputs([0, 39])
    assert x.shape == (2, 3, 8, 8)
    assert 0 <= x.min() <= x.max() <= 1
    assert domain.fingerprint == open_own(folder).domain("all").fingerprint


def test_an_npz_of_images_or_of_anything(tmp_path):
    y = np.arange(10) % 3
    np.savez(tmp_path / "images.npz", x=np.full((10, 8, 6, 3), 255, np.uint8), y=y)
    np.savez(tmp_path / "signals.npz", x=np.full((10, 4, 50), 7.5), y=y)
    images, signals = open_own(tmp_path / "images.npz"), open_own(tmp_path / "signals.npz")
    assert images.input_shape == (3, 8, 6)
    assert images.domain("all").inputs([0]).max() == 1.0
    assert signals.domain("all").inputs([0]).max() == 7.5
    assert signals.stream == "chronological"


def test_own_model_on_own_data(here, folder):
    for norm in ("bn", "iabn*"):
        cell = Cell(Stream(str(folder), "all", "iid"), "note", model="own_models:make_model", norm=norm)
        record = Worker(Settings()).run(cell)
        assert record.result["samples"] == 40
        assert record.provenance["checkpoint"]["fingerprint"].startswith("weights:")


def test_own_weights_are_loaded(here, folder):
    import torch

    torch.manual_seed(0)
    torch.save(make_model("own_models:make_model").state_dict(), here / "w.pt")
    stream = Stream(str(folder), "all", "iid")
    cell = Cell(stream, "source", model="own_models:make_model", checkpoint=str(here / "w.pt"))
    results = [Worker(Settings()).run(cell).result["predictions_sha256"] for _ in range(2)]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("make_model", "your own model is named module:name, got 'make_model'"),
        ("no_such_module:f", "cannot import no_such_module"),
        ("own_models:absent", "own_models has no absent to make a model with"),
        ("own_models:number", "own_models:number is not a function"),
        ("own_models:make_nothing", r"own_models:make_nothing\(\) must return an nn.Module, got NoneType"),
    ],
)
def test_a_model_that_cannot_be_made_is_told(here, name, message):
    with pytest.raises(ValueError, match=message):
        make_model(name)


def test_a_model_of_another_class_count_is_refused(here, folder):
    cell = Cell(Stream(str(folder), "all", "iid"), "source", model="own_models:make_large")
    with pytest.raises(ValueError, match=r"own_models:make_large has 5 classes, .* has 2"):
        Worker(Settings()).run(cell)


def test_a_model_for_other_shapes_is_refused(here, tmp_path):
    np.savez(tmp_path / "grey.npz", x=np.zeros((4, 8, 8, 1), np.uint8), y=[0, 1, 0, 1])
    cell = Cell(Stream(str(tmp_path / "grey.npz"), "all", "iid"), "source", model="own_models:make_model")
    with pytest.raises(ValueError, match=r"does not accept samples of shape \(1, 8, 8\)"):
        Worker(Settings()).run(cell)


def test_bad_folders_are_told(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadData, match="no images in class folders"):
        open_own(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match=r"no such data: .*nowhere; --data is a folder of images"):
        open_own(tmp_path / "nowhere")
    Image.new("RGB", (9, 8)).save(folder / "dog" / "99.png")
    with pytest.raises(BadData, match=r"99\.png: 9×8×3 pixels, but 00\.png has 8×8×3"):
        open_own(folder).domain("all").inputs()
    (folder / "dog" / "98.png").write_bytes(b"no image")
    with pytest.raises(BadData, match=r"98\.png: not a readable picture"):
        open_own(folder).domain("all").inputs()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": [1]}, "expected the arrays x and y, found a"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(4, int)}, r"found \[3, 2\] and \[4\]"),
        ({"x": np.float32(1), "y": np.zeros(3, int)}, r"found \[\] and \[3\]"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3)}, "y must be whole numbers, found float64"),
        (
            {"x": np.zeros((3, 2), int), "y": np.zeros(3, int)},
            "x must be uint8 or floating point, found int64",
        ),
        ({"x": np.zeros((3, 2), np.uint8), "y": np.zeros(3, int)}, "uint8 images are"),
        ({"x": np.zeros((3, 2)), "y": np.array([0, -1, 0])}, "unknown label -1 at sample 1"),
        ({"x": np.array([{}] * 3), "y": np.zeros(3, int)}, "not a complete npz file"),
    ],
)
def test_bad_npz_files_are_told(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(BadData, match=message):
        open_own(tmp_path / "bad.npz")


def test_a_truncated_npz_is_told(tmp_path):
    np.savez(tmp_path / "cut.npz", x=np.zeros((100, 50)), y=np.zeros(100, int))
    whole = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadData, match=r"cut.npz: not a complete npz file"):
        open_own(tmp_path / "cut.npz")


def test_an_npz_whose_entries_are_not_arrays_is_told(tmp_path):
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as bundle:
        for name in ("x.npy", "y.npy"):
            bundle.writestr(name, "not an array")
    with pytest.raises(BadData, match=r"text.npz: x and y must be arrays in numpy's format"):
        open_own(tmp_path / "text.npz")


def frames(folder, names):
    """Grey frames whose brightness is their position in `names`; classes alternate."""
    for place, name in enumerate(names):
        file = folder / ("left" if place % 2 else "right") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), place, np.uint8)).save(file)
        os.utime(file, (1_000_000 - place, 1_000_000 - place))


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".ppm", ".webp", ".pgm"])
def test_frames_come_as_they_were_recorded(tmp_path, suffix):
    frames(tmp_path, [f"frame{number}{suffix}" for number in (8, 9, 10, 11, 100)])
    by_name, by_time = (open_own(tmp_path, recorded=recorded) for recorded in ("name", "time"))
    assert by_name.stream == by_time.stream == "chronological"
    assert by_name.domain("all").labels.tolist() == [1, 0, 1, 0, 1]
    shades = (255 * by_name.domain("all").inputs()[:, 0, 0, 0]).round().tolist()
    if suffix != ".webp":  # which keeps colours only nearly
        assert shades == [0, 1, 2, 3, 4]
        assert (255 * by_time.domain("all").inputs()[:, 0, 0, 0]).round().tolist() == [4, 3, 2, 1, 0]
    drawn = open_own(tmp_path)
    assert drawn.stream == "dirichlet"
    assert drawn.domain("all").labels.tolist() == [0, 0, 1, 1, 1]


def test_recorded_is_name_or_time_and_for_folders(tmp_path):
    frames(tmp_path, ["1.png", "2.png"])
    with pytest.raises(ValueError, match="recorded must be 'name' or 'time', got 'size'"):
        open_own(tmp_path, recorded="size")
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3), np.float32), y=np.arange(2))
    with pytest.raises(ValueError, match="recorded is for folders of images"):
        open_own(tmp_path / "a.npz", recorded="name")
    worker = Worker(Settings())
    assert worker.dataset(str(tmp_path), (("recorded", "name"),)).stream == "chronological"
    with pytest.raises(ValueError, match="your own data has only the option recorded, got severity"):
        worker.dataset(str(tmp_path), (("severity", 3),))
