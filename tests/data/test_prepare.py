import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from published_formats import write_cifar10, write_cifar100, write_imagenet, write_kitti, write_mnist

from note_tta.data import BadData, MissingData, open_dataset
from note_tta.data import corrupted as module
from note_tta.data.manifest import Manifest
from note_tta.data.prepare import prepare


@pytest.fixture
def root(tmp_path):
    write_cifar10(tmp_path, test=120)
    return tmp_path


def contents(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_a_regenerated_set_has_the_published_layout(root):
    seen = []
    folder = prepare(
        "cifar10", root, corruptions=["contrast"], workers=1, progress=lambda *now: seen.append(now)
    )
    images, labels = np.load(folder / "contrast.npy"), np.load(folder / "labels.npy")
    assert (images.shape, images.dtype) == ((600, 32, 32, 3), np.uint8)
    assert labels.tolist() == [i % 10 for i in range(120)] * 5
    assert seen[-1] == ("contrast 5", 120, 120)
    spread = [
        open_dataset("cifar10", root, severity=s).domain("contrast").inputs().std() for s in range(1, 6)
    ]
    assert spread == sorted(spread, reverse=True)
    domain = open_dataset("cifar10", root).domain("contrast")
    assert domain.origin == "regenerated"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["seed"] == 0
    assert manifest["parameters"]["contrast"]["5"] == [0.15]


def test_one_severity_is_honest_about_the_others(root):
    prepare("cifar10", root, corruptions=["fog"], severities=[5], workers=1)
    assert len(open_dataset("cifar10", root).domain("fog")) == 120
    with pytest.raises(
        MissingData, match=r"fog at severity 2 \(regenerated severities present: 5\).*--severity 2"
    ):
        open_dataset("cifar10", root, severity=2).domain("fog")
    before = open_dataset("cifar10", root).domain("fog").fingerprint
    prepare("cifar10", root, corruptions=["fog"], severities=[2], workers=1)
    assert open_dataset("cifar10", root).domain("fog").fingerprint == before
    assert len(open_dataset("cifar10", root, severity=2).domain("fog")) == 120
    assert Manifest.read(root / "CIFAR-10-C-regenerated", "cifar").done["fog"].keys() == {"2", "5"}


def test_validation_corruptions_are_made_only_when_named(root, monkeypatch):
    made = []
    monkeypatch.setattr(module._Maker, "make", lambda self, name, levels: made.append(name))
    prepare("cifar10", root, workers=1)
    assert made == list(open_dataset("cifar10", root).targets)
    monkeypatch.undo()
    prepare("cifar10", root, corruptions=["speckle_noise", "night"], severities=[5], workers=1)
    dataset = open_dataset("cifar10", root)
    assert dataset.validation == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert not set(dataset.validation) & set(dataset.targets)
    assert len(dataset.domain("speckle_noise")) == len(dataset.domain("night")) == 120
    with pytest.raises(MissingData, match="prepare cifar10 --severity 5 --corruption saturate"):
        dataset.domain("saturate")


def test_published_files_win(root):
    prepare("cifar10", root, corruptions=["fog"], severities=[5], workers=1)
    folder = root / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "fog.npy", np.zeros((600, 32, 32, 3), np.uint8))
    np.save(folder / "labels.npy", np.zeros(600, np.uint8))
    assert open_dataset("cifar10", root).domain("fog").origin == "published"


def test_the_number_of_workers_does_not_change_a_byte(tmp_path):
    roots = [tmp_path / "one", tmp_path / "two"]
    for root, workers in zip(roots, (1, 2), strict=True):
        write_cifar10(root, test=620)
        prepare("cifar10", root, corruptions=["gaussian_noise", "frost"], severities=[5], workers=workers)
    one, two = (contents(root / "CIFAR-10-C-regenerated") for root in roots)
    assert one == two


