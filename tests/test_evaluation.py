import io
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import note_tta as tta
from note_tta import evaluation


def scripted(answers):
    """A method that answers with the scripted classes in turn; None means NaN."""
    left = list(answers)

    def method(x):
        classes = [left.pop(0) for _ in range(len(x))]
        return torch.stack([torch.full((3,), torch.nan) if c is None else torch.eye(3)[c] for c in classes])

    return method


def batches(labels, size):
    return [(torch.zeros(len(part), 1), part) for part in torch.tensor(labels).split(size)]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_scores_every_sample_once_on_its_first_answer(size):
    result = tta.evaluate(scripted([0, 1, 2, 0, None]), batches([0, 1, 1, 2, 2], size))
    assert result.samples == 5
    assert result.error == pytest.approx(60)
    assert result.predictions.tolist() == [0, 1, 2, 0, -1]
    assert result.labels.tolist() == [0, 1, 1, 2, 2]
    assert result.cumulative_error.tolist() == pytest.approx([0, 0, 100 / 3, 50, 60])
    assert result.per_class_error == {0: 0, 1: 50, 2: 100}


def test_timings_are_there():
    result = tta.evaluate(scripted([0] * 6), batches([0] * 6, 2))
    assert result.seconds > 0 and result.samples_per_second > 0
    assert result.latency_ms[50] <= result.latency_ms[90] <= result.latency_ms[99]


def test_an_empty_stream_has_no_error():
    result = tta.evaluate(scripted([]), [])
    assert result.samples == 0 and result.error != result.error and len(result.cumulative_error) == 0


def test_takes_a_data_loader():
    model = torch.nn.Linear(2, 3)
    loader = DataLoader(TensorDataset(torch.rand(10, 2), torch.zeros(10, dtype=torch.long)), batch_size=4)
    assert tta.evaluate(tta.Source(model), loader).samples == 10


def test_takes_numpy_arrays():
    stream = [(x.numpy(), y.numpy()) for x, y in batches([0, 1, 2, 1], 2)]
    assert tta.evaluate(scripted([0, 1, 1, 1]), stream).error == 25
    method = tta.Source(torch.nn.Linear(1, 3))
    assert torch.equal(tta.evaluate(method, stream).labels, torch.tensor([0, 1, 2, 1]))


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"a batch of 2 inputs came with labels of shape \(3,\)"):
        tta.evaluate(scripted([0, 0]), [(torch.zeros(2, 1), torch.zeros(3))])


def test_silent_unless_on_a_terminal(monkeypatch, capfd):
    monkeypatch.setattr(evaluation, "PROGRESS_AFTER_SECONDS", 0.0)
    tta.evaluate(scripted([0] * 4), batches([0] * 4, 1))
    assert capfd.readouterr().err == ""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    tta.evaluate(scripted([0] * 4), batches([0] * 4, 1))
    assert "error" in screen.getvalue()


def test_a_loader_over_a_live_stream_has_no_length():
    class Live(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([(torch.rand(2), 0), (torch.rand(2), 1), (torch.rand(2), 0)])

    loader = torch.utils.data.DataLoader(Live(), batch_size=2)
    assert tta.evaluate(lambda x: x, loader).samples == 3


@pytest.mark.parametrize(
    ("stream", "told"),
    [
        ((torch.rand(4, 2), torch.zeros(4)), "got a Tensor"),
        ([torch.rand(2, 2)], "got a Tensor"),
        ([(torch.rand(2, 2),)], "got a tuple of 1"),
    ],
)
def test_what_is_no_stream_of_pairs_is_told(stream, told):
    with pytest.raises(ValueError, match=f"must yield batches .x, y., {told}: for a single batch, give"):
        tta.evaluate(lambda x: x, stream)


def test_an_answer_of_nan_is_wrong_whatever_the_label():
    result = tta.Result(torch.tensor([-1, 0, 1, -1]), torch.tensor([-1, 0, 0, 1]), 1.0)
    assert result.error == 75.0
    assert result.cumulative_error.tolist() == [100.0, 50.0, pytest.approx(200 / 3), 75.0]
    assert result.per_class_error == {-1: 100.0, 0: 50.0, 1: 100.0}


def test_labels_may_be_of_any_integer_dtype():
    stream = [(torch.rand(4, 2), np.zeros(4, dtype=np.uint16))]
    assert tta.evaluate(lambda x: x, stream).labels.dtype == torch.long
