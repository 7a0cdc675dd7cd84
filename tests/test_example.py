import pytest
import torch

from note_tta import Source, evaluate, streams
from note_tta.checkpoint import read_card
from note_tta.data import open_dataset
from note_tta.example import WEIGHTS, drifting_digits


def test_the_weights_are_those_of_their_card():
    model, _ = drifting_digits()
    clean = evaluate(Source(model), open_dataset("digits").domain("test").batches())
    assert clean.error == pytest.approx(read_card(WEIGHTS)["clean_error"], abs=0.1)
    assert clean.error < 3


def test_the_stream_is_correlated_and_can_be_walked_again():
    _, stream = drifting_digits("contrast", batch_size=100)
    first, second = (torch.cat([y for _, y in stream]) for _ in range(2))
    assert len(first) == 2400 and torch.equal(first, second)
    assert streams.mean_run_length(first) > 20


def test_an_unknown_drift_is_told():
    with pytest.raises(ValueError, match="unknown domain 'fog' of digits"):
        drifting_digits("fog")
