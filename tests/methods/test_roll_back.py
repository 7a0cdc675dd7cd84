"""`roll_back` returns to a snapshot of what was learned; counters and random generators are kept."""

import copy

import pytest
import torch
from networks import images, make

import note_tta as tta
from note_tta.checks import equal
from note_tta.methods.wrapper import Wrapper

LEARNERS = ["note", "onda", "tent", "cotta", "note_iid"]


@pytest.mark.parametrize("name", LEARNERS)
def test_after_going_back_the_method_answers_and_learns_as_at_the_snapshot(name):
    keywords = {"augmentations": 2} if name == "cotta" else {}
    method = make(name, **keywords)
    method(images(128))
    kept = method.snapshot()
    twin = method.fork()
    method(images(256, seed=3))
    assert not equal(method.snapshot(), kept)
    counters = dict(method.counters)
    method.roll_back(kept)
    assert equal(method.snapshot(), kept) and method.counters == counters
    for each in (method, twin):
        each.pause()
    x = images(40, seed=5)
    assert torch.equal(method.model(x), twin.model(x))


def test_going_back_without_a_snapshot_is_going_back_to_the_source():
    method = make("note")
    at_start = method.snapshot()
    method(images(300))
    method.roll_back()
    assert equal(method.snapshot(), at_start)
    assert len(method.memory) == 0 and method.schedule.progress == 0
    assert method.counters["samples"] == 300 and method.counters["updates"] == 4


def test_the_memorys_randomness_goes_on():
    """A replay after a rollback must draw new random numbers; otherwise an attacker could predict them."""
    method = make("note")
    method(images(300))
    drawn = method.memory.generator.get_state()
    method.roll_back()
    assert torch.equal(method.memory.generator.get_state(), drawn)


def test_cottas_randomness_goes_on():
    method = make("cotta", augmentations=2)
    kept = method.snapshot()
    method(images(64))
    drawn = method.generator.get_state()
    method.roll_back(kept)
    assert torch.equal(method.generator.get_state(), drawn)


def test_a_pending_update_is_given_up():
    method = make("note", delay=32)
    kept = method.snapshot()
    method(images(70))
    pending = method.schedule.pending
    assert pending is not None
    method.roll_back(kept)
    assert method.schedule.pending is None and pending._cancelled
    method(images(40, seed=2))
    assert method.counters["updates"] == 0 and equal(method.snapshot(), kept)


def test_a_snapshot_is_a_value():
    method = make("note")
    method(images(64))
    kept = method.snapshot()
    before = copy.deepcopy(kept)
    method(images(128))
    assert equal(kept, before)
    method.roll_back(kept)
    method.tensors["1.weight"].data.add_(1)
    for moments in method.descent.moments.values():
        moments["exp_avg"].add_(1)
    assert equal(kept, before)


class InFives(Wrapper):
    """Takes at most five good samples at a time."""

    def __init__(self, method):
        super().__init__(method)
        self.sizes = []

    def room(self):
        return min(5, self.method.room())

    def after(self, x, logits):
        self.sizes.append(int(torch.isfinite(logits).all(dim=1).sum()))
        return logits


def test_a_wrapper_counts_room_in_good_samples():
    """A bad sample must not move the batch boundaries after it, because answers would be rounded differently."""
    x = images(24)
    x[[0, 7, 8, 23]] = torch.nan
    wrapper = InFives(tta.NOTE(make("note").backbone, interval=16))
    logits = wrapper(x)
    assert logits.isnan().any(dim=1).nonzero()[:, 0].tolist() == [0, 7, 8, 23]
    assert [size for size in wrapper.sizes if size] == [5, 5, 5, 1, 4]
