import pytest

from note_tta.serve import limits
from note_tta.serve.limits import Pending, Rates, Refused


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    return now


def test_a_stream_may_burst_and_then_send_at_its_rate(clock):
    rates = Rates(10.0, 100)
    rates.take("a", 100)
    with pytest.raises(Refused, match="faster than 10 samples per second"):
        rates.take("a", 1)
    rates.take("b", 100)
    clock[0] += 1
    rates.take("a", 10)
    with pytest.raises(Refused):
        rates.take("a", 1)


def test_a_request_larger_than_the_burst_is_taken_when_rested(clock):
    rates = Rates(1.0, 100)
    rates.take("a", 500)
    clock[0] += 400
    with pytest.raises(Refused):
        rates.take("a", 1)
    clock[0] += 100
    rates.take("a", 1)


def test_buckets_are_bounded(clock):
    rates = Rates(1.0, 3)
    for name in "abcdef":
        rates.take(name, 1)
    assert len(rates._buckets) == 3


def test_what_is_taken_is_given_back_also_after_an_error():
    pending = Pending(10)
    with pytest.raises(ZeroDivisionError), pending.share() as take:
        take(10)
        assert pending.taken == 10
        with pytest.raises(Refused, match="too much is being sent at once"), pending.share() as other:
            other(1)
        raise ZeroDivisionError
    assert pending.taken == 0
