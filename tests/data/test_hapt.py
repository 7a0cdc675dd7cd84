import numpy as np
import pytest
import torch
from published_formats import write_hapt

from note_tta.data import BadData, MissingData, open_dataset


def test_segments_become_windows_of_source_and_targets(tmp_path):
    write_hapt(tmp_path)
    dataset = open_dataset("hapt", tmp_path)
    assert dataset.targets == ("user22",)
    assert len(dataset.absent) == 8
    assert dataset.stream == "chronological"
    target = dataset.domain("user22")
    assert target.labels.tolist() == [4, 4, 4, 11, 0, 0, 0]
    assert target.inputs().shape == (7, 6, 50)
    source = dataset.domain("source").inputs()
    assert source.amin(dim=(0, 2)).allclose(torch.zeros(6))
    assert source.amax(dim=(0, 2)).allclose(torch.ones(6))


def test_windows_follow_the_files(tmp_path):
    write_hapt(tmp_path)
    folder = tmp_path / "HAPT" / "RawData"
    acc, gyro = (np.loadtxt(folder / f"{sensor}_exp02_user22.txt") for sensor in ("acc", "gyro"))
    first = np.concatenate([acc, gyro], axis=1)[10:60].T
    window = open_dataset("hapt", tmp_path).domain("user22").inputs([0])[0].numpy()
    for channel in range(6):
        assert np.corrcoef(window[channel], first[channel])[0, 1] == pytest.approx(1.0)


def test_rotation_turns_the_targets_frame_only(tmp_path):
    write_hapt(tmp_path)
    plain, turned = open_dataset("hapt", tmp_path), open_dataset("hapt", tmp_path, rotation="z90")
    assert torch.equal(plain.domain("train").inputs(), turned.domain("train").inputs())
    before, after = plain.domain("user22").inputs([0])[0], turned.domain("user22").inputs([0])[0]
    assert np.corrcoef(before[0], after[1])[0, 1] == pytest.approx(1, abs=1e-4)  # x becomes y
    assert np.corrcoef(before[1], after[0])[0, 1] == pytest.approx(-1, abs=1e-4)
    assert torch.allclose(before[2], after[2])
    assert turned.title == "HAPT (z90)"
    with pytest.raises(ValueError, match="rotation must be an axis and degrees"):
        open_dataset("hapt", tmp_path, rotation="90")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 1 13 300 350", "labels.txt, line 7: unknown label 13; activities are 1-12"),
        ("9 1 3 300 350", "labels.txt, line 7: experiment 9 of user 1 has no recording"),
        ("1 1 3 0 350", "labels.txt, line 7: segment 0-350 is empty or starts before sample 1"),
        ("1 1 3 300", "labels.txt, line 7: expected 5 numbers, found '1 1 3 300'"),
        ("1 1 3 300 401", "ends after its last row"),
    ],
)
def test_bad_labels_are_refused_with_their_line(tmp_path, line, message):
    write_hapt(tmp_path)
    labels = tmp_path / "HAPT" / "RawData" / "labels.txt"
    labels.write_text(labels.read_text() + line + "\n")
    with pytest.raises(BadData, match=message):
        open_dataset("hapt", tmp_path).domain("train")


def test_bad_recordings_are_refused_with_their_line(tmp_path):
    write_hapt(tmp_path)
    file = tmp_path / "HAPT" / "RawData" / "acc_exp01_user01.txt"
    lines = file.read_text().splitlines()
    lines[2] = "0.1 nan 0.3"
    file.write_text("\n".join(lines))
    with pytest.raises(
        BadData, match=r"acc_exp01_user01.txt, line 3: expected 3 numbers, found '0.1 nan 0.3'"
    ):
        open_dataset("hapt", tmp_path).domain("train")
    file.write_text("\n".join(lines[:2]))
    with pytest.raises(BadData, match="400 rows, the accelerometer has 2"):
        open_dataset("hapt", tmp_path).domain("train")
    (tmp_path / "HAPT" / "RawData" / "labels.txt").unlink()
    with pytest.raises(MissingData, match="HAPT labels not found"):
        open_dataset("hapt", tmp_path)
