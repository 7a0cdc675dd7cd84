import io
import pickle
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import note_tta as tta


def value(i):
    return torch.tensor([float(i)])


def fill(memory, labels):
    for i, label in enumerate(labels):
        memory.add(value(i), label)
    return memory


MAKERS = {
    "fifo": lambda n, seed=0: tta.FIFO(n),
    "reservoir": lambda n, seed=0: tta.Reservoir(n, torch.Generator().manual_seed(seed)),
    "pbrs": lambda n, seed=0: tta.PBRS(n, torch.Generator().manual_seed(seed)),
}


@pytest.mark.parametrize("name", MAKERS)
@given(labels=st.lists(st.integers(0, 5), max_size=60), capacity=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_holds_what_was_offered_with_its_label(name, labels, capacity):
    memory = fill(MAKERS[name](capacity), labels)
    assert len(memory) == min(capacity, len(labels)) == len(memory.labels()) == len(memory.inputs())
    held = [int(v) for v in memory.inputs().flatten().tolist()]
    assert len(set(held)) == len(held)
    assert [labels[i] for i in held] == memory.labels()


def test_fifo_holds_the_latest_oldest_first():
    memory = fill(tta.FIFO(3), [7, 8, 9, 7, 5])
    assert memory.labels() == [9, 7, 5]
    assert memory.inputs().flatten().tolist() == [2, 3, 4]


def test_reservoir_includes_every_sample_alike():
    length, capacity, runs = 40, 8, 3000
    counts = Counter()
    for seed in range(runs):
        counts.update(
            fill(MAKERS["reservoir"](capacity, seed), [0] * length).inputs().int().flatten().tolist()
        )
    assert stats.chisquare([counts[i] for i in range(length)]).pvalue > 1e-3


class Algorithm1:
    """The paper's Algorithm 1 followed line by line, for the branch it takes and the slots it may replace."""

    def __init__(self, capacity):
        self.capacity, self.memory, self.n = capacity, [], Counter()

    def step(self, label):
        self.n[label] += 1
        m = Counter(self.memory)
        if len(self.memory) < self.capacity:
            return "add", {len(self.memory)}, 1.0
        majority = {c for c in m if m[c] == max(m.values())}
        if label not in majority:
            return "balance", {i for i, y in enumerate(self.memory) if y in majority}, 1.0
        return "reservoir", {i for i, y in enumerate(self.memory) if y == label}, m[label] / self.n[label]


@given(labels=st.lists(st.integers(0, 4), max_size=120), capacity=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_pbrs_takes_the_branch_of_algorithm_1(labels, capacity, seed):
    memory, algorithm = MAKERS["pbrs"](capacity, seed), Algorithm1(capacity)
    for i, label in enumerate(labels):
        branch, allowed, probability = algorithm.step(label)
        before = memory.inputs().flatten().tolist()
        memory.add(value(i), label)
        after = memory.inputs().flatten().tolist()
        changed = {k for k in range(len(after)) if k >= len(before) or after[k] != before[k]}
        assert len(changed) <= 1 and changed <= allowed
        assert changed or (branch == "reservoir" and probability < 1)
        algorithm.memory = memory.labels()
        assert sorted(s for slots in memory._slots.values() for s in slots) == list(range(len(memory)))
        assert {c: len(s) for c, s in memory._slots.items()} == Counter(memory.labels())
        assert memory._seen == dict(algorithm.n)


def test_pbrs_replaces_uniformly_among_all_majority_samples():
    counts = Counter()
    for seed in range(4000):
        memory = fill(MAKERS["pbrs"](7, seed), [0, 0, 0, 1, 1, 1, 2, 3])
        counts.update(set(range(7)) - set(memory.inputs().int().flatten().tolist()))
    assert set(counts) == set(range(6))
    assert stats.chisquare([counts[i] for i in range(6)]).pvalue > 1e-3


def test_pbrs_ends_balanced_on_an_uneven_stream():
    for seed in range(40):
        labels = (torch.rand(400, generator=torch.Generator().manual_seed(seed)) < 0.2).int().tolist()
        assert Counter(fill(MAKERS["pbrs"](16, seed), labels).labels()) == {0: 8, 1: 8}


@pytest.mark.parametrize("classes", [1, 2])
def test_pbrs_is_uniform_in_time_with_one_class_and_with_two_at_even_capacity(classes):
    length, capacity, runs = 40, 8, 3000
    labels = [i % classes for i in range(length)]
    counts = Counter()
    for seed in range(runs):
        counts.update(fill(MAKERS["pbrs"](capacity, seed), labels).inputs().int().flatten().tolist())
    for c in range(classes):
        observed = [counts[i] for i in range(length) if labels[i] == c]
        assert stats.chisquare(observed).pvalue > 1e-3


def test_pbrs_with_more_classes_leans_to_recent_samples():
    """Measured and documented, not mended: a class below the majority always gets in again."""
    length, runs = 300, 300
    labels = [i % 3 for i in range(length)]
    ages = torch.cat([fill(MAKERS["pbrs"](8, seed), labels).inputs().flatten() for seed in range(runs)])
    uniform_mean, uniform_error = (length - 1) / 2, length / 12**0.5 / len(ages) ** 0.5
    assert ages.mean() > uniform_mean + 10 * uniform_error


@pytest.mark.parametrize("name", MAKERS)
@given(labels=st.lists(st.integers(0, 3), min_size=1, max_size=80), cut=st.integers(0, 80))
@settings(max_examples=40, deadline=None)
def test_a_restored_memory_goes_on_as_the_saved_one(name, labels, cut):
    memory = fill(MAKERS[name](5), labels[:cut])
    file = io.BytesIO()
    torch.save(memory.state_dict(), file)
    file.seek(0)
    twin = MAKERS[name](5, seed=99)
    twin.load_state_dict(torch.load(file, weights_only=True))
    pickled = pickle.loads(pickle.dumps(memory))
    for i, label in enumerate(labels[cut:]):
        for each in (memory, twin, pickled):
            each.add(value(cut + i), label)
    for each in (twin, pickled):
        assert each.labels() == memory.labels()
        assert torch.equal(each.inputs(), memory.inputs())


@pytest.mark.parametrize("name", MAKERS)
def test_clear_forgets_and_frees_the_shape(name):
    memory = fill(MAKERS[name](2), [0, 1, 1, 0])
    memory.clear()
    assert len(memory) == 0 and memory.labels() == [] and memory.inputs().numel() == 0
    memory.add(torch.zeros(3, 3), 1)
    assert memory.sample_shape == (3, 3)


def test_what_is_returned_is_a_copy():
    memory = fill(tta.PBRS(2), [0, 1])
    memory.inputs().zero_()
    memory.labels().clear()
    assert memory.inputs().flatten().tolist() == [0, 1] and memory.labels() == [0, 1]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    ("capacity", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_a_capacity_that_makes_no_sense_is_refused(name, capacity, error):
    with pytest.raises(error, match="capacity must be"):
        MAKERS[name](capacity)


@pytest.mark.parametrize("name", MAKERS)
def test_another_shape_is_refused_before_anything_changes(name):
    memory = fill(MAKERS[name](2), [0, 1, 1])
    before = memory.state_dict()
    with pytest.raises(ValueError, match=r"holds samples of shape \(1,\), got \(2,\)"):
        memory.add(torch.zeros(2), 0)
    assert torch.equal(before["generator"], memory.state_dict()["generator"])
    assert memory.labels() == before["labels"]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: s.pop("labels"), "labels missing|bookkeeping"),
        (lambda s: s.update(capacity=9), "capacity 9"),
        (lambda s: s.update(labels=[0]), "inputs with labels|bookkeeping"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(name, damage, message):
    memory = fill(MAKERS[name](3), [0, 1, 1, 2])
    state = memory.state_dict()
    damage(state)
    with pytest.raises(ValueError, match=message):
        memory.load_state_dict(state)
    assert len(memory) == 3


def test_samples_are_kept_on_the_device_that_was_asked_for():
    memory = tta.FIFO(2, device="meta")
    memory.add(torch.zeros(2), 0)
    assert memory.inputs().device.type == "meta"
