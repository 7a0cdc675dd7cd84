import gzip

import pytest
import torch
from published_formats import write_extrasensory_user

from note_tta.data import BadData, MissingData, open_dataset, tables
from note_tta.data.extrasensory import FEATURE_COLUMNS, PAPER_WINDOWS, SOURCE_USERS, read_user

TARGET = next(iter(PAPER_WINDOWS))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "ExtraSensory.per_uuid_features_labels"


def test_windows_of_five_rows_under_one_label(tmp_path, folder):
    write_extrasensory_user(folder, "AAAA", [0] * 60 + [1] * 60)
    write_extrasensory_user(folder, TARGET, [2] * 6 + [None] + [3] * 5 + [4] * 4)
    dataset = open_dataset("extrasensory", tmp_path)
    assert dataset.targets == ("4FC",)
    assert "797" in dataset.absent
    assert dataset.domain("4FC").labels.tolist() == [2, 3]
    source = dataset.domain("source").inputs()
    assert source.shape == (24, len(FEATURE_COLUMNS), 5)
    assert source.mean(dim=(0, 2)).abs().max() < 1e-4
    assert torch.allclose(source.std(dim=(0, 2), correction=0), torch.ones(len(FEATURE_COLUMNS)), atol=1e-3)


def test_targets_are_scaled_by_the_source(tmp_path, folder):
    write_extrasensory_user(folder, "AAAA", [0] * 100)
    write_extrasensory_user(folder, TARGET, [0] * 100, shift=3.0)
    assert open_dataset("extrasensory", tmp_path).domain("4FC").inputs().mean() > 2


def test_the_source_is_the_sixteen_largest_users(tmp_path, folder):
    for number in range(SOURCE_USERS + 2):
        write_extrasensory_user(folder, f"USER{number:02d}", [0] * 5 * (number + 1))
    dataset = open_dataset("extrasensory", tmp_path)
    assert len(dataset.domain("source")) == sum(range(3, SOURCE_USERS + 3))


def test_other_source_users_at_random(tmp_path, folder):
    write_extrasensory_user(folder, TARGET, [0] * 5)
    for number in range(SOURCE_USERS + 8):
        write_extrasensory_user(folder, f"USER{number:02d}", [number % 5] * 5)

    def drawn(seed):
        return open_dataset("extrasensory", tmp_path, source_seed=seed).domain("source")

    assert all(len(drawn(seed)) == SOURCE_USERS for seed in range(4))
    assert len({tuple(drawn(seed).labels.tolist()) for seed in range(4)}) > 1
    assert drawn(2).fingerprint == drawn(2).fingerprint
    with pytest.raises(ValueError, match="source_seed must be a whole number of at least 0, got -1"):
        drawn(-1)


def test_rows_with_missing_features_are_left_out(folder):
    file = write_extrasensory_user(folder, "AAAA", [0] * 12)
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    cells = lines[3].split(",")
    cells[5] = "nan"
    lines[3] = ",".join(cells)
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    windows = read_user(file)
    assert len(windows.labels) == 1  # rows 0-1 are too few, 3-7 are a window, 8-11 too few
    with_two_labels = [line.replace(",1.0,0.0,", ",1.0,1.0,") for line in lines]
    file.write_bytes(gzip.compress("\n".join(with_two_labels).encode()))
    assert len(read_user(file).labels) == 0


def edit(file, change):
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    change(lines)
    file.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))


def swap_rows(lines):
    lines[2], lines[3] = lines[3], lines[2]


def drop_column(lines):
    lines[0] = lines[0].replace("raw_acc:3d:mean_x", "something")


def word_for_number(lines):
    lines[4] = lines[4].replace(lines[4].split(",")[1], "word", 1)


def odd_label(lines):
    lines[5] = lines[5].replace(",1.0,", ",2.0,", 1)


def short_row(lines):
    lines[6] = lines[6].rsplit(",", 1)[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_column, "line 1: column raw_acc:3d:mean_x is missing"),
        (word_for_number, "line 5: column raw_acc:magnitude_stats:mean: not a number: 'word'"),
        (odd_label, "line 6: column label:LYING_DOWN: unknown label 2"),
        (short_row, r"line 7: \d+ cells for \d+ columns"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(folder, change, message):
    file = write_extrasensory_user(folder, "AAAA", [0] * 10)
    edit(file, change)
    with pytest.raises(BadData, match=rf"AAAA.features_labels.csv.gz, {message}"):
        read_user(file)


def test_unsorted_rows_are_sorted_with_a_warning(folder):
    file = write_extrasensory_user(folder, "AAAA", [0] * 10)
    before = read_user(file)
    edit(file, swap_rows)
    with pytest.warns(UserWarning, match=r"AAAA.features_labels.csv.gz, line 4: timestamps step back"):
        after = read_user(file)
    assert (after.values == before.values).all()


def test_endless_lines_and_files_are_refused(folder, monkeypatch):
    file = write_extrasensory_user(folder, "AAAA", [0] * 10)
    monkeypatch.setattr(tables, "MOST_ROWS", 5)
    with pytest.raises(BadData, match="more than 5 rows"):
        read_user(file)
    file.write_bytes(gzip.compress(b"," * 10**7))
    with pytest.raises(BadData, match="line 1: a line of 65536 characters or more"):
        read_user(file)


def test_an_extra_index_column_is_ignored(folder):
    file = write_extrasensory_user(folder, "AAAA", [0] * 10)
    before = read_user(file)

    def add_index(lines):
        lines[:] = [("," if i == 0 else f"{i},") + line for i, line in enumerate(lines)]

    edit(file, add_index)
    assert (read_user(file).values == before.values).all()


def test_truncated_and_empty_files_are_refused(tmp_path, folder):
    file = write_extrasensory_user(folder, "AAAA", [0] * 10)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadData, match=r"AAAA.features_labels.csv.gz: truncated or damaged after \d+ rows"):
        read_user(file)
    file.write_bytes(gzip.compress(b""))
    with pytest.raises(BadData, match="the file is empty"):
        read_user(file)
    file.unlink()
    with pytest.raises(MissingData, match="ExtraSensory user files not found"):
        open_dataset("extrasensory", tmp_path)
