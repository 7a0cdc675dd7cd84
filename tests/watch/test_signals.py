"""The signals: each against its definition written out, and the promise of the detectors by simulation."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

import note_tta as tta
from note_tta.checks import example_network
from note_tta.watch.bench import Bench, Misfit
from note_tta.watch.signals import (
    Detector,
    Wager,
    copies,
    drift,
    effective_classes,
    lost_probability,
    rank,
)
from note_tta.watch.snapshots import Snapshots
from note_tta.watch.tally import Tally


def test_effective_classes_of_equal_shares_is_their_number():
    for count in (1, 3, 10):
        assert effective_classes(torch.ones(count)) == pytest.approx(count)
    assert effective_classes(torch.zeros(4)) == 0
    assert 1 < effective_classes(torch.tensor([9.0, 1.0])) < 2


def test_what_source_samples_win_does_not_make_up_for_what_others_lose():
    logits = torch.log(torch.tensor([[0.9, 0.1], [0.3, 0.7]]))
    lost = lost_probability(logits, torch.tensor([0, 0]), torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(lost, torch.tensor([0.0, 0.2]))


def test_an_answer_of_nan_has_lost_everything():
    lost = lost_probability(torch.tensor([[torch.nan, 0.0]]), torch.tensor([0]), torch.tensor([0.75]))
    torch.testing.assert_close(lost, torch.tensor([0.75]))


def test_copies_are_found_among_others():
    x = torch.rand(10, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    assert copies(x) == 0
    x[5:9] = x[4]
    assert copies(x) == 0.5
    assert copies(x[:1]) == 0


def test_drift_is_in_the_sources_units():
    source = {
        "a.running_mean": torch.zeros(2),
        "a.running_var": torch.full((2,), 4.0),
        "b.weight": torch.full((2, 2), 2.0),
        "b.bias": torch.zeros(2),
        "b.num_batches_tracked": torch.tensor(1),
    }
    moved = {
        "a.running_mean": torch.full((2,), 3.0),
        "a.running_var": torch.full((2,), 4.0 * math.e),
        "b.weight": torch.full((2, 2), 2.5),
        "b.bias": torch.full((2,), 0.125),
        "b.num_batches_tracked": torch.tensor(900),
    }
    assert drift(moved, source) == {"a": pytest.approx(1.5), "b": pytest.approx(0.25)}
    assert drift(source, source) == {"a": 0.0, "b": 0.0}


def test_misfit_is_the_divergence_of_normal_distributions():
    layer = nn.BatchNorm2d(2, eps=0.0).eval()
    layer.running_mean.copy_(torch.tensor([0.5, -1.0]))
    layer.running_var.copy_(torch.tensor([2.0, 0.5]))
    x = torch.randn(3, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    misfit = Misfit(layer)
    layer(x)
    assert misfit.take() is None
    misfit.wanted = True
    layer(x)
    flat = x.flatten(2)
    ours = Normal(flat.mean(2), flat.std(2, unbiased=False))
    expected = kl_divergence(ours, Normal(layer.running_mean, layer.running_var.sqrt())).mean(1)
    torch.testing.assert_close(misfit.take(), expected)
    assert misfit.take() is None


def test_the_bench_answers_with_what_it_is_lent():
    model = example_network()
    method = tta.NOTE(model, interval=16)
    x = torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    method(x)
    bench = Bench(method.backbone)
    assert torch.equal(bench.ask(method.tensors, x)[0], method.model(x))
    assert torch.equal(bench.answer(method.backbone.source, x), model(x))


def test_a_detector_seldom_calls_by_chance_and_soon_for_a_reason():
    generator = torch.Generator().manual_seed(0)
    patience, runs = 200.0, []
    for _ in range(150):
        detector, steps = Detector(), 0
        while True:
            steps += 1
            step = 1.5 if torch.rand((), generator=generator) < 0.5 else 0.5
            if detector.add(step, patience) or steps > 5000:
                break
        runs.append(steps)
    assert sum(runs) / len(runs) > patience
    detector = Detector()
    assert next(n for n in range(1, 100) if detector.add(1.5, patience)) < 15


def test_a_wager_wins_nothing_on_even_ranks_and_soon_on_uneven_ones():
    generator = torch.Generator().manual_seed(1)
    ends = []
    for _ in range(60):
        wager, wealth = Wager(), 1.0
        for place in torch.rand(300, generator=generator).tolist():
            wealth *= wager.play(place)
        ends.append(wealth)
    assert sum(ends) / len(ends) < 2
    wager, wealth = Wager(), 1.0
    for place in (0.5 + 0.5 * torch.rand(100, generator=generator)).tolist():
        wealth *= wager.play(place)
    assert wealth > 1000


def test_ranks_of_a_sample_of_the_source_are_even():
    values = torch.rand(20_000, generator=torch.Generator().manual_seed(0)) ** 3
    quantiles = values[:10_000].quantile(torch.linspace(0, 1, 101))
    places = torch.tensor([rank(float(value), quantiles) for value in values[10_000:11_000]])
    assert abs(float(places.mean()) - 0.5) < 0.03
    assert rank(-1.0, quantiles) == 0 and rank(2.0, quantiles) == 1


def test_the_interval_of_the_error_counts_runs_not_samples():
    def interval(answers):
        tally = Tally()
        tally.wait(logits_of(answers, sure=torch.arange(len(answers)) % 10 != 0))
        tally.count(0.5, 10_000)
        return tally.error()

    long = interval(torch.arange(2000) // 200 % 10)
    short = interval(torch.arange(2000) % 10)
    assert long.value == pytest.approx(short.value) and 9 < long.value < 11
    assert long.high - long.low > 3 * (short.high - short.low)


def logits_of(answers, sure):
    """Rows that answer so, with an entropy near 0 where they are sure, and of more than 0.5 elsewhere."""
    return nn.functional.one_hot(answers, 10) * torch.where(sure, 20.0, 2.0)[:, None]


def test_the_tally_is_the_same_whatever_the_batches():
    answers = torch.randint(10, (500,), generator=torch.Generator().manual_seed(0))
    logits = logits_of(answers, torch.rand(500, generator=torch.Generator().manual_seed(1)) < 0.7)
    one, many = Tally(), Tally()
    one.wait(logits)
    one.count(0.5, 100)
    for part in logits.split(7):
        many.wait(part)
        many.count(0.5, 100)
    torch.testing.assert_close(one.answers, many.answers)
    torch.testing.assert_close(one.long, many.long)
    assert one.changes == pytest.approx(many.changes) and one.beyond == pytest.approx(many.beyond)
    assert one.error().value == pytest.approx(30, abs=8)


def test_snapshots_are_kept_the_rarer_the_older():
    ring = Snapshots()
    for number in range(1, 101):
        ring.add(number, {"model": {}, "parts": {}}, slots=3)
    assert [snapshot.samples for snapshot in ring.newest_first()] == [100, 99, 96]
    ring.drop_from(99)
    assert [snapshot.samples for snapshot in ring.newest_first()] == [96]
