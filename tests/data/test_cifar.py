import pickle

import numpy as np
import pytest
import torch
from published_formats import write_cifar10, write_cifar100, write_cifar_c

from note_tta.data import BadData, MissingData, open_dataset


def test_cifar10_loads_its_five_batches_in_order(tmp_path):
    write_cifar10(tmp_path)
    dataset = open_dataset("cifar10", tmp_path)
    train, test = dataset.domain("train"), dataset.domain("test")
    assert (dataset.title, dataset.stream, len(dataset.classes)) == ("CIFAR10-C", "dirichlet", 10)
    assert (len(train), len(test)) == (10, 20)
    with (tmp_path / "cifar-10-batches-py" / "data_batch_2").open("rb") as file:
        batch = pickle.load(file, encoding="bytes")
    expected = torch.from_numpy(batch[b"data"][1].reshape(3, 32, 32)).float() / 255
    assert torch.allclose(train.inputs([3])[0], expected)
    assert train.origin == "published"
    assert dataset.domain("source").name == "train"


def test_cifar100_reads_fine_labels(tmp_path):
    write_cifar100(tmp_path)
    dataset = open_dataset("cifar100", tmp_path)
    assert len(dataset.classes) == len(set(dataset.classes)) == 100
    assert list(dataset.classes) == sorted(dataset.classes)
    assert dataset.domain("test").labels[:3].tolist() == [0, 7, 14]
    assert len(dataset.domain("train")) == 12


@pytest.mark.parametrize("severity", [1, 5])
def test_a_severity_is_its_block_of_the_published_file(tmp_path, severity):
    write_cifar10(tmp_path)
    images = write_cifar_c(tmp_path / "CIFAR-10-C", "fog")
    fog = open_dataset("cifar10", tmp_path, severity=severity).domain("fog")
    expected = images[(severity - 1) * 4 : severity * 4].transpose(0, 3, 1, 2)
    assert torch.allclose(fog.inputs(), torch.from_numpy(expected).float() / 255)
    assert fog.labels.tolist() == [0, 1, 2, 3]
    assert fog.origin == "published"


def test_the_corrupted_set_alone_is_enough_to_open_it(tmp_path):
    write_cifar_c(tmp_path / "CIFAR-100-C", "snow", classes=100)
    dataset = open_dataset("cifar100", tmp_path)
    assert len(dataset.domain("snow")) == 4
    with pytest.raises(MissingData, match="cifar100 train images not found"):
        dataset.domain("train")


def test_a_missing_corruption_names_both_ways_to_get_it(tmp_path):
    write_cifar10(tmp_path)
    with pytest.raises(
        MissingData, match=r"fog at severity 3 not found.*CIFAR-10-C.*prepare cifar10 --severity 3"
    ):
        open_dataset("cifar10", tmp_path, severity=3).domain("fog")


def test_bad_files_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="severity must be 1, 2, 3, 4 or 5, got 6"):
        open_dataset("cifar10", tmp_path, severity=6)
    write_cifar10(tmp_path)
    write_cifar_c(tmp_path / "CIFAR-10-C", "fog")
    np.save(tmp_path / "CIFAR-10-C" / "labels.npy", np.full(20, 10))
    with pytest.raises(BadData, match=r"labels.npy: unknown label 10 at sample 0"):
        open_dataset("cifar10", tmp_path).domain("fog")
    np.save(tmp_path / "CIFAR-10-C" / "labels.npy", np.zeros(15, int))
    with pytest.raises(BadData, match=r"fog.npy: 20 images for 15 labels"):
        open_dataset("cifar10", tmp_path).domain("fog")
    np.save(tmp_path / "CIFAR-10-C" / "fog.npy", np.zeros((20, 28, 28, 3), np.uint8))
    with pytest.raises(BadData, match=r"expected shape \[N, 32, 32, 3\]"):
        open_dataset("cifar10", tmp_path).domain("fog")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"data": np.zeros((3, 3071), np.uint8)}, r"'data' must be a uint8 array of shape \[N, 3072\]"),
        ({b"data": np.zeros((3, 3072), np.float32)}, "not a readable batch of plain arrays"),
        ({b"labels": None}, "'labels' must be a list of integers"),
        ({b"labels": [0]}, "3 images but 1 labels"),
        ({b"labels": [0, 1, 11]}, "unknown label 11 at sample 2"),
    ],
)
def test_a_bad_batch_is_refused(tmp_path, change, message):
    write_cifar10(tmp_path)
    batch = {b"data": np.zeros((3, 3072), np.uint8), b"labels": [0, 1, 2], **change}
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(BadData, match=f"test_batch: {message}"):
        open_dataset("cifar10", tmp_path).domain("test")
