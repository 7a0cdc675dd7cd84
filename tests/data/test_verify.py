import numpy as np
import pytest
from published_formats import (
    write_cifar10,
    write_extrasensory_user,
    write_hapt,
    write_harth_subject,
    write_imagenet,
    write_kitti,
    write_mnist,
)

from note_tta.data import DATASETS, cifar, extrasensory, find_dataset, mnist
from note_tta.data.prepare import prepare


def by_name(checks):
    return {check.what: check for check in checks}


@pytest.fixture
def small_cifar(tmp_path, monkeypatch):
    monkeypatch.setitem(cifar.PUBLISHED, "train", 10)
    monkeypatch.setitem(cifar.PUBLISHED, "test", 20)
    write_cifar10(tmp_path)
    return tmp_path


def test_a_regenerated_set_is_hashed_and_gaps_are_named(small_cifar):
    folder = prepare("cifar10", small_cifar, corruptions=["fog", "snow"], severities=[5], workers=1)
    checks = by_name(DATASETS["cifar10"].verify(small_cifar))
    assert checks["train"].ok
    assert checks["test"].ok
    assert checks["fog"].ok
    assert (
        checks["fog"].detail == "20 images, checksums right for severity 5; severities not made: 1, 2, 3, 4"
    )
    assert checks["frost"].ok is False
    assert "missing" in checks["frost"].detail
    content = bytearray((folder / "fog.npy").read_bytes())
    content[-1] ^= 1
    (folder / "fog.npy").write_bytes(content)
    (folder / "snow.npy").unlink()
    checks = by_name(DATASETS["cifar10"].verify(small_cifar))
    assert "severity 5 differs from its checksum" in checks["fog"].detail
    assert checks["fog"].ok is False
    assert checks["snow"].detail == f"missing: {folder / 'snow.npy'}"


def test_counts_of_published_files_are_compared(small_cifar, monkeypatch):
    monkeypatch.setitem(cifar.PUBLISHED, "test", 21)
    (small_cifar / "CIFAR-10-C").mkdir()
    checks = by_name(DATASETS["cifar10"].verify(small_cifar))
    assert checks["test"].detail == "20 samples, published 21"
    assert checks["test"].ok is False
    assert "not found" in checks["fog"].detail


def test_clean_data_alone_is_told_what_is_missing(small_cifar):
    checks = DATASETS["cifar10"].verify(small_cifar)
    assert checks[-1].ok is False
    assert "note-tta data prepare cifar10" in checks[-1].detail


def test_mnist_is_checked(tmp_path, monkeypatch):
    monkeypatch.setitem(mnist.PUBLISHED, "train", 12)
    monkeypatch.setitem(mnist.PUBLISHED, "test", 20)
    write_mnist(tmp_path)
    assert [check.ok for check in DATASETS["mnist"].verify(tmp_path)] == [True, True, False]
    prepare("mnist", tmp_path, corruptions=["stripe"], workers=1)
    checks = by_name(DATASETS["mnist"].verify(tmp_path))
    assert checks["stripe"].ok
    assert checks["zigzag"].ok is False
    folder = tmp_path / "mnist_c" / "fog"
    folder.mkdir(parents=True)
    np.save(folder / "test_images.npy", np.zeros((20, 28, 28, 1), np.uint8))
    np.save(folder / "test_labels.npy", np.zeros(20, int))
    assert by_name(DATASETS["mnist"].verify(tmp_path))["fog"].ok


def test_recordings_users_and_segments_are_counted(tmp_path):
    write_hapt(tmp_path)
    checks = by_name(DATASETS["hapt"].verify(tmp_path))
    assert checks["recordings"].detail == "2, published 61"
    assert checks["labelled segments"].ok is False
    assert checks["user22"].detail == "7 windows"


def test_windows_stand_beside_the_papers(tmp_path):
    write_harth_subject(tmp_path / "harth", "S006", [(1, 100)])
    write_harth_subject(tmp_path / "harth", "S008", [(1, 100)])
    checks = by_name(DATASETS["harth"].verify(tmp_path))
    assert checks["S008"].detail == "2 windows, the paper has 8,140 (-8,138)"
    assert checks["S018"].ok is False
    assert "S018.csv" in checks["S018"].detail
    folder = tmp_path / "ExtraSensory"
    write_extrasensory_user(folder, "AAAA", [0] * 50)
    write_extrasensory_user(folder, next(iter(extrasensory.PAPER_WINDOWS)), [0] * 10)
    checks = by_name(DATASETS["extrasensory"].verify(tmp_path))
    assert checks["4FC"].detail == "2 windows, the paper has 844 (-842)"
    assert checks["users"].ok is False
    assert "834" in checks["difference"].detail


def test_pictures_are_counted(tmp_path):
    write_imagenet(tmp_path)
    write_kitti(tmp_path)
    assert by_name(DATASETS["imagenet"].verify(tmp_path))["test"].detail == "4 samples, published 50,000"
    assert by_name(DATASETS["kitti"].verify(tmp_path))["source"].detail.startswith("2 windows")


def test_a_damaged_file_is_reported_not_raised(tmp_path):
    write_hapt(tmp_path)
    (tmp_path / "HAPT" / "RawData" / "labels.txt").write_text("1 2\n")
    (check,) = DATASETS["hapt"].verify(tmp_path)
    assert check.ok is False
    assert "labels.txt, line 1" in check.detail


def test_nothing_there_is_reported(tmp_path):
    (check,) = DATASETS["kitti"].verify(tmp_path)
    assert "kitti data not found" in check.detail
    with pytest.raises(ValueError, match="unknown dataset 'svhn'"):
        find_dataset("svhn")
    assert all(check.ok for check in DATASETS["digits"].verify(tmp_path))


def test_status_is_one_line(small_cifar):
    prepare("cifar10", small_cifar, corruptions=["fog"], severities=[5], workers=1)
    assert DATASETS["cifar10"].status(small_cifar) == (True, "1 of 15 target domains (regenerated)")
    there, line = DATASETS["hapt"].status(small_cifar)
    assert not there
    assert "HAPT recordings not found" in line
    write_hapt(small_cifar)
    assert DATASETS["hapt"].status(small_cifar) == (True, "1 of 9 target domains (published)")
    (small_cifar / "kitti").mkdir()
    assert "KITTI tracking labels not found" in DATASETS["kitti"].status(small_cifar)[1]
