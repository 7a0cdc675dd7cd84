import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from note_tta.data import open_dataset
from note_tta.train import Subset
from note_tta.train.samples import augment, epoch_batches, read_batches


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@settings(max_examples=50, deadline=None)
@given(
    count=st.integers(2, 200),
    batch_size=st.integers(2, 70),
    processes=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_batches_cover_the_samples(count, batch_size, processes, seed):
    try:
        batches = epoch_batches(count, batch_size, generator=generator(seed), processes=processes)
    except ValueError:
        assert count < 2 * processes or (batch_size < 2 * processes and count <= batch_size)
        return
    seen = torch.cat(batches)
    assert len(seen.unique()) == len(seen)
    assert count - len(seen) < 2 * processes
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert len(batches[-1]) >= 2 * processes or len(batches[-1]) == batch_size


def test_too_few_samples():
    with pytest.raises(ValueError, match="3 samples make no batch: each of 2 processes needs at least two"):
        epoch_batches(3, 8, generator=generator(), processes=2)


def test_no_augmentation_leaves_the_batch_alone():
    x = torch.rand(4, 3, 8, 8)
    assert augment(x, generator()) is x


@pytest.mark.parametrize(("fill", "mode"), [("black", "constant"), ("reflect", "reflect")])
def test_every_crop_is_a_window_of_the_padded_image(fill, mode):
    x = torch.rand(40, 2, 6, 5)
    out = augment(x, generator(), crop_padding=2, crop_fill=fill)
    padded = torch.from_numpy(np.pad(x.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)), mode=mode))
    places = set()
    for image, crop in zip(padded, out, strict=True):
        hits = [
            (row, column)
            for row in range(5)
            for column in range(5)
            if torch.equal(image[:, row : row + 6, column : column + 5], crop)
        ]
        assert hits
        places.add(hits[0])
    assert len(places) > 10


def test_flips_are_mirror_images_about_half_the_time():
    x = torch.rand(400, 1, 4, 4)
    out = augment(x, generator(), flip=True)
    mirrored = (out == x.flip(3)).flatten(1).all(1)
    kept = (out == x).flatten(1).all(1)
    assert (mirrored ^ kept).all()
    assert 150 < int(mirrored.sum()) < 250


def test_augmentation_is_seeded():
    x = torch.rand(16, 3, 8, 8)
    first, again, other = (augment(x, generator(seed), crop_padding=2, flip=True) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_sensor_windows_are_not_images():
    with pytest.raises(ValueError, match=r"only images .* got shape \(2, 3, 50\)"):
        augment(torch.rand(2, 3, 50), generator(), flip=True)


@pytest.fixture(scope="module")
def digits():
    return open_dataset("digits").domain("train")


def test_subset_of_a_domain(digits):
    part = Subset(digits, 100)
    assert len(part) == len(part.labels) == 100
    indices = torch.tensor([5, 99, 0])
    rows = [int(part._indices[i]) for i in indices]
    assert torch.equal(part.inputs(indices), digits.inputs(torch.tensor(rows)))
    assert torch.equal(part.labels, Subset(digits, 100).labels)
    assert part.fingerprint != digits.fingerprint
    assert part.fingerprint != Subset(digits, 101).fingerprint
    with pytest.raises(ValueError, match="cannot take 0 of"):
        Subset(digits, 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_come_in_order_from_any_number_of_workers(digits, workers):
    batches = [torch.tensor([3, 1]), torch.tensor([0]), torch.tensor([7, 8, 9])]
    read = list(read_batches(digits, batches, workers=workers))
    assert [len(x) for x, _ in read] == [2, 1, 3]
    for indices, (x, y) in zip(batches, read, strict=True):
        assert torch.equal(x, digits.inputs(indices))
        assert torch.equal(y, digits.labels[indices])
