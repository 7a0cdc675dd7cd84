"""Saved states: written whole, and refused where they are damaged or crafted."""

import contextlib
import copy
import math
import zipfile

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from networks import images, make

import note_tta as tta
from benchmarks.trust.fuzz import small_method


@pytest.fixture
def saved(tmp_path):
    method = small_method()
    method(torch.rand(20, 1, 4, 4))
    (tmp_path / "deep").mkdir()
    tta.save_state(tmp_path / "deep" / "state.pt", method)
    return tmp_path / "deep" / "state.pt", method


@pytest.mark.parametrize("name", sorted(tta.METHODS))
def test_a_saved_state_goes_on_as_if_never_stopped(name, tmp_path):
    keywords = {"augmentations": 2} if name == "cotta" else {}
    method, twin = make(name, **keywords), make(name, **keywords)
    method(images(70))
    tta.save_state(tmp_path / "state.pt", method)
    tta.load_state(tmp_path / "state.pt", twin)
    assert torch.equal(method(images(20, seed=2)), twin(images(20, seed=2)))
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


def test_what_a_killed_save_left_is_taken_away_by_the_next(saved):
    path, method = saved
    left = path.with_name(f".{path.name}.abc123.part")
    left.write_bytes(b"half")
    tta.save_state(path, method)
    assert [entry.name for entry in path.parent.iterdir()] == ["state.pt"]


def test_a_save_that_fails_leaves_the_old_state(saved, monkeypatch):
    path, method = saved
    before = path.read_bytes()
    monkeypatch.setattr(
        "os.fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="No space left"):
        tta.save_state(path, method)
    assert path.read_bytes() == before and [entry.name for entry in path.parent.iterdir()] == ["state.pt"]


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such folder: .*absent"):
        tta.save_state(tmp_path / "absent" / "state.pt", small_method())


def test_errors_name_the_file(saved, tmp_path):
    path, method = saved
    with pytest.raises(FileNotFoundError, match=r"no such file: .*absent\.pt"):
        tta.load_state(tmp_path / "absent.pt", method)
    with pytest.raises(ValueError, match=r"state\.pt: the state belongs to NOTE, but this method is Source"):
        tta.load_state(path, tta.Source(method.model))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"state\.pt cannot be read as the state of a method"):
        tta.load_state(path, method)


def test_a_packed_bomb_is_refused_unopened(tmp_path):
    with zipfile.ZipFile(tmp_path / "state.pt", "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("archive/data/0", bytes(10**7))
    with pytest.raises(ValueError, match=r"state\.pt cannot be read .*: it unpacks to more than its size"):
        tta.load_state(tmp_path / "state.pt", small_method())
    with pytest.raises(ValueError, match=r"state\.pt cannot be read .*: it unpacks to more than its size"):
        tta.load_weights(small_method().model, tmp_path / "state.pt")


def put(state, keys, value):
    *path, last = keys
    for key in path:
        state = state[key]
    state[last] = value


MEMORY = ("parts", "memory")
FIRST = ("parts", "optimizer", "moments", 0)
PROGRESS = ("parts", "schedule", "progress")
CRAFTED = {
    "progress past the interval": (PROGRESS, 100, "it is 100 samples into an interval of"),
    "progress below zero": (PROGRESS, -1, "samples into an interval"),
    "progress no number": (PROGRESS, "1", "samples into an interval"),
    "an update that is due never": (
        ("parts", "schedule", "pending"),
        {"countdown": -1, "value": None},
        "its pending update is due in -1 samples",
    ),
    "counters infinite": (("counters", "samples"), math.inf, "not a state of NOTE"),
    "weights not finite": (("model", "1.weight"), torch.full((3,), torch.nan), "values that are not finite"),
    "samples not finite": ((*MEMORY, "inputs"), torch.full((8, 1, 4, 4), torch.inf), "not finite"),
    "samples of whole numbers": (
        (*MEMORY, "inputs"),
        torch.zeros(8, 1, 4, 4).long(),
        "samples of torch.int64",
    ),
    "samples that claim a terabyte": (
        (*MEMORY, "inputs"),
        torch.zeros(1).expand(8, 10**6, 10**5),
        "that stores fewer values",
    ),
    "counts too small": ((*MEMORY, "seen"), {}, "seen fewer samples of a class than it holds"),
    "counts no numbers": ((*MEMORY, "seen"), dict.fromkeys(range(9), "x"), "seen fewer samples"),
    "randomness of another kind": ((*MEMORY, "generator"), torch.zeros(3), "not a state of NOTE"),
    "moments of another shape": ((*FIRST, "exp_avg"), torch.zeros(7), "does not fit the parameter"),
    "moments missing": (FIRST, {"step": torch.tensor(1.0)}, "lacks step, exp_avg, exp_avg_sq"),
    "moments of a parameter that is not there": (
        ("parts", "optimizer", "moments", 99),
        {"step": torch.tensor(1.0)},
        "belongs to other parameters",
    ),
    "a rate that is no number": (("settings", "lr"), "fast", "not a state of NOTE"),
    "an interval of none": (("settings", "interval"), 0, "interval must be at least 1, got 0"),
    "a setting that is unknown": (("settings", "speed"), 3, "settings that this method does not have: speed"),
    "settings that are no dict": (("settings",), [3], "its settings are not plain values"),
}


@pytest.mark.parametrize("kind", CRAFTED)
def test_a_crafted_state_is_refused_and_changes_nothing(kind):
    keys, value, message = CRAFTED[kind]
    method = small_method()
    method(torch.rand(20, 1, 4, 4))
    state = copy.deepcopy(method.state_dict())
    put(state, keys, value)
    x = torch.rand(9, 1, 4, 4)
    expected = copy.deepcopy(method)(x)
    with pytest.raises(ValueError, match=message):
        method.load_state_dict(state)
    assert torch.equal(method(x), expected)


def test_a_reservoir_that_has_seen_less_than_it_holds_is_refused():
    memory = tta.Reservoir(4)
    memory.add(torch.zeros(1), 0)
    with pytest.raises(ValueError, match="not a state of Reservoir: seen is -5"):
        memory.load_state_dict(memory.state_dict() | {"seen": -5})


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.integers(0, 3), st.integers(0, 3), max_size=2),
    st.sampled_from(
        [torch.zeros(0), torch.ones(3), torch.ones(8, 1, 4, 4), torch.tensor(2), torch.ones(()).bool()]
    ),
)


def places(state, path=()):
    """Where a nested state can be changed."""
    found = [path] if path else []
    inner = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    for key, value in inner:
        found += places(value, (*path, key))
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_stands_in_a_state_is_refused_or_can_be_gone_on_from(data):
    """With any part replaced by junk: a ValueError, or a method that answers; never another error."""
    method = small_method()
    method(torch.rand(20, 1, 4, 4))
    state = copy.deepcopy(method.state_dict())
    place = data.draw(st.sampled_from(places(state)))
    put(state, place, data.draw(JUNK))
    with contextlib.suppress(ValueError):
        method.load_state_dict(state)
    try:
        assert method(torch.rand(20, 1, 4, 4)).shape == (20, 4)
    except ValueError as error:
        assert "a stream keeps one shape" in str(error)  # a memory of samples of another shape
    method.reset()
    assert torch.isfinite(method(torch.rand(20, 1, 4, 4))).all()