def test_a_second_run_does_nothing_and_another_seed_is_refused(root, monkeypatch):
    folder = prepare("cifar10", root, corruptions=["fog"], severities=[5], workers=1)
    monkeypatch.setattr(module, "corrupt", lambda *a, **k: pytest.fail("worked again"))
    prepare("cifar10", root, corruptions=["fog"], severities=[5], workers=1)
    with pytest.raises(ValueError, match=r"was made with seed 0, not 3; delete that folder"):
        prepare("cifar10", root, corruptions=["fog"], seed=3, workers=1)
    assert not list(folder.glob(".*.part"))


def test_a_part_made_with_other_parameters_is_made_again(root):
    folder = prepare("cifar10", root, corruptions=["fog", "contrast"], severities=[1, 5], workers=1)
    before = contents(folder)
    manifest = Manifest.read(folder, "cifar")
    manifest.parameters["contrast"]["5"] = [0.2]
    manifest.write()
    with pytest.raises(MissingData, match=r"contrast at severity 5 \(regenerated severities present: 1\)"):
        open_dataset("cifar10", root).domain("contrast")
    assert len(open_dataset("cifar10", root).domain("fog")) == 120
    prepare("cifar10", root, corruptions=["fog", "contrast"], severities=[1, 5], workers=1)
    assert contents(folder) == before


def test_a_failure_leaves_nothing_half_written(root, monkeypatch):
    def break_down(*arguments, **settings):
        raise OSError("No space left on device")

    monkeypatch.setattr(module, "_corrupt", break_down)
    with pytest.raises(OSError, match="No space left"):
        prepare("cifar10", root, corruptions=["fog"], severities=[5], workers=1)
    left = {name for name in contents(root / "CIFAR-10-C-regenerated") if not name.endswith(".lock")}
    assert left <= {"labels.npy"}
    with pytest.raises(MissingData):
        open_dataset("cifar10", root).domain("fog")


def test_a_killed_run_is_finished_by_the_next(tmp_path):
    for name in ("killed", "calm"):
        write_cifar10(tmp_path / name, test=300)
    chosen = ["gaussian_noise", "glass_blur", "zoom_blur", "elastic_transform"]
    script = (
        "import sys; from pathlib import Path; from note_tta.data.prepare import prepare\n"
        f"prepare('cifar10', Path(sys.argv[1]), corruptions={chosen!r}, severities=[5], workers=1)"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "killed")])
    first = tmp_path / "killed" / "CIFAR-10-C-regenerated" / "gaussian_noise.npy"
    deadline = time.monotonic() + 120
    while not first.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    folders = [
        prepare("cifar10", tmp_path / name, corruptions=chosen, severities=[5], workers=1)
        for name in ("killed", "calm")
    ]
    killed, calm = (contents(folder) for folder in folders)
    assert killed == calm


def test_mnist_and_cifar100_are_prepared_too(tmp_path):
    write_mnist(tmp_path)
    folder = prepare("mnist", tmp_path, corruptions=["zigzag"], workers=1)
    assert np.load(folder / "zigzag" / "test_images.npy").shape == (20, 28, 28, 1)
    assert np.load(folder / "zigzag" / "test_labels.npy").tolist() == [i % 10 for i in range(20)]
    assert open_dataset("mnist", tmp_path).domain("zigzag").origin == "regenerated"
    write_cifar100(tmp_path)
    prepare("cifar100", tmp_path, corruptions=["fog"], severities=[1], workers=1)
    assert len(open_dataset("cifar100", tmp_path, severity=1).domain("fog")) == 10


def test_imagenet_folders_are_prepared_and_resumed(tmp_path):
    write_imagenet(tmp_path)
    folder = prepare("imagenet", tmp_path, corruptions=["brightness"], severities=[3], workers=1)
    made = sorted((folder / "brightness" / "3").rglob("*.JPEG"))
    assert len(made) == 4
    domain = open_dataset("imagenet", tmp_path, severity=3).domain("brightness")
    assert domain.origin == "regenerated"
    clean = open_dataset("imagenet", tmp_path).domain("test")
    assert domain.inputs().mean() > clean.inputs().mean() + 0.1
    before = [file.read_bytes() for file in made]
    (folder / "manifest.json").unlink()
    made[1].unlink()
    stamp = made[0].stat().st_mtime_ns
    prepare("imagenet", tmp_path, corruptions=["brightness"], severities=[3], workers=1)
    assert [file.read_bytes() for file in made] == before
    assert made[0].stat().st_mtime_ns == stamp


