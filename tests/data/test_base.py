import numpy as np
import pytest
import torch

from note_tta.data import BadData, open_dataset
from note_tta.data.base import check_labels, content_digest, image_domain, load_array


@pytest.fixture
def domain():
    images = np.arange(4 * 2 * 2 * 3, dtype=np.uint8).reshape(4, 2, 2, 3)
    return image_domain("test", images, np.array([0, 1, 2, 3]), origin="published")


def test_inputs_are_scaled_channels_first(domain):
    inputs = domain.inputs([1])
    assert inputs.dtype == torch.float32
    assert inputs.shape == (1, 3, 2, 2)
    assert inputs[0, 2, 0, 1].item() == pytest.approx((12 + 3 + 2) / 255)
    assert domain.labels.dtype == torch.int64


@pytest.mark.parametrize("indices", [slice(1, 3), torch.tensor([1, 2]), [1, 2], [-3, -2]])
def test_every_way_to_index_agrees(domain, indices):
    assert torch.equal(domain.inputs(indices), domain.inputs()[1:3])


def test_no_index_gives_an_empty_batch_and_a_wrong_one_an_error(domain):
    assert domain.inputs([]).shape == (0, 3, 2, 2)
    with pytest.raises(IndexError, match="test has 4 samples"):
        domain.inputs([4])


def test_batches_come_in_the_order_asked_for_and_again(domain):
    batches = domain.batches(torch.tensor([3, 0, 2]), 2)
    assert len(batches) == 2
    for _ in range(2):
        assert [y.tolist() for _, y in batches] == [[3, 0], [2]]
        assert torch.equal(torch.cat([x for x, _ in batches]), domain.inputs([3, 0, 2]))
    assert [y.tolist() for _, y in domain.batches()] == [[0, 1, 2, 3]]
    assert [y.tolist() for _, y in domain.batches(slice(1, 3), 1)] == [[1], [2]]
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        domain.batches(size=0)


def test_the_fingerprint_follows_the_content():
    images = np.zeros((2, 2, 2, 3), np.uint8)
    labels = np.array([0, 1])
    same = image_domain("a", images, labels, origin="published").fingerprint
    assert same == image_domain("b", images.copy(), labels, origin="regenerated").fingerprint
    assert same != image_domain("a", images + np.uint8(1), labels, origin="published").fingerprint
    assert same != image_domain("a", images, labels[::-1], origin="published").fingerprint
    assert content_digest(np.zeros((2, 3))) != content_digest(np.zeros((3, 2)))


def test_an_unknown_domain_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown domain 'fog' of digits; known are train, test, contrast"):
        open_dataset("digits").domain("fog")


def test_npy_files_are_mapped_and_checked(tmp_path):
    good = tmp_path / "good.npy"
    np.save(good, np.zeros((3, 4), np.uint8))
    assert isinstance(load_array(good, dtype="uint8", tail=(4,)), np.memmap)
    with pytest.raises(BadData, match=r"good.npy: expected shape \[N, 5\], found \[3, 4\]"):
        load_array(good, dtype="uint8", tail=(5,))
    np.save(tmp_path / "float.npy", np.zeros(3))
    with pytest.raises(BadData, match=r"float.npy: expected uint8 values, found float64"):
        load_array(tmp_path / "float.npy", dtype="uint8")
    with pytest.raises(BadData, match="expected integer values"):
        load_array(tmp_path / "float.npy", dtype="integer")
    (tmp_path / "cut.npy").write_bytes(good.read_bytes()[:-5])
    with pytest.raises(BadData, match=r"cut.npy: not a complete npy file"):
        load_array(tmp_path / "cut.npy", dtype="uint8")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(BadData, match=r"objects.npy"):
        load_array(tmp_path / "objects.npy", dtype="uint8")


def test_labels_must_name_a_class(tmp_path):
    assert check_labels(np.array([[0], [1]]), 2, tmp_path).tolist() == [0, 1]
    with pytest.raises(BadData, match="unknown label 7 at sample 1; there are 5 classes"):
        check_labels(np.array([0, 7]), 5, tmp_path)
