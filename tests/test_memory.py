import contextlib
import hashlib
import io
import math
import pickle
from collections import Counter
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import note_tta as tta


def value(i):
    return torch.tensor([float(i)])


def entropy_of(i):
    """An entropy for the i-th sample, the same in each run."""
    return (i * 0.37) % 1.0


def offer(memory, i, label):
    memory.add(value(i), label, entropy_of(i) if memory.needs_entropy else None)


def fill(memory, labels):
    for i, label in enumerate(labels):
        offer(memory, i, label)
    return memory


MAKERS = {
    "fifo": lambda n, seed=0: tta.FIFO(n),
    "reservoir": lambda n, seed=0: tta.Reservoir(n, torch.Generator().manual_seed(seed)),
    "pbrs": lambda n, seed=0: tta.PBRS(n, torch.Generator().manual_seed(seed)),
    "hus": lambda n, seed=0: tta.HUS(n, torch.Generator().manual_seed(seed)),
    "cstu": lambda n, seed=0: tta.CSTU(n, classes=6),
}


@pytest.mark.parametrize("name", MAKERS)
@given(labels=st.lists(st.integers(0, 5), max_size=60), capacity=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_holds_what_was_offered_with_its_label(name, labels, capacity):
    memory = fill(MAKERS[name](capacity), labels)
    assert len(memory) == len(memory.labels()) == len(memory.inputs()) <= capacity
    assert len(memory) == min(capacity, len(labels)) or name == "cstu"
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


@pytest.mark.parametrize(
    ("classes", "capacity", "digest"),
    [
        (2, 7, "8041daf58395069c"),
        (10, 64, "36656bb699f4c744"),
        (100, 64, "d5349fe1c50e39c8"),
        (10, 512, "24938bb2b3bb0fd3"),
    ],
)
def test_pbrs_decides_as_version_0_1_did(classes, capacity, digest):
    """Recorded with the memory of version 0.1, after 4,000 samples, so published results can be reproduced."""
    g, length = torch.Generator().manual_seed(classes), 4000
    runs = torch.randint(classes, (length // 20 + 1,), generator=g).repeat_interleave(20)[:length]
    noise = torch.rand(length, generator=g) < 0.3
    labels = torch.where(noise, torch.randint(classes, (length,), generator=g), runs).tolist()
    memory = fill(MAKERS["pbrs"](capacity, seed=5), labels)
    held = repr((memory.inputs().flatten().tolist(), memory.labels()))
    assert hashlib.sha256(held.encode()).hexdigest()[:16] == digest


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
    """A known property of the algorithm: a sample of a class below the majority always enters."""
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
            offer(each, cut + i, label)
    for each in (twin, pickled):
        assert each.labels() == memory.labels()
        assert torch.equal(each.inputs(), memory.inputs())


@pytest.mark.parametrize("name", MAKERS)
def test_clear_forgets_and_frees_the_shape(name):
    memory = fill(MAKERS[name](2), [0, 1, 1, 0])
    memory.clear()
    assert len(memory) == 0 and memory.labels() == [] and memory.inputs().numel() == 0
    memory.add(torch.zeros(3, 3), 1, 0.5)
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
        memory.add(torch.zeros(2), 0, 0.5)
    assert torch.equal(before["generator"], memory.state_dict()["generator"])
    assert memory.labels() == before["labels"]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: s.pop("labels"), "labels missing|slots contradict|ages"),
        (lambda s: s.update(capacity=9), "capacity 9"),
        (lambda s: s.update(labels=[0]), "inputs with labels|slots contradict|ages"),
        (lambda s: s.update(dtype="float64"), "samples of torch.float32 instead of 'float64'"),
        (lambda s: s.update(dtype="load"), "samples of torch.float32 instead of 'load'"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(name, damage, message):
    memory = fill(MAKERS[name](3), [0, 1, 1, 2])
    held = memory.labels()
    state = memory.state_dict()
    damage(state)
    with pytest.raises(ValueError, match=message):
        memory.load_state_dict(state)
    assert memory.labels() == held


def test_samples_are_kept_on_the_device_that_was_asked_for():
    memory = tta.FIFO(2, device="meta")
    memory.add(torch.zeros(2), 0)
    assert memory.inputs().device.type == "meta"


class TestCSTU:
    @given(
        stream=st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1.6)), max_size=120),
        capacity=st.integers(1, 12),
    )
    @settings(max_examples=100, deadline=None)
    def test_follows_the_rule_kept_as_one_list_per_class(self, stream, capacity):
        memory, classes = tta.CSTU(capacity, classes=5), [[] for _ in range(5)]

        def score(age, entropy):
            return 1 / (1 + math.exp(-age / capacity)) + entropy / math.log(5)

        for i, (label, entropy) in enumerate(stream):
            memory.add(value(i), label, entropy)
            total = sum(map(len, classes))
            if len(classes[label]) < capacity / 5 and total < capacity:
                classes[label].append([i, 0, entropy])
            else:
                most = max(map(len, classes))
                few = len(classes[label]) < capacity / 5
                pool = [own for own in classes if len(own) == most] if few else [classes[label]]
                worst = None
                for own in pool:
                    for item in own:
                        if worst is None or score(*item[1:]) >= score(*worst[1][1:]):
                            worst = own, item
                if score(*worst[1][1:]) > score(0, entropy):
                    worst[0].remove(worst[1])
                    classes[label].append([i, 0, entropy])
            for own in classes:
                for item in own:
                    item[1] += 1
            held = zip(memory.inputs().int().flatten().tolist(), memory.ages(), memory.labels(), strict=True)
            expected = [(item[0], item[1], c) for c, own in enumerate(classes) for item in own]
            assert sorted(held) == sorted(expected)

    def test_never_holds_more_of_a_class_than_its_share_rounded_up(self):
        memory = tta.CSTU(64, classes=10)
        g = torch.Generator().manual_seed(0)
        for i in range(2000):
            memory.add(value(i), i // 150 % 10, float(torch.rand((), generator=g)))
            assert max(Counter(memory.labels()).values()) <= math.ceil(64 / 10)
        assert len(memory) == 64

    def test_an_old_unsure_sample_goes_first(self):
        memory = tta.CSTU(2, classes=2)
        for i, (label, entropy) in enumerate([(0, 0.1), (1, 0.6), (1, 0.1), (0, 0.69)]):
            memory.add(value(i), label, entropy)
        assert memory.inputs().flatten().tolist() == [0, 2]

    @pytest.mark.parametrize("add", [lambda m: m.add(value(0), 0), lambda m: m.add(value(0), 0, None)])
    def test_asks_for_what_it_needs(self, add):
        with pytest.raises(ValueError, match=r"CSTU\(64, classes=10\)\.add\(x, label, entropy\)"):
            add(tta.CSTU(4, classes=3))
        with pytest.raises(ValueError, match=r"CSTU\(64, classes=10\)"):
            tta.CSTU(4).add(value(0), 0, 0.3)
        with pytest.raises(ValueError, match="classes must be at least 2, got 1"):
            tta.CSTU(4, classes=1)

    @pytest.mark.parametrize(
        "damage",
        [{"ages": [1, 2]}, {"ages": [1, 2, 0]}, {"entropies": [0.1, 0.2, math.nan]}, {"classes": "ten"}],
    )
    def test_a_damaged_state_is_refused(self, damage):
        memory = fill(MAKERS["cstu"](3), [0, 1, 2, 3])
        with pytest.raises(ValueError, match="not a state of CSTU"):
            memory.load_state_dict(memory.state_dict() | damage)


class TestHUS:
    def test_a_newcomer_of_a_largest_class_takes_the_place_of_its_own_kind(self):
        counts = Counter()
        for seed in range(2000):
            memory = fill(MAKERS["hus"](5, seed), [0, 0, 1, 1, 2, 0])
            assert sorted(memory.labels()) == [0, 0, 1, 1, 2] and 5 in memory.inputs()
            counts.update({0, 1} - set(memory.inputs().int().flatten().tolist()))
        assert stats.binomtest(counts[0], 2000).pvalue > 1e-3 and counts.total() == 2000

    def test_any_other_one_draws_a_largest_class_first_and_then_a_sample_of_it(self):
        counts = Counter()
        for seed in range(2000):
            memory = fill(MAKERS["hus"](5, seed), [0, 0, 1, 1, 2, 3])
            counts.update({0, 1, 2, 3, 4} - set(memory.inputs().int().flatten().tolist()))
        assert set(counts) == {0, 1, 2, 3}
        assert stats.chisquare([counts[i] for i in range(4)]).pvalue > 1e-3

    def test_ends_balanced(self):
        labels = [0] * 300 + [1] * 20 + [2] * 5
        assert Counter(fill(MAKERS["hus"](12), labels).labels()) == {0: 4, 1: 4, 2: 4}


class TestBytes:
    """Images of 256 levels are stored as bytes and returned as exactly the same floats."""

    LEVELS = torch.arange(256).float() / 255

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_every_level_comes_back_bit_by_bit(self, dtype):
        image = torch.arange(256).to(dtype) / 255
        memory = tta.FIFO(2)
        memory.add(image, 0)
        assert memory.state_dict()["inputs"].dtype == torch.uint8
        assert memory.inputs().dtype == dtype and torch.equal(memory.inputs()[0], image)

    @pytest.mark.parametrize(
        "odd", [0.1, -1 / 255, 256 / 255, 1000.0, -1e30, math.nan, math.inf, math.nextafter(1, 0) - 1e-7]
    )
    def test_one_sample_that_is_not_of_256_levels_makes_all_floats_again(self, odd):
        memory = tta.FIFO(3)
        memory.add(self.LEVELS, 0)
        memory.add(self.LEVELS.flip(0), 1)
        other = self.LEVELS.clone()
        other[7] = odd
        memory.add(other, 2)
        expected = torch.stack([self.LEVELS, self.LEVELS.flip(0), other])
        assert torch.equal(memory.inputs().nan_to_num(7.0), expected.nan_to_num(7.0))
        assert memory.state_dict()["inputs"].dtype == torch.float32
        memory.add(self.LEVELS, 0)
        assert torch.equal(memory.inputs()[2], self.LEVELS)
        memory.clear()
        memory.add(self.LEVELS, 0)
        assert memory.state_dict()["inputs"].dtype == torch.uint8

    @pytest.mark.parametrize("name", MAKERS)
    def test_a_state_of_bytes_goes_on_as_floats_would(self, name):
        memory = MAKERS[name](4)
        for i in range(9):
            memory.add(self.LEVELS.roll(i), i % 3, 0.2)
        twin = MAKERS[name](4, seed=9)
        twin.load_state_dict(memory.state_dict())
        assert torch.equal(twin.inputs(), memory.inputs()) and twin.inputs().dtype == torch.float32
        for each in (memory, twin):
            each.add(self.LEVELS / 3, 1, 0.1)
        assert torch.equal(twin.inputs(), memory.inputs())

    def test_what_was_given_as_bytes_stays_bytes(self):
        memory = tta.FIFO(2)
        memory.add(torch.tensor([3, 200], dtype=torch.uint8), 0)
        assert memory.inputs().tolist() == [[3, 200]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_state_of_an_emptied_memory_loads(dtype):
    memory, other = tta.PBRS(4), tta.PBRS(4)
    memory.add(torch.rand(3, dtype=dtype), 0)
    memory.clear()
    state = memory.state_dict()
    other.load_state_dict(state)
    assert len(other) == 0
    assert other.dtype == memory.inputs().dtype == dtype
    other.load_state_dict({**state, "inputs": torch.empty(0)})  # as 0.2.0 wrote it


@pytest.mark.parametrize("other", [tta.FIFO, tta.HUS])
def test_a_state_of_another_kind_of_memory_is_refused(other):
    state = tta.PBRS(4).state_dict()
    with pytest.raises(ValueError, match=f"the state belongs to a PBRS, but this is a {other.__name__}"):
        other(4).load_state_dict(state)
    del state["kind"]  # as 0.2.0 wrote it
    tta.PBRS(4).load_state_dict(state)


def test_cstu_takes_a_model_of_one_class():
    memory = tta.CSTU(2)
    memory.classes = 1  # as a method sets it
    for _ in range(4):
        memory.add(torch.rand(3), 0, 0.0)
    assert len(memory) == 2


@pytest.mark.parametrize("make", [tta.PBRS, tta.Reservoir, tta.FIFO, tta.HUS, partial(tta.CSTU, classes=3)])
def test_after_an_interrupt_a_memory_is_whole(make, monkeypatch):
    """An interrupt between the choice of a slot and the sample's arrival there, at each of many samples."""
    memory, keep = make(4), tta.Memory._keep

    def interrupted(*arguments):
        raise KeyboardInterrupt

    for number in range(40):
        sample = torch.full((1,), float(number))
        with monkeypatch.context() as patched:
            patched.setattr(tta.Memory, "_keep", interrupted)
            with contextlib.suppress(KeyboardInterrupt):
                memory.add(sample, number % 3, 0.5)
        again = make(4)
        again.load_state_dict(memory.state_dict())
        assert again.labels() == memory.labels() and len(memory) == min(number, 4)
        monkeypatch.setattr(tta.Memory, "_keep", keep)
        memory.add(sample, number % 3, 0.5)
    assert len(memory) == 4
