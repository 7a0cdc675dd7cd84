import math

import pytest
import torch

import note_tta as tta
from note_tta import streams
from note_tta.streams import PROTOCOLS, DomainOrder


def seeded(seed):
    return torch.Generator().manual_seed(seed)


LABELS = {name: torch.arange(size) % 10 for name, size in (("fog", 300), ("snow", 200), ("frost", 400))}


class Numbers:
    """A domain whose samples consist of the domain's number and the sample's number."""

    def __init__(self, number, labels):
        self.number, self.labels = number, torch.as_tensor(labels)

    def inputs(self, indices):
        return torch.stack([torch.full_like(indices, self.number), indices], dim=1).float()


DOMAINS = {name: Numbers(number, labels) for number, (name, labels) in enumerate(LABELS.items())}


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name not in ("gli", "label-shift")])
def test_every_sample_of_every_domain_comes_once_a_visit(name):
    stream = PROTOCOLS[name](LABELS, generator=seeded(0))
    assert stream.names == ("fog", "snow", "frost")
    for visit in range(stream.visits):
        for place, labels in enumerate(LABELS.values()):
            chosen = stream.index[(stream.visit == visit) & (stream.domain == place)]
            assert torch.equal(chosen.sort().values, torch.arange(len(labels)))
    assert stream.visits == (20 if name == "recurring" else 1)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_seed_decides(name):
    first, again, other = (PROTOCOLS[name](LABELS, generator=seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(first.index, again.index)
    assert torch.equal(first.domain, again.domain)
    assert len(first) != len(other) or not torch.equal(first.index, other.index)
    fixed = [PROTOCOLS[name](LABELS) for _ in range(2)]
    assert torch.equal(fixed[0].index, fixed[1].index)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_batches_are_what_the_order_says(name):
    stream = PROTOCOLS[name](LABELS, generator=seeded(1))
    batches = stream.batches(DOMAINS, 64)
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert torch.equal(x[:, 0].long(), stream.domain)
    assert torch.equal(x[:, 1].long(), stream.index)
    assert torch.equal(y, stream.labels(LABELS))
    assert [len(y) for _, y in batches][:-1] == [64] * (len(batches) - 1)
    assert len(batches) == math.ceil(len(stream) / 64)


def test_domains_come_in_turn_and_batches_cross_their_borders():
    stream = streams.practical(LABELS, generator=seeded(0))
    assert stream.begins == [(0, "fog", 0), (300, "snow", 0), (500, "frost", 0)]
    x, _ = list(stream.batches(DOMAINS, 64))[4]  # samples 256 to 319
    assert x[:, 0].tolist() == [0] * 44 + [1] * 20


def test_recurring_domains_are_drawn_anew_at_every_visit():
    stream = streams.recurring(LABELS, visits=3, generator=seeded(0))
    assert [begin.position for begin in stream.begins] == [0, 300, 500, 900, 1200, 1400, 1800, 2100, 2300]
    assert [begin.visit for begin in stream.begins] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    visits = [stream.index[stream.visit == visit] for visit in range(3)]
    assert not torch.equal(visits[0], visits[1])
    assert not torch.equal(visits[1], visits[2])


def test_one_domain_that_recurs_begins_again():
    stream = streams.recurring({"fog": [0, 1, 0]}, visits=2)
    assert [begin.position for begin in stream.begins] == [0, 3]


def test_streams_are_as_correlated_as_they_say():
    labels = {name: torch.arange(2000) % 10 for name in ("fog", "snow")}

    def run(stream):
        return streams.mean_run_length(stream.labels(labels))

    assert run(streams.class_sorted(labels)) == pytest.approx(4000 / 20, rel=0.01)
    assert run(streams.practical(labels, generator=seeded(0))) > 20
    assert run(streams.mixed(labels, delta=0.1, generator=seeded(0))) > 20
    assert run(streams.mixed(labels, generator=seeded(0))) < 1.3
    assert run(streams.continual(labels, generator=seeded(0))) < 1.3
    assert run(streams.shifted(labels, generator=seeded(0))) > 80


def test_mixed_streams_mix():
    for delta in (None, 0.1):
        stream = streams.mixed(LABELS, delta=delta, generator=seeded(0))
        shares = [part.bincount(minlength=3) / len(part) for part in stream.domain.chunk(3)]
        for share in shares:
            assert share.tolist() == pytest.approx([3 / 9, 2 / 9, 4 / 9], abs=0.12)


def test_imbalanced_streams_thin_each_domain():
    labels = {name: torch.arange(1000) % 10 for name in ("fog", "snow")}

    def sizes(vary):
        stream = streams.imbalanced(labels, imbalance=10, vary=vary, generator=seeded(0))
        values = stream.labels(labels)
        return [values[stream.domain == place].bincount(minlength=10).tolist() for place in (0, 1)]

    expected = [int(100 * 10 ** (-i / 9)) for i in range(10)]
    assert sizes(vary=False) == [expected, expected]
    first, second = sizes(vary=True)
    assert sorted(first, reverse=True) == sorted(second, reverse=True) == expected
    assert first != second


def test_errors_by_hand():
    stream = DomainOrder(
        ("fog", "snow"),
        domain=torch.tensor([0, 0, 1, 1, 1, 1, 0]),
        index=torch.tensor([0, 1, 0, 1, 2, 3, 0]),
        visit=torch.tensor([0, 0, 0, 0, 0, 0, 1]),
    )
    wrong = torch.tensor([True, False, False, False, False, True, True])
    errors = stream.errors(wrong)
    assert errors[0].tolist() == [50, 25]
    assert errors[1, 0] == 100
    assert errors[1, 1].isnan()
    # Of snow's labels 0, 0, 0, 1 only the last was wrong: 0 % of one class and 100 % of the other.
    by_class = stream.errors(wrong, labels=torch.tensor([5, 5, 0, 0, 0, 1, 5]))
    assert by_class[0].tolist() == [50, 50]


def test_errors_of_a_run():
    """If a method always answers 0, its error in each domain is the share of other labels."""
    labels = {"fog": torch.tensor([0, 0, 1, 1]), "snow": torch.tensor([0, 1, 1, 1])}
    domains = {name: Numbers(0, values) for name, values in labels.items()}
    for stream in (streams.mixed(labels), streams.recurring(labels, visits=2)):
        result = tta.evaluate(lambda x: torch.eye(2)[[0] * len(x)], stream.batches(domains, 3))
        errors = stream.errors(result.predictions != result.labels)
        assert errors.tolist() == [[50, 75]] * stream.visits
        assert errors.mean() == pytest.approx(result.error)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: streams.continual({}), "at least one domain, got none"),
        (lambda: streams.recurring(LABELS, visits=0), "visits must be at least 1, got 0"),
        (lambda: streams.practical(LABELS, gamma=-1), "gamma must be greater than 0, got -1"),
        (lambda: streams.mixed(LABELS, delta=0), "delta must be greater than 0, got 0"),
        (lambda: streams.imbalanced(LABELS, imbalance=0), "imbalance must be at least 1 and finite, got 0"),
        (lambda: streams.continual(LABELS).batches(DOMAINS, 0), "size must be at least 1, got 0"),
        (lambda: streams.continual(LABELS).errors(torch.zeros(3)), "900 values, one per sample, got 3"),
        (lambda: streams.continual({"fog": torch.zeros(2, 2)}), r"one-dimensional, got shape \(2, 2\)"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_domain_without_samples_is_passed_over():
    stream = streams.continual({"fog": [0, 1], "nothing": torch.empty(0, dtype=torch.long)})
    assert len(stream) == 2
    assert stream.errors(torch.zeros(2))[0, 1].isnan()


def test_labels_below_zero_do_not_mix_domains():
    order = streams.continual({"a": torch.tensor([0, 1]), "b": torch.tensor([0, -1])})
    labels = torch.where(order.domain == 0, torch.tensor([0, 1, 0, 1]), torch.tensor([0, -1, 0, -1]))
    assert order.errors(order.domain == 1, labels).tolist() == [[0.0, 100.0]]
