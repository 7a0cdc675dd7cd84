"""The temporal filter: the recursion against one written out, what it gains, what it must not cost, its state."""

import math

import pytest
import torch

import note_tta as tta
from note_tta.checks import check_method, equal, example_images, example_network
from note_tta.filter import Runs

STAY = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


def simulated(run, count, classes=10, confidence=3.0, noise=2.0, seed=0):
    """Labels in runs of a mean length and logits of a model that is often wrong about them."""
    g = torch.Generator().manual_seed(seed)
    labels, label = [], 0
    while len(labels) < count:
        label = int(torch.randint(classes, (), generator=g))
        length = 1 if run == 1 else 1 + int(torch.empty(()).exponential_(1 / (run - 1), generator=g))
        labels += [label] * length
    labels = torch.tensor(labels[:count])
    logits = confidence * torch.nn.functional.one_hot(labels, classes).double()
    return logits + noise * torch.randn(count, classes, generator=g, dtype=torch.float64), labels


def error(logits, labels):
    return 100 * float((logits.argmax(1) != labels).double().mean())


def by_hand(logits):
    """DESIGN's recursion with plain loops, one hypothesis after another."""
    classes, answers = logits.shape[1], []
    states = []
    for stay in STAY:
        for trust in (0.5, 0.7, 1.0):
            prior = (-5.0 if stay > 0 else 0.0) + (-2.0 if trust < 1 else 0.0)
            states.append([stay, trust, prior, torch.full((classes,), 1 / classes).double(), 0.0])
    counts = {trust: torch.full((classes,), 300 / classes).double() for trust in (0.5, 0.7, 1.0)}
    for row in logits:
        log_p = row.log_softmax(0)
        for state in states:
            stay, trust, _, posterior, weight = state
            p = (trust * log_p).softmax(0)
            share = counts[trust] / counts[trust].sum()
            predicted = stay * posterior + (1 - stay) * share
            evidence = (predicted * p / share).sum()
            state[3] = predicted * p / share / evidence
            state[4] = 0.998 * weight + math.log(float(evidence))
        for trust in counts:
            counts[trust] = 0.9998 * counts[trust] + (trust * log_p).softmax(0)
        odds = torch.tensor([state[4] + state[2] for state in states], dtype=torch.float64)
        weights = odds.softmax(0)
        answers.append(sum(w * state[3] for w, state in zip(weights, states, strict=True)).log())
    return torch.stack(answers)


def test_equals_the_recursion_written_out():
    logits, _ = simulated(20, 120, classes=4)
    torch.testing.assert_close(Runs()(logits), by_hand(logits), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("run", "share"), [(5, 0.65), (30, 0.3), (200, 0.12)])
def test_runs_are_used(run, share):
    logits, labels = simulated(run, 4000)
    assert error(Runs()(logits), labels) < share * error(logits, labels)


def test_an_over_confident_model_gains_as_much():
    logits, labels = simulated(100, 4000)
    assert error(Runs()(2 * logits), labels) < 0.25 * error(logits, labels)


@pytest.mark.parametrize("classes", [3, 10, 100])
def test_a_shuffled_stream_is_answered_as_it_is(classes):
    logits, labels = simulated(1, 3000, classes=classes, seed=3)
    assert error(Runs()(logits), labels) - error(logits, labels) < 0.3


def test_runs_after_a_long_shuffle_are_found():
    shuffled, _ = simulated(1, 6000)
    logits, labels = simulated(200, 3000, seed=1)
    runs = Runs()
    runs(shuffled)
    answers = runs(logits)
    assert error(answers[500:], labels[500:]) < 0.25 * error(logits[500:], labels[500:])
    assert "runs of about" in repr(runs)


def test_a_class_that_is_merely_predicted_too_often_is_no_run():
    logits, labels = simulated(1, 3000, noise=3.0)
    logits[:, 0] += 3
    assert error(Runs()(logits), labels) - error(logits, labels) < 1.0


def test_rows_one_by_one_are_rows_together():
    logits, _ = simulated(30, 200)
    one, other = Runs(), Runs()
    assert torch.equal(torch.cat([one(row[None]) for row in logits]), other(logits))
    assert equal(one.state_dict(), other.state_dict())


def test_a_row_that_is_not_finite_leaves_no_trace():
    logits, _ = simulated(30, 60)
    spoiled = torch.cat([logits[:20], torch.full((2, 10), torch.nan).double(), logits[20:]])
    clean, dirty = Runs(), Runs()
    expected, answers = clean(logits), dirty(spoiled)
    assert answers[20:22].isnan().all()
    assert torch.equal(torch.cat([answers[:20], answers[22:]]), expected)
    assert equal(clean.state_dict(), dirty.state_dict())


def test_another_number_of_classes_is_refused():
    runs = Runs()
    runs(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="the stream has 4 classes, got 5"):
        runs(torch.zeros(2, 5))


@pytest.mark.parametrize("name", ["source", "note", "tent", "lame"])
def test_around_a_method_it_keeps_the_contract(name):
    check_method(lambda model: tta.TemporalFilter(tta.METHODS[name](model)))


def test_what_is_stored_and_counted_are_the_inner_methods():
    inner = tta.NOTE(example_network(), tta.FIFO(40))
    method = tta.TemporalFilter(inner)
    twin = tta.NOTE(example_network(), tta.FIFO(40))
    x = example_images(40)
    answers, plain = method(x), twin(x)
    assert method.memory.labels() == twin.memory.labels() == plain.argmax(1).tolist()
    assert method.counters is inner.counters and method.model is inner.model
    assert not torch.equal(answers, plain)


def test_a_damaged_state_is_refused_and_changes_nothing():
    method = tta.TemporalFilter(tta.Source(example_network()))
    method(example_images(10))
    before = method.state_dict()
    for name, value in {
        "posterior": torch.zeros(2, 3, 5),
        "counts": -torch.ones(1, 3, 5),
        "evidence": torch.full((9, 3), torch.nan),
    }.items():
        state = method.state_dict()
        state["parts"]["runs"][name] = value
        with pytest.raises(ValueError, match="not a state of TemporalFilter"):
            method.load_state_dict(state)
    assert equal(method.state_dict(), before)


def test_states_of_a_wrapper_and_of_what_is_inside_are_told_apart(tmp_path):
    method = tta.TemporalFilter(tta.NOTE(example_network()))
    tta.save_state(tmp_path / "state", method)
    with pytest.raises(ValueError, match="the state is of TemporalFilter, this method is NOTE"):
        tta.load_state(tmp_path / "state", tta.NOTE(example_network()))
    with pytest.raises(ValueError, match="the state is of NOTE, this method is TemporalFilter"):
        method.load_state_dict(tta.NOTE(example_network()).state_dict() | {"inner": {}})
