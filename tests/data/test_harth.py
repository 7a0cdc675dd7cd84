import pytest
from published_formats import write_harth_subject

from note_tta.data import BadData, MissingData, open_dataset


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "harth"


def test_the_source_is_the_back_and_the_target_the_thigh(tmp_path, folder):
    write_harth_subject(folder, "S006", [(1, 120), (140, 50)], back=0.0, thigh=1000.0)
    write_harth_subject(folder, "S008", [(7, 100), (6, 49), (13, 51)], back=-1000.0, thigh=5.0)
    dataset = open_dataset("harth", tmp_path)
    assert dataset.targets == ("S008",)
    assert len(dataset.absent) == 6
    assert len(dataset.classes) == 12
    source, target = dataset.domain("source"), dataset.domain("S008")
    assert [dataset.classes[label] for label in source.labels] == [
        "walking",
        "walking",
        "cycling_stand_inactive",
    ]
    assert [dataset.classes[label] for label in target.labels] == ["sitting", "sitting", "cycling_sit"]
    assert source.inputs().min() == 0.0
    assert source.inputs().max() == 1.0
    # the thigh reads 5 above the back's 0 ... 0.98, on the source's scale
    assert target.inputs([0])[0, 0, 0].item() == pytest.approx(5 / 0.98, rel=1e-4)


def test_an_extra_index_column_changes_nothing(tmp_path, folder):
    write_harth_subject(folder, "S006", [(1, 100)])
    before = open_dataset("harth", tmp_path).domain("source").fingerprint
    write_harth_subject(folder, "S006", [(1, 100)], index=True)
    assert open_dataset("harth", tmp_path).domain("source").fingerprint == before


def test_targets_alone_are_not_enough(tmp_path, folder):
    write_harth_subject(folder, "S008", [(1, 100)])
    with pytest.raises(MissingData, match="HARTH source subjects not found"):
        open_dataset("harth", tmp_path)


def replace_cell(file, line, column, value):
    lines = file.read_text().splitlines()
    cells = lines[line - 1].split(",")
    cells[column] = value
    lines[line - 1] = ",".join(cells)
    file.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("line", "column", "value", "message"),
    [
        (1, 2, "back_q", "S006.csv, line 1: column back_y is missing"),
        (4, 7, "99", "S006.csv, line 4: unknown label 99"),
        (5, 1, "", "S006.csv, line 5: a cell is empty, NaN or infinite"),
        (6, 3, "nan", "S006.csv, line 6: a cell is empty, NaN or infinite"),
        (7, 1, "x", "S006.csv, line 7: column back_x: not a number: 'x'"),
        (9, 0, "yesterday", "S006.csv: column timestamp"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path, folder, line, column, value, message):
    file = write_harth_subject(folder, "S006", [(1, 100)])
    replace_cell(file, line, column, value)
    with pytest.raises(BadData, match=message):
        open_dataset("harth", tmp_path).domain("train")


def test_unsorted_rows_are_sorted_with_a_warning(tmp_path, folder):
    file = write_harth_subject(folder, "S006", [(1, 100)])
    before = open_dataset("harth", tmp_path).domain("source").fingerprint
    lines = file.read_text().splitlines()
    lines[9], lines[10] = lines[10], lines[9]
    file.write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match=r"S006.csv, line 11: timestamps step back; the rows are sorted"):
        assert open_dataset("harth", tmp_path).domain("source").fingerprint == before
