import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from note_tta import streams

LABELS = torch.arange(2000) % 10


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@given(
    classes=st.integers(1, 8),
    each=st.integers(20, 60),
    delta=st.sampled_from([1e-3, 0.01, 0.1, 1.0, 10.0]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_dirichlet_uses_every_sample_once(classes, each, delta, seed):
    labels = torch.arange(classes * each) % classes
    order = streams.dirichlet(labels, delta, seeded(seed))
    assert order.dtype == torch.long
    assert torch.equal(order.sort().values, torch.arange(len(labels)))


@pytest.mark.parametrize("order", [streams.iid, streams.dirichlet, streams.sorted])
def test_the_same_seed_gives_the_same_order_and_another_another(order):
    assert torch.equal(order(LABELS, generator=seeded(3)), order(LABELS, generator=seeded(3)))
    assert not torch.equal(order(LABELS, generator=seeded(3)), order(LABELS, generator=seeded(4)))


def test_sorted_goes_class_by_class():
    assert torch.equal(LABELS[streams.sorted(LABELS)], LABELS.sort().values)
    assert torch.equal(LABELS[streams.sorted(LABELS, seeded(0))], LABELS.sort().values)


def test_chronological_is_the_own_order():
    assert torch.equal(streams.chronological(LABELS), torch.arange(2000))


def test_iid_runs_are_short_and_dirichlet_runs_grow_as_delta_falls():
    runs = [
        sum(streams.mean_run_length(LABELS[streams.dirichlet(LABELS, d, seeded(s))]) for s in range(5)) / 5
        for d in (0.01, 0.1, 1.0)
    ]
    assert runs[0] > runs[1] > runs[2] > 5 > streams.mean_run_length(LABELS[streams.iid(LABELS, seeded(0))])


def test_the_documented_correlation_at_ten_and_a_hundred_classes():
    def mean_over_seeds(classes):
        labels = torch.arange(10_000) % classes
        lengths = [
            streams.mean_run_length(labels[streams.dirichlet(labels, 0.1, seeded(seed))])
            for seed in range(20)
        ]
        return sum(lengths) / len(lengths)

    assert mean_over_seeds(10) == pytest.approx(208, rel=0.15)
    assert mean_over_seeds(100) == pytest.approx(4.5, rel=0.1)


def test_no_token_is_nearly_empty_and_shares_are_kept():
    order = streams.dirichlet(LABELS, 0.1, seeded(1))
    assert streams.mean_run_length(LABELS[order]) <= 2000 / 10


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: streams.dirichlet(LABELS, 0), "delta must be greater than 0, got 0"),
        (lambda: streams.dirichlet(LABELS, float("nan")), "delta must be greater than 0, got nan"),
        (lambda: streams.dirichlet(LABELS, float("inf")), "delta must be finite"),
        (lambda: streams.iid(torch.zeros(2, 2)), r"one-dimensional, got shape \(2, 2\)"),
        (
            lambda: streams.dirichlet([0] * 1000 + list(range(1, 9)), 1e-3),
            "raise delta, or give more samples a class",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_empty_streams():
    for order in (streams.iid, streams.dirichlet, streams.sorted, streams.chronological):
        assert len(order(torch.empty(0, dtype=torch.long))) == 0
    assert streams.mean_run_length([]) == 0
