import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from note_tta.data.windows import Scale, Windows, cut_windows, held_out


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(1, 12)), max_size=8), st.integers(1, 5))
def test_windows_lie_inside_one_label_without_overlap(runs, length):
    labels = np.array([label for label, count in runs for _ in range(count)], dtype=np.int64)
    rows = np.stack([np.arange(len(labels)), labels], axis=1).astype(np.float32).reshape(-1, 2)
    windows = cut_windows(rows, labels, length)
    assert windows.values.shape == (len(windows.labels), 2, length)
    assert (windows.values[:, 1] == windows.labels[:, None]).all()
    assert (windows.labels >= 0).all()
    times = windows.values[:, 0]
    assert (np.diff(times, axis=1) == 1).all()
    assert (np.diff(times.reshape(-1)) >= 1).all()


def test_a_run_gives_as_many_windows_as_fit():
    labels = np.array([0] * 7 + [-1] * 4 + [1] * 3 + [0] * 2)
    windows = cut_windows(np.arange(16, dtype=np.float32)[:, None], labels, 3)
    assert windows.labels.tolist() == [0, 0, 1]
    assert windows.values[:, 0, 0].tolist() == [0, 3, 11]


def test_scales_are_fitted_per_channel():
    values = np.array([[[0, 10], [5, 5]], [[20, 10], [5, 5]]], dtype=np.float32)
    windows = Windows(values, np.zeros(2, np.int64))
    scaled = Scale.fit(windows, "minmax")(values)
    assert scaled[:, 0].min() == 0.0
    assert scaled[:, 0].max() == 1.0
    assert (scaled[:, 1] == 0).all()  # a constant channel stays finite
    standard = Scale.fit(windows, "standard")(values)
    np.testing.assert_allclose([standard[:, 0].mean(), standard[:, 0].std()], [0, 1], atol=1e-6)


def test_held_out_windows_come_in_blocks():
    outside = held_out(1234)
    assert outside.sum() == 100
    assert np.flatnonzero(np.diff(outside.astype(int)) == 1).tolist() == [449, 949]
