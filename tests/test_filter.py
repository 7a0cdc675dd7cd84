"""The filter against its formulas, on streams whose order is informative and on streams whose order is not."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import note_tta as tta
from note_tta.checks import check_method, equal, example_images, example_network
from note_tta.filter import Runs

STAY, TRUST = (0.5, 0.9, 0.99), (0.125, 0.25, 0.5, 1.0, 2.0)


def simulated(samples, classes=10, run=1.0, *, strength=2.1, scale=1.0, bias=0.0, seed=0):
    """Logits of a calibrated model on labels that come in runs, and the labels.

    `scale` makes the model over-confident, `bias` makes it prefer some classes.
    """
    rng = np.random.default_rng([seed, classes, int(run)])
    labels = rng.integers(classes, size=samples)
    for i in range(1, samples):
        if rng.random() > 1 / run:
            labels[i] = labels[i - 1]
    features = rng.normal(size=(samples, classes))
    features[np.arange(samples), labels] += strength
    logits = scale * (strength * features + bias * np.random.default_rng(1).normal(size=classes))
    return torch.from_numpy(logits), torch.from_numpy(labels)


def error(answers, labels):
    return 100 * float((answers.argmax(1) != labels).double().mean())


def reference(logits):
    """The formulas of the docstring over plain lists: one trust, one kind of run and one class at a time."""
    classes = logits.shape[1]
    kinds = {s: math.sqrt(1 - s) / sum(math.sqrt(1 - other) for other in STAY) for s in STAY}
    usual = {T: [1 / classes] * classes for T in TRUST}
    expected = {T: [1 / classes] * classes for T in TRUST}
    belief = {T: {s: [kinds[s] / classes] * classes for s in STAY} for T in TRUST}
    weight = dict.fromkeys(TRUST, 0.002 / 5)
    answers = []
    for n, row in enumerate(logits.tolist()):
        now, own, rest = {}, None, 1 - sum(weight.values())
        for T in TRUST:
            powers = [math.exp(T * value) for value in row]
            p = [power / sum(powers) for power in powers]
            own = p if T == 1 else own
            r = [a / b for a, b in zip(p, usual[T], strict=True)]
            ended = sum((1 - s) * sum(belief[T][s]) for s in STAY)
            predicted = {s: [s * b + ended * kinds[s] / classes for b in belief[T][s]] for s in STAY}
            evidence = sum(a * b for s in STAY for a, b in zip(predicted[s], r, strict=True))
            belief[T] = {s: [a * b / evidence for a, b in zip(predicted[s], r, strict=True)] for s in STAY}
            rate = max(3 / (6 + n), 1 / 300)
            for k in range(classes):
                value = sum(predicted[s][k] for s in STAY)
                expected[T][k] = (1 - rate) * expected[T][k] + rate * value
            weight[T] *= evidence / sum(a * b for a, b in zip(expected[T], r, strict=True))
            now[T] = [sum(belief[T][s][k] for s in STAY) for k in range(classes)]
            rarity = sum(a / b for a, b in zip(now[T], expected[T], strict=True)) / classes
            rate = max(1 / (61 + n), 1 / 5000)
            usual[T] = [
                (1 - rate) * u + rate * (rarity * a + 0.02 / classes)
                for u, a in zip(usual[T], p, strict=True)
            ]
        whole = rest + sum(weight.values())
        mixed = [rest * own[k] + sum(weight[T] * now[T][k] for T in TRUST) for k in range(classes)]
        answers.append([math.log(m / whole) for m in mixed])
        weight = {T: 0.999 * weight[T] / whole + 0.001 * 0.002 / 5 for T in TRUST}
    return torch.tensor(answers, dtype=torch.float64)


@pytest.mark.parametrize("classes", [2, 7])
def test_it_is_the_formulas_of_its_docstring(classes):
    logits, _ = simulated(400, classes, run=20)
    torch.testing.assert_close(Runs()(logits), reference(logits), rtol=1e-9, atol=1e-9)


def test_rows_one_by_one_are_rows_together_to_the_bit():
    logits, _ = simulated(200, 7, run=10)
    whole = Runs()
    expected = whole(logits)
    for size in (1, 7, 64):
        runs = Runs()
        assert torch.equal(torch.cat([runs(rows) for rows in logits.split(size)]), expected)
        assert equal(runs.state_dict(), whole.state_dict())


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_passes_and_leaves_no_trace(poison):
    logits, _ = simulated(60, 5, run=10)
    bad = torch.cat([logits[:0], torch.full((1, 5), poison), logits[:20], logits[:1], logits[20:]])
    bad[21, 2] = poison
    clean, runs = Runs(), Runs()
    expected, answers = clean(logits), runs(bad)
    kept = torch.isfinite(bad).all(1)
    assert torch.equal(answers[kept], expected)
    assert torch.equal(answers[~kept].nan_to_num(7), bad[~kept].nan_to_num(7))
    assert equal(runs.state_dict(), clean.state_dict())


def test_answers_are_log_probabilities_of_the_type_that_came():
    logits, _ = simulated(50, 5, run=10)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        answers = Runs()(logits.to(dtype))
        assert answers.dtype == dtype
        torch.testing.assert_close(answers.double().exp().sum(1), torch.ones(50).double(), atol=0.02, rtol=0)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.floats(0, 1e5))
def test_answers_stay_finite_for_any_finite_logits(classes, seed, scale):
    logits = scale * torch.randn(50, classes, generator=torch.Generator().manual_seed(seed))
    runs = Runs()
    answers = runs(logits)
    assert torch.isfinite(answers).all()
    assert all(
        torch.isfinite(value).all() for name, value in runs.state_dict().items() if torch.is_tensor(value)
    )


def test_a_class_that_never_comes_does_not_fade_to_nothing():
    runs = Runs(memory=20)
    logits = torch.tensor([[4.0, 0.0, -700.0]])
    for _ in range(50):
        runs(logits.repeat(400, 1))
    assert float(runs.usual.min()) > 1e-3
    answers = runs(torch.tensor([[0.0, 0.0, 9.0]]).repeat(10, 1))
    assert answers[-1].argmax() == 2


@pytest.mark.parametrize("run, most", [(5, 19), (30, 7), (200, 3)])
@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_runs_make_answers_better_whatever_the_confidence(run, most, scale):
    logits, labels = simulated(4000, run=run, scale=scale)
    assert error(logits, labels) > 28
    assert error(Runs()(logits), labels) < most


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("scale, bias", [(1.0, 0.0), (2.0, 0.0), (1.0, 2.0), (3.0, 2.0)])
def test_a_shuffled_stream_is_answered_as_it_is(classes, scale, bias):
    """Also for a model that is over-confident, or predicts some classes far too often."""
    logits, labels = simulated(3000, classes, scale=scale, bias=bias, strength=1.5)
    assert error(Runs()(logits), labels) - error(logits, labels) < 0.3
    for part in range(5):
        cut = slice(600 * part, 600 * (part + 1))
        assert error(Runs()(logits[cut]), labels[cut]) - error(logits[cut], labels[cut]) < 0.5


def test_one_class_named_nearly_always_is_no_run():
    """A collapsed model on a shuffled stream: the filter must not make it answer with one class only."""
    logits, labels = simulated(3000, strength=1.0)
    logits[:, 3] += 3.0
    assert (logits.argmax(1) == 3).double().mean() > 0.7
    assert error(Runs()(logits), labels) - error(logits, labels) < 0.3


def test_runs_after_a_long_shuffle_are_found_within_a_few_hundred_samples():
    before, _ = simulated(10_000)
    logits, labels = simulated(1000, run=100, seed=1)
    runs = Runs()
    runs(before)
    answers = runs(logits)
    assert error(answers[300:], labels[300:]) < 4
    assert error(logits[300:], labels[300:]) > 25


def test_a_shuffle_after_long_runs_is_found_within_a_few_hundred_samples():
    before, _ = simulated(4000, run=100)
    logits, labels = simulated(2600, seed=1)
    runs = Runs()
    runs(before)
    answers = runs(logits)
    assert error(answers[600:], labels[600:]) - error(logits[600:], labels[600:]) < 0.3


def test_it_says_in_words_what_it_believes():
    runs = Runs()
    assert repr(runs) == "the order is not informative: answers are not changed"
    runs(simulated(4000, run=50)[0])
    length = float(repr(runs).split()[3].rstrip(","))
    assert repr(runs).startswith("runs of about") and 30 < length < 80
    assert repr(runs).endswith("confidence taken as it is")
    over = Runs()
    over(simulated(4000, run=50, scale=4.0)[0])
    assert repr(over).endswith("confidence quartered")


def test_a_state_goes_on_as_if_never_stopped():
    logits, _ = simulated(200, 6, run=10)
    runs, twin = Runs(), Runs()
    assert runs.state_dict()["belief"].shape[-1] == 0
    runs(logits[:77])
    state = runs.state_dict()
    twin.load_state_dict(state)
    assert torch.equal(runs(logits[77:]), twin(logits[77:]))
    assert not torch.equal(state["belief"], runs.state_dict()["belief"])


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing():
    logits, _ = simulated(20, 6)
    runs = Runs()
    runs(logits)
    before = runs.state_dict()
    with pytest.raises(ValueError, match="its usual has the shape"):
        runs.load_state_dict({**before, "usual": torch.ones(5, 3)})
    with pytest.raises(ValueError, match="its belief is not positive"):
        runs.load_state_dict({**before, "belief": -before["belief"]})
    with pytest.raises(ValueError, match="its samples must be a number from 0, got -1"):
        runs.load_state_dict({**before, "samples": -1})
    assert equal(runs.state_dict(), before)


def test_another_number_of_classes_is_refused():
    runs = Runs()
    runs(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="the stream has 4 classes, got logits of 5"):
        runs(torch.zeros(3, 5))


@pytest.mark.parametrize("name", ["source", "note", "tent", "lame"])
def test_around_a_method_it_keeps_the_contract(name):
    check_method(lambda model: tta.TemporalFilter(tta.METHODS[name](model)))


def test_it_filters_the_inner_methods_answers():
    x = example_images(200)
    network = example_network()
    logits = tta.NOTE(network)(x)
    assert torch.equal(tta.TemporalFilter(tta.NOTE(network))(x), Runs()(logits))


def test_what_is_stored_and_counted_are_the_inner_methods():
    inner, twin = (tta.NOTE(example_network(), tta.FIFO(40), interval=10) for _ in range(2))
    method = tta.TemporalFilter(inner)
    x = example_images(40)
    answers, plain = method(x), twin(x)
    assert method.memory.labels() == plain.argmax(1).tolist()
    assert method.counters == twin.counters and method.counters["updates"] == 4
    assert method.model is inner.model
    assert not torch.equal(answers, plain)


def test_while_paused_it_keeps_nothing():
    method = tta.TemporalFilter(tta.Source(example_network()))
    x = example_images(60)
    method(x[:30])
    before = method.state_dict()
    expected = method.fork()(x[30:])
    method.pause()
    assert torch.equal(method(x[30:]), expected)
    assert equal(method.state_dict()["parts"], before["parts"])
    method.resume()
    assert torch.equal(method(x[30:]), expected)


def test_a_state_of_the_wrapper_holds_the_inner_one(tmp_path):
    x = example_images(90)
    method = tta.TemporalFilter(tta.NOTE(example_network(), interval=20))
    method(x[:50])
    tta.save_state(tmp_path / "state", method)
    twin = tta.TemporalFilter(tta.NOTE(example_network()))
    tta.load_state(tmp_path / "state", twin)
    assert torch.equal(twin(x[50:]), method(x[50:]))
    assert equal(twin.state_dict(), method.state_dict())
    with pytest.raises(ValueError, match="the state belongs to TemporalFilter, but this method is NOTE"):
        tta.load_state(tmp_path / "state", tta.NOTE(example_network()))


def test_what_is_no_method_is_refused():
    with pytest.raises(TypeError, match="method must be a method"):
        tta.TemporalFilter(example_network())
