import numpy as np
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


@pytest.mark.parametrize(("classes", "delta", "low", "high"), [(10, 0.1, 196, 214), (100, 0.1, 4.2, 4.6)])
def test_runs_are_as_long_as_the_authors(classes, delta, low, high):
    """Their code over many seeds: 204 at ten classes (rounded cut points give 225), 4.4 at a hundred."""
    labels = torch.arange(10_000) % classes
    lengths = [
        streams.mean_run_length(labels[streams.dirichlet(labels, delta, seeded(seed))])
        for seed in range(100 if classes == 10 else 10)
    ]
    assert low < sum(lengths) / len(lengths) < high


def test_a_class_is_cut_at_floored_points(monkeypatch):
    monkeypatch.setattr(streams, "_proportions", lambda delta, room, rng: np.array([0.55, 0.4, 0.05]))
    stretches = streams._deal([np.arange(10), np.arange(10, 20), np.arange(20, 30)], 0.1, InOrder())
    assert [stretch[0].tolist() for stretch in stretches] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8],
        [9],
    ]


class InOrder:
    """A generator that leaves a class in its order."""

    def permutation(self, values):
        return values


def deals(monkeypatch, labels, delta, seed):
    """Every draw of a Dirichlet stream, the accepted one last: per token, the size of each class's part."""
    seen, deal = [], streams._deal

    def recorded(*arguments):
        stretches = deal(*arguments)
        seen.append([[len(part) for part in stretch] for stretch in stretches])
        return stretches

    monkeypatch.setattr(streams, "_deal", recorded)
    streams.dirichlet(labels, delta, seeded(seed))
    return seen


def test_a_draw_that_leaves_a_token_nearly_empty_is_drawn_again(monkeypatch):
    labels = torch.arange(400) % 10
    rejected = 0
    for seed in range(20):
        *others, accepted = deals(monkeypatch, labels, 0.1, seed)
        assert min(map(sum, accepted)) >= 10
        assert all(min(map(sum, other)) < 10 for other in others)
        rejected += len(others)
        monkeypatch.undo()
    assert rejected > 0


def test_a_token_that_has_its_share_gets_no_more(monkeypatch):
    full = 0
    for seed in range(20):
        *_, accepted = deals(monkeypatch, LABELS, 0.1, seed)
        monkeypatch.undo()
        for stretch in accepted:
            held = 0
            for part in stretch:
                if held >= 2000 / 10:
                    full += 1
                    assert part <= 1  # the one that a floored last cut point may leave over
                held += part
    assert full > 0


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
