import torch

from note_tta.data import open_dataset
from note_tta.data.digits import COPIES, TEST_IMAGES


def test_digits_are_embedded_and_seeded():
    dataset = open_dataset("digits")
    assert dataset.domain("train").origin == "embedded"
    assert len(dataset.domain("train")) == COPIES * (1797 - TEST_IMAGES)
    prints = [dataset.domain(name).fingerprint for name in dataset.domains]
    assert len(set(prints)) == len(dataset.domains)
    again = open_dataset("digits", seed=0)
    assert [again.domain(name).fingerprint for name in dataset.domains] == prints
    assert open_dataset("digits", seed=1).domain("test").fingerprint not in prints


def test_targets_share_labels_and_change_what_their_names_say():
    dataset = open_dataset("digits")
    clean = dataset.domain("test")
    assert len(clean) == COPIES * TEST_IMAGES
    contrast, brightness, style = (dataset.domain(name) for name in ("contrast", "brightness", "style"))
    assert all(torch.equal(domain.labels, clean.labels) for domain in (contrast, brightness, style))
    some = slice(0, 200)
    before = clean.inputs(some)
    assert contrast.inputs(some).std() < 0.7 * before.std()
    assert brightness.inputs(some).mean() > before.mean() + 0.1
    levels = style.inputs(some).flatten(1).mean(dim=1)
    assert levels.std() > 1.5 * before.flatten(1).mean(dim=1).std()


def test_train_and_test_show_different_digits():
    dataset = open_dataset("digits")
    counts = [dataset.domain(name).labels.bincount(minlength=10) for name in ("train", "test")]
    assert all((count % COPIES == 0).all() for count in counts)
    assert sum(counts).sum() == COPIES * 1797
