import numpy as np
import pytest
import torch
from published_formats import write_cifar10, write_cifar_c

from note_tta.data import Dataset, open_dataset
from note_tta.data.base import image_domain
from note_tta.data.imbalance import thin_out

CLASSES = 5


@pytest.fixture
def even():
    """Forty samples of each class, one after another; a sample's pixels are its place."""
    images = np.arange(200, dtype=np.uint8).repeat(12).reshape(200, 2, 2, 3)
    labels = np.arange(200) % CLASSES
    openers = {
        name: lambda name=name: image_domain(name, images, labels, origin="embedded")
        for name in ("train", "test", "fog")
    }
    return Dataset("even", "Even", tuple("abcde"), (3, 2, 2), ("fog",), "dirichlet", openers)


def test_the_share_falls_by_the_same_factor_from_class_to_class(even):
    fog = thin_out(even, 16).domain("fog")
    assert torch.bincount(fog.labels).tolist() == [40, 20, 10, 5, 2]


def test_the_first_of_each_class_are_kept_in_their_order(even):
    whole, fog = even.domain("fog"), thin_out(even, 16).domain("fog")
    places = (fog.inputs()[:, 0, 0, 0] * 255).round().long()
    assert torch.equal(whole.labels[places], fog.labels)
    assert places.tolist() == sorted(places.tolist())
    assert places[fog.labels == 4].tolist() == [4, 9]
    assert torch.equal(fog.inputs([3, 1]), whole.inputs(places[[3, 1]]))


def test_the_source_and_an_imbalance_of_one_stay_as_they_are(even):
    thinned = thin_out(even, 16)
    assert len(thinned.domain("train")) == len(thinned.domain("test")) == 200
    assert thin_out(even, 1) is even


def test_the_fingerprint_tells_imbalances_apart_and_keeps_the_origin(even):
    domains = [thin_out(even, ratio).domain("fog") for ratio in (1, 2, 2.0, 16)]
    prints = [domain.fingerprint for domain in domains]
    assert prints[1] == prints[2] and len(set(prints)) == 3
    assert domains[3].origin == "embedded"


def test_no_class_is_lost(even):
    assert torch.bincount(thin_out(even, 1e6).domain("fog").labels).min() == 1


@pytest.mark.parametrize("bad", [0.5, -1, float("inf"), float("nan"), "many", True])
def test_an_imbalance_that_is_none_is_refused(even, bad):
    with pytest.raises(ValueError, match="imbalance must be"):
        thin_out(even, bad)


def test_datasets_take_it_as_an_option(tmp_path):
    write_cifar10(tmp_path)
    write_cifar_c(tmp_path / "CIFAR-10-C", "fog")
    whole = open_dataset("cifar10", tmp_path).domain("fog")
    thinned = open_dataset("cifar10", tmp_path, imbalance=10).domain("fog")
    assert thinned.fingerprint != whole.fingerprint
    assert set(thinned.labels.tolist()) == set(whole.labels.tolist())
