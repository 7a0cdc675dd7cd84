"""The published files themselves, where NOTE_TTA_DATA has them."""

import pytest

from note_tta.data import DATASETS, MissingData, open_dataset
from note_tta.data.hapt import raw_folder, read_recordings

pytestmark = pytest.mark.real_data


def opened(name, root):
    try:
        return open_dataset(name, root)
    except MissingData as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("name", "train", "test"), [("cifar10", 50_000, 10_000), ("mnist", 60_000, 10_000)])
def test_image_sets_are_complete(data_root, name, train, test):
    dataset = opened(name, data_root)
    domains = {split: dataset.domain(split) for split in ("train", "test")}
    assert (len(domains["train"]), len(domains["test"])) == (train, test)
    assert domains["test"].labels.bincount().min() > 800
    if name == "cifar10":
        assert domains["train"].labels.bincount().tolist() == [5000] * 10


def test_hapt_has_its_recordings_users_and_segments(data_root):
    dataset = opened("hapt", data_root)
    recordings = read_recordings(raw_folder(data_root))
    assert len(recordings) == 61
    assert {user for _, user in recordings} == set(range(1, 31))
    assert sum(len(segments) for segments in recordings.values()) == 1_214
    assert len(dataset.targets) == 9
    assert len(dataset.domain("source")) == len(dataset.domain("train")) + len(dataset.domain("test"))


@pytest.mark.slow
def test_extrasensory_windows_stand_beside_the_papers(data_root, capsys):
    opened("extrasensory", data_root)
    checks = {check.what: check for check in DATASETS["extrasensory"].verify(data_root)}
    with capsys.disabled():
        for check in checks.values():
            print(f"\n  {check.what}: {check.detail}", end="")
    expected = {"4FC": (774, 844), "797": (498, 463), "A5C": (731, 734), "C48": (849, 850)}
    for user, (ours, paper) in expected.items():
        if checks[user].ok is not False:
            assert checks[user].detail.startswith(f"{ours} windows, the paper has {paper}")


def test_a_regenerated_cifar10_c_keeps_its_checksums(data_root):
    opened("cifar10", data_root)
    checks = {check.what: check for check in DATASETS["cifar10"].verify(data_root)}
    if "manifest" not in checks:
        pytest.skip("no regenerated CIFAR-10-C in the data root; note-tta data prepare cifar10 makes it")
    # a root may hold only a part of the set
    made = [check for check in checks.values() if not check.detail.startswith("missing: not in")]
    assert all(check.ok for check in made), made