def test_imagenet_pictures_made_with_other_parameters_are_made_again(tmp_path):
    write_imagenet(tmp_path)
    folder = prepare("imagenet", tmp_path, corruptions=["brightness"], severities=[3], workers=1)
    made = sorted((folder / "brightness" / "3").rglob("*.JPEG"))
    before = [file.read_bytes() for file in made]
    made[0].write_bytes(b"as another version made it")
    manifest = Manifest.read(folder, "imagenet")
    manifest.parameters["brightness"]["3"] = [0.2]
    manifest.write()
    with pytest.raises(MissingData, match="regenerated severities present: none"):
        open_dataset("imagenet", tmp_path, severity=3).domain("brightness")
    prepare("imagenet", tmp_path, corruptions=["brightness"], severities=[3], workers=1)
    assert [file.read_bytes() for file in made] == before


def test_kitti_is_rendered_once_and_read_back_the_same(tmp_path):
    write_kitti(tmp_path)
    fresh = open_dataset("kitti", tmp_path).domain("rain_200")
    before = fresh.inputs()
    folder = prepare("kitti", tmp_path, workers=1)
    made = sorted(folder.rglob("*.png"))
    assert [file.name for file in made] == ["000000.png", "000002.png"]
    again = open_dataset("kitti", tmp_path).domain("rain_200")
    assert again.origin == "regenerated"
    assert (again.inputs() == before).all()
    made[0].write_bytes(made[1].read_bytes())
    assert not (open_dataset("kitti", tmp_path).domain("rain_200").inputs() == before).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hapt", {}, "cannot regenerate 'hapt'; these can be: cifar10"),
        ("cifar10", {"corruptions": ["mist"]}, "unknown corruption 'mist' of cifar10"),
        ("cifar10", {"severities": [6]}, "severity must be 1, 2, 3, 4 or 5, got 6"),
        ("cifar10", {"workers": 0}, "workers must be at least 1, got 0"),
        ("kitti", {"severities": [5]}, "leave --corruption and --severity out"),
        ("mnist", {"severities": [5]}, "MNIST-C has a single severity"),
    ],
)
def test_bad_requests_are_refused(root, name, options, message):
    with pytest.raises(ValueError, match=message):
        prepare(name, root, **options)


def test_clean_images_must_be_there(tmp_path):
    with pytest.raises(MissingData, match="cifar10 test images not found"):
        prepare("cifar10", tmp_path, workers=1)
    assert not (tmp_path / "CIFAR-10-C-regenerated").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"dataset": "cifar10"}', '{"surprise": 1}'])
def test_a_damaged_manifest_is_refused(root, text):
    folder = prepare("cifar10", root, corruptions=["fog"], severities=[5], workers=1)
    (folder / "manifest.json").write_text(text)
    with pytest.raises(BadData, match=r"manifest.json: not a manifest"):
        open_dataset("cifar10", root).domain("fog")
    (folder / "manifest.json").unlink()
    with pytest.raises(BadData, match="the manifest of this regenerated set is missing"):
        open_dataset("cifar10", root).domain("fog")


@pytest.mark.parametrize(
    ("key", "value"), [("done", {"fog": {"6": ""}}), ("done", {"fog": 1}), ("parameters", [])]
)
def test_a_manifest_of_other_shapes_is_refused(root, key, value):
    folder = prepare("cifar10", root, corruptions=["fog"], severities=[5], workers=1)
    content = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**content, key: value}))
    with pytest.raises(BadData, match="must map corruptions to severities"):
        open_dataset("cifar10", root).domain("fog")


@pytest.mark.skipif(sys.platform == "win32", reason="the lock is a POSIX one")
def test_two_runs_do_not_share_a_folder(root):
    from note_tta.files import only_one

    with (
        only_one(root / "CIFAR-10-C-regenerated"),
        pytest.raises(ValueError, match="another process is writing"),
    ):
        prepare("cifar10", root, corruptions=["fog"], severities=[5], workers=1)
