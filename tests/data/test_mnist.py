import gzip

import numpy as np
import pytest
from published_formats import write_idx, write_mnist

from note_tta.data import BadData, MissingData, open_dataset

TEST_IMAGES = "MNIST/raw/t10k-images-idx3-ubyte.gz"


def test_mnist_loads_gzipped_and_plain(tmp_path):
    write_mnist(tmp_path)
    test = open_dataset("mnist", tmp_path).domain("test")
    assert test.inputs([0, 1]).shape == (2, 1, 28, 28)
    assert test.labels[:3].tolist() == [0, 1, 2]
    file = tmp_path / TEST_IMAGES
    file.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
    file.unlink()
    assert open_dataset("mnist", tmp_path).domain("test").fingerprint == test.fingerprint


def test_mnist_c_loads_in_the_published_layout(tmp_path):
    folder = tmp_path / "mnist_c" / "fog"
    folder.mkdir(parents=True)
    np.save(folder / "test_images.npy", np.full((4, 28, 28, 1), 255, np.uint8))
    np.save(folder / "test_labels.npy", np.arange(4))
    fog = open_dataset("mnist", tmp_path).domain("fog")
    assert fog.inputs().min() == 1.0
    assert fog.origin == "published"
    with pytest.raises(MissingData, match=r"mnist zigzag not found.*note-tta data prepare mnist"):
        open_dataset("mnist", tmp_path).domain("zigzag")
    np.save(folder / "test_labels.npy", np.arange(3))
    with pytest.raises(BadData, match="4 images for 3 labels"):
        open_dataset("mnist", tmp_path).domain("fog")


@pytest.mark.parametrize("keep", [5, 100, -8])
def test_a_truncated_gzip_is_refused_by_name(tmp_path, keep):
    write_mnist(tmp_path)
    file = tmp_path / TEST_IMAGES
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(BadData, match=r"t10k-images-idx3-ubyte.gz: truncated or damaged gzip"):
        open_dataset("mnist", tmp_path).domain("test")


def test_wrong_headers_sizes_and_counts_are_refused(tmp_path):
    write_mnist(tmp_path)
    file = tmp_path / TEST_IMAGES
    write_idx(file, np.zeros((2, 30, 28)))
    with pytest.raises(BadData, match="expected images of 28x28, found 30x28"):
        open_dataset("mnist", tmp_path).domain("test")
    write_idx(file, np.zeros((2, 28, 28)))
    with pytest.raises(BadData, match="20 labels for 2 images"):
        open_dataset("mnist", tmp_path).domain("test")
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes())[:-1]))
    with pytest.raises(BadData, match="its header announces 1584 bytes, it has 1583"):
        open_dataset("mnist", tmp_path).domain("test")
    file.write_bytes(gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12))
    with pytest.raises(BadData, match="its header announces"):
        open_dataset("mnist", tmp_path).domain("test")
    write_idx(file, np.zeros(4))
    with pytest.raises(BadData, match="not an idx file of bytes with 3 dimensions"):
        open_dataset("mnist", tmp_path).domain("test")
