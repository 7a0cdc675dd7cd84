import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from note_tta import streams
from note_tta.streams import orders

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


@pytest.mark.parametrize("name", ["iid", "dirichlet", "sorted", "slotted", "label_shift"])
def test_the_same_seed_gives_the_same_order_and_another_another(name):
    order = getattr(streams, name)
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
    monkeypatch.setattr(orders, "_proportions", lambda delta, room, rng: np.array([0.55, 0.4, 0.05]))
    stretches = orders._deal([np.arange(10), np.arange(10, 20), np.arange(20, 30)], 0.1, InOrder())
    assert [stretch[0].tolist() for stretch in stretches] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8],
        [9],
    ]


class InOrder:
    """A generator that does not change the order within a class."""

    def permutation(self, values):
        return values


def deals(monkeypatch, labels, delta, seed):
    """Every draw of a Dirichlet stream, the accepted one last: per token, the size of each class's part."""
    seen, deal = [], orders._deal

    def recorded(*arguments):
        stretches = deal(*arguments)
        seen.append([[len(part) for part in stretch] for stretch in stretches])
        return stretches

    monkeypatch.setattr(orders, "_deal", recorded)
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


def classes_per_batch(labels, size=64):
    return sum(len(part.unique()) for part in labels.split(size)) / len(labels.split(size))


@pytest.mark.parametrize(
    ("classes", "each", "gamma", "run", "present"),
    [
        (10, 1000, 0.1, 174, 1.4),
        (100, 100, 0.1, 4.0, 16.5),
        (100, 100, 0.01, 16.5, 4.8),
        (1000, 50, 0.1, 2.5, 26),
        (1000, 5, 0.1, 1.03, 62),
    ],
)
def test_slots_are_as_correlated_as_rottas(classes, each, gamma, run, present):
    """Measured on a plain version with numpy's Dirichlet: mean run length, and classes in a batch of 64."""
    labels = torch.arange(classes * each) % classes
    seeds = range(20 if classes == 10 else 3)
    found = [labels[streams.slotted(labels, gamma, seeded(seed))] for seed in seeds]
    assert sum(map(streams.mean_run_length, found)) / len(found) == pytest.approx(run, rel=0.06)
    assert sum(map(classes_per_batch, found)) / len(found) == pytest.approx(present, rel=0.06)


def test_slots_keep_the_order_of_the_data_within_a_class():
    order = streams.slotted(LABELS, 0.1, seeded(0))
    assert torch.equal(order.sort().values, torch.arange(2000))
    for label in range(10):
        mine = order[LABELS[order] == label]
        assert torch.equal(mine, mine.sort().values)


def test_slots_by_hand(monkeypatch):
    """Three classes over two slots: halves of each class, floored, the classes in the drawn order."""
    monkeypatch.setattr(orders, "_proportions", lambda gamma, room, rng: np.full(len(room), 1 / len(room)))
    monkeypatch.setattr(orders, "_numpy_generator", lambda generator: LastFirst())
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])
    order = streams.slotted(labels, 0.1, most_slots=2)
    assert order.tolist() == [5, 6, 3, 0, 7, 8, 4, 1, 2]


class LastFirst:
    def permutation(self, count):
        return np.arange(count)[::-1]


def test_label_shift_has_the_stated_probabilities():
    labels = torch.arange(40) % 4
    order = streams.label_shift(labels, 9.0, seeded(0), draws=20_000)
    turns = labels[order].view(4, 20_000)
    shares = torch.stack([turn.bincount(minlength=4) for turn in turns]) / 20_000
    assert sorted(shares.argmax(1).tolist()) == [0, 1, 2, 3]
    assert shares.max(1).values.tolist() == pytest.approx([9 / 12] * 4, abs=0.015)
    assert shares.min(1).values.tolist() == pytest.approx([1 / 12] * 4, abs=0.01)
    used = order.bincount(minlength=40)
    assert used.min() > 0.8 * used.max()  # any sample of a class as often as another


def test_label_shift_from_uniform_to_sorted():
    labels = torch.arange(100) % 10
    assert streams.mean_run_length(labels[streams.label_shift(labels, 1, seeded(0))]) < 1.3
    assert streams.mean_run_length(labels[streams.label_shift(labels, 500_000, seeded(0))]) == 100
    assert len(streams.label_shift([3, 3, 3], 5, seeded(0), draws=7)) == 7


@pytest.mark.parametrize(("imbalance", "empty"), [(10, 397), (200, 736)])
def test_thinning_of_imagenets_small_list(imbalance, empty):
    """997 classes with four images in the first, so many classes keep no image."""
    labels = torch.arange(997 * 4) % 997
    kept = labels[streams.thinned(labels, imbalance)]
    assert 997 - len(kept.unique()) == empty


def test_thinning_varies_only_where_asked():
    sizes = [1000, 599, 359, 215, 129, 77, 46, 27, 16, 10]  # int(1000 · 100 ** (-i / 9))
    labels = torch.arange(10_000) % 10
    assert labels[streams.thinned(labels, 100, seeded(1))].bincount().tolist() == sizes
    varied = labels[streams.thinned(labels, 100, seeded(1), vary=True)].bincount().tolist()
    assert sorted(varied, reverse=True) == sizes
    assert varied != sizes
    first, second = (streams.thinned(labels, 100, seeded(seed)) for seed in (1, 2))
    assert not torch.equal(first, second)
    assert torch.equal(first, first.unique())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: streams.dirichlet(LABELS, 0), "delta must be greater than 0, got 0"),
        (lambda: streams.dirichlet(LABELS, float("nan")), "delta must be greater than 0, got nan"),
        (lambda: streams.dirichlet(LABELS, float("inf")), "delta must be finite"),
        (lambda: streams.slotted(LABELS, 0), "gamma must be greater than 0, got 0"),
        (lambda: streams.slotted(LABELS, most_slots=0), "most_slots must be at least 1, got 0"),
        (lambda: streams.label_shift(LABELS, 0.5), "imbalance must be at least 1, got 0.5"),
        (lambda: streams.label_shift(LABELS, draws=0), "draws must be at least 1, got 0"),
        (lambda: streams.thinned(LABELS, 0.5), "imbalance must be at least 1 and finite, got 0.5"),
        (lambda: streams.iid(torch.zeros(2, 2)), r"one-dimensional, got shape \(2, 2\)"),
        (
            lambda: streams.dirichlet([0] * 1000 + list(range(1, 9)), 1e-3),
            "raise delta, or give more samples per class",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_empty_streams():
    nothing = torch.empty(0, dtype=torch.long)
    for order in (streams.iid, streams.dirichlet, streams.sorted, streams.chronological, streams.slotted):
        assert len(order(nothing)) == 0
    assert len(streams.label_shift(nothing)) == len(streams.thinned(nothing, 10)) == 0
    assert streams.mean_run_length([]) == 0


def test_labels_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="labels must be finite, got NaN or Inf"):
        streams.dirichlet(torch.tensor([0.0, float("nan")]), 0.1)
