"""A fleet against separate methods: answers, states, bad rows, spilling, kills."""

import gc
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch import nn

import note_tta as tta
from note_tta.checks import equal
from note_tta.fleet import Fleet
from note_tta.fleet import fleet as fleet_module
from note_tta.fleet.rows import InTurn, Together
from note_tta.fleet.store import Store
from note_tta.methods import delay
from note_tta.methods.draft import Draft
from note_tta.methods.interval import IntervalMethod
from note_tta.methods.wrapper import Wrapper
from note_tta.watch import journal

CLASSES = 5


@pytest.fixture(autouse=True)
def one_moment(monkeypatch):
    """Fix the clock: events of a watch carry the time."""
    monkeypatch.setattr(journal, "_now", lambda: "2026-01-01T00:00:00+00:00")


class SourceScaled(nn.Module):
    """Uses a norm layer's scale a second time, outside the layer."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(x) * self.norm.weight[:, None, None]


class NormThenReLU(nn.BatchNorm2d):
    """A norm layer with its own forward."""

    def forward(self, x):
        return super().forward(x).relu()


class ChannelsFirstLayerNorm(nn.LayerNorm):
    """As in ConvNeXt."""

    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


NORMS = {
    "iabn": lambda: tta.IABN2d(8),
    "bn": lambda: nn.BatchNorm2d(8),
    "group": lambda: nn.GroupNorm(2, 8),
    "layer": lambda: ChannelsFirstLayerNorm(8),
    "own": lambda: NormThenReLU(8),
    "scaled": SourceScaled,
}


def network(norm="iabn", seed=0):
    """A small classifier of 3-channel images of any size, trained enough for its norm tensors to differ."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        NORMS[norm](),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False),
        NORMS[norm](),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, CLASSES),
    )
    for _ in range(20):
        model.train()(torch.rand(32, 3, 8, 8))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 and "8" not in name:
                parameter.add_(0.2 * torch.rand(parameter.shape))
        model[-1].weight.mul_(8)
    return model.eval()


class Smoothed(Wrapper):
    """A filter with a state: it mixes each answer with the previous one."""

    class Last:
        def __init__(self):
            self.answer = torch.zeros(CLASSES)

        def state_dict(self):
            return {"answer": self.answer}

        def load_state_dict(self, state):
            self.answer = state["answer"]

    def __init__(self, method):
        super().__init__(method)
        self.last = self.part("last", self.Last())

    def after(self, x, logits):
        answers = []
        for row in logits:
            if row.isfinite().all():
                row = self.last.answer = (row + self.last.answer) / 2
            answers.append(row)
        return torch.stack(answers)


def note(model, **keywords):
    """NOTE that learns fast and often, so that streams soon differ."""
    keywords = {"interval": 8, "lr": 0.05, "momentum": 0.3} | keywords
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tta.NOTE(model, tta.PBRS(8), **keywords)


SETTINGS = {
    "paper": note,
    "learn_from": lambda model: note(model, learn_from=4),
    "warm_start": lambda model: note(model, warm_start=2),
    "delay 1": lambda model: note(model, delay=1),
    "delay 8": lambda model: note(model, delay=8),
    "wrapped": lambda model: Smoothed(note(model)),
    "wrapped and delayed": lambda model: Smoothed(note(model, delay=5)),
    "filtered and watched": lambda model: tta.TemporalFilter(tta.Watch(note(model), look=32, sample=8)),
}


def calls(count, streams, rows=40, seed=0, size=8):
    """Calls of a fleet with mixed ids; each stream has its own drift."""
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        number = int(torch.randint(1, rows, (), generator=g))
        ids = torch.randint(streams, (number,), generator=g).tolist()
        x = torch.rand(number, 3, size, size, generator=g)
        drift = torch.tensor(ids).view(-1, 1, 1, 1) / streams
        yield [f"cam-{i}" if i % 2 else i for i in ids], x * (0.7 + drift) + 0.5 * drift


class Separate:
    """The reference for a fleet: one method per stream, called with only its rows."""

    def __init__(self, model, make):
        self.model = model
        self.methods = defaultdict(lambda: make(model))

    def __call__(self, ids, x):
        answers = torch.empty(len(x), CLASSES, dtype=next(iter(self.model.parameters())).dtype)
        for name in dict.fromkeys(ids):
            rows = [row for row, other in enumerate(ids) if other == name]
            answers[rows] = self.methods[name](x[rows])
        return answers


def close(a, b, tolerance=1e-4):
    """Whether two states are equal up to rounding."""
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and torch.allclose(a.double(), b.double(), tolerance, tolerance)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key], tolerance) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(close(x, y, tolerance) for x, y in zip(a, b, strict=True))
    return a == (pytest.approx(b, rel=tolerance, abs=tolerance) if isinstance(b, float) else b)


def assert_same_streams(fleet, separate):
    assert set(fleet) == set(separate.methods)
    for name, method in separate.methods.items():
        assert close(fleet.state_dict(name), method.state_dict()), name


@pytest.mark.parametrize("make", SETTINGS.values(), ids=SETTINGS)
def test_each_stream_is_as_a_method_of_its_own(make):
    model = network()
    fleet, separate = Fleet(model, make), Separate(model, make)
    for ids, x in calls(12, 6, rows=150):
        torch.testing.assert_close(fleet(ids, x), separate(ids, x), atol=1e-4, rtol=1e-4)
    assert min(fleet.counters(name)["updates"] for name in fleet) >= 8
    assert_same_streams(fleet, separate)


def test_each_of_fifty_streams_is_as_a_method_of_its_own():
    model = network()
    fleet, separate = Fleet(model, note), Separate(model, note)
    for ids, x in calls(12, 50, rows=300):
        torch.testing.assert_close(fleet(ids, x), separate(ids, x), atol=1e-4, rtol=1e-4)
    assert len(fleet) == 50 and max(fleet.counters(name)["updates"] for name in fleet) >= 3
    assert_same_streams(fleet, separate)


@pytest.mark.parametrize("norm", NORMS)
def test_every_kind_of_norm_layer(norm):
    model = network(norm)
    fleet, separate = Fleet(model, note), Separate(model, note)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for ids, x in calls(15, 4):
            torch.testing.assert_close(fleet(ids, x), separate(ids, x), atol=1e-4, rtol=1e-4)
    assert_same_streams(fleet, separate)
    in_turn = norm == "scaled"
    assert isinstance(fleet._pass_for(x), InTurn if in_turn else Together)
    assert sum("one after another" in str(warning.message) for warning in said) == in_turn


class Clips(nn.Module):
    """Folds time into the batch: a norm layer sees more rows than there are samples."""

    def __init__(self):
        super().__init__()
        self.frames = network()

    def forward(self, x):
        return self.frames(x.flatten(0, 1)).unflatten(0, x.shape[:2]).mean(1)


def test_a_model_that_folds_another_axis_into_the_batch():
    model = Clips()
    fleet, separate = Fleet(model, note), Separate(model, note)
    for ids, x in calls(12, 3):
        clips = torch.stack([x, x.flip(-1)], dim=1)
        torch.testing.assert_close(fleet(ids, clips), separate(ids, clips), atol=1e-4, rtol=1e-4)
    assert_same_streams(fleet, separate)


def test_sixteen_bit_models_and_other_outputs():
    model = network().bfloat16()

    def make(module):
        return note(module, output=lambda answer: answer * 2)

    fleet, separate = Fleet(model, make), Separate(model, make)
    for ids, x in calls(10, 3):
        answers = fleet(ids, x)
        assert answers.dtype == torch.bfloat16
        torch.testing.assert_close(answers.float(), separate(ids, x).float(), atol=0.3, rtol=0.1)
    assert fleet.counters(0)["updates"] >= 3


def test_streams_of_different_reach_and_rate_in_one_call():
    model = network()
    fleet, separate = Fleet(model, note), Separate(model, note)
    for name, settings in {0: {"reach": 0.16}, "cam-1": {"lr": 0.2}, 2: {"delay": 4}}.items():
        method = separate.methods[name] = note(model, **settings)
        fleet.load_state_dict(name, method.state_dict())
    for ids, x in calls(15, 4):
        torch.testing.assert_close(fleet(ids, x), separate(ids, x), atol=1e-4, rtol=1e-4)
    assert fleet.counters(0)["unlearned_samples"] > 0 == fleet.counters("cam-3")["unlearned_samples"]
    assert_same_streams(fleet, separate)


def test_the_callers_model_is_never_changed_and_a_change_to_it_is_an_error():
    model = network().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fleet = Fleet(model, note)
    for ids, x in calls(10, 3):
        fleet(ids, x)
    assert equal(before, dict(model.state_dict())) and all(module.training for module in model.modules())
    with torch.no_grad():
        model[0].weight.mul_(2)
    with pytest.raises(ValueError, match=r"0\.weight was changed"):
        fleet(ids, x)


def test_a_stream_moves_to_a_single_method_and_back(tmp_path):
    model = network()
    fleet, other, single = Fleet(model, note), Fleet(model, note, max_resident=1), note(model)
    for ids, x in calls(20, 3):
        fleet(ids, x)
    torch.save(fleet.state_dict("cam-1"), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    single.load_state_dict(state)
    other.load_state_dict("elsewhere", state)
    x = torch.rand(30, 3, 8, 8)
    expected = single(x)
    torch.testing.assert_close(fleet(["cam-1"] * 30, x), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(other(["elsewhere"] * 30, x), expected, atol=1e-4, rtol=1e-4)
    fleet.load_state_dict("cam-1", single.state_dict())
    assert equal(fleet.state_dict("cam-1"), single.state_dict())


def test_another_models_state_is_refused_and_nothing_changes():
    fleet = Fleet(network(), note)
    fleet(["a"] * 20, torch.rand(20, 3, 8, 8))
    before = fleet.state_dict("a")
    for wrong in (note(network(seed=1)), tta.TENT(network())):
        for name in ("a", "b"):
            with pytest.raises(ValueError, match=r"another model|the state belongs to"):
                fleet.load_state_dict(name, wrong.state_dict())
    assert list(fleet) == ["a"] and equal(fleet.state_dict("a"), before)


def test_bad_rows_are_their_own_matter():
    model = network()
    fleet, separate = Fleet(model, note), Separate(model, note)
    for number, (ids, x) in enumerate(calls(25, 4)):
        bad = torch.rand(len(x), generator=torch.Generator().manual_seed(number)) < 0.2
        x[bad, 0, 2, 3] = torch.tensor([torch.nan, torch.inf, -torch.inf])[number % 3]
        answers, expected = fleet(ids, x), separate(ids, x)
        assert answers[bad].isnan().all()
        torch.testing.assert_close(answers, expected, atol=1e-4, rtol=1e-4, equal_nan=True)
    assert fleet.counters(0)["rejected_samples"] > 5
    assert_same_streams(fleet, separate)
    with_bad, without = Fleet(model, note), Fleet(model, note)
    x = torch.rand(64, 3, 8, 8)
    x[:32] = torch.nan
    ids = [row % 2 for row in range(64)]
    torch.testing.assert_close(with_bad(ids, x)[32:], without(ids[32:], x[32:]))


def test_a_sample_that_the_model_makes_nan_of():
    model = network()
    fleet, separate = Fleet(model, note), Separate(model, note)
    x = torch.rand(6, 3, 8, 8)
    x[2] = 3e38
    ids = ["a", "b", "a", "b", "a", "b"]
    answers = fleet(ids, x)
    torch.testing.assert_close(answers, separate(ids, x), atol=1e-4, rtol=1e-4, equal_nan=True)
    assert answers[2].isnan().all() and fleet.counters("a")["rejected_samples"] == 1
    assert_same_streams(fleet, separate)


REFUSED = {
    "too few ids": (["a"], torch.rand(2, 3, 8, 8), ValueError, "x has 2 samples and there are 1 ids"),
    "a string": (
        "ab",
        torch.rand(2, 3, 8, 8),
        TypeError,
        "ids must be a list with one id per sample, got 'ab'",
    ),
    "a number": (7, torch.rand(1, 3, 8, 8), TypeError, "ids must be a list"),
    "None": (["a", None], torch.rand(2, 3, 8, 8), TypeError, r"got None \(NoneType\)"),
    "a float": ([1.0], torch.rand(1, 3, 8, 8), TypeError, "an id must be a string or an int, got 1.0"),
    "a bool": ([True], torch.rand(1, 3, 8, 8), TypeError, r"got True \(bool\)"),
    "a tensor": (torch.tensor([1]), torch.rand(1, 3, 8, 8), TypeError, r"\(Tensor\)"),
    "other channels": (
        ["a"],
        torch.rand(1, 4, 8, 8),
        ValueError,
        r"does not accept samples of shape \(4, 8, 8\)",
    ),
    "no batch": (["a"], torch.rand(3), ValueError, "x must have a batch dimension"),
    "integers": (["a"], torch.ones(1, 3, 8, 8, dtype=torch.uint8), TypeError, "scale the samples first"),
    "another size": (
        ["new", "old"],
        torch.rand(2, 3, 6, 6),
        ValueError,
        r"stream 'old' holds .* \(3, 8, 8\)",
    ),
}


@pytest.mark.parametrize("spill", [False, True], ids=["in memory", "spilled"])
@pytest.mark.parametrize(("ids", "x", "kind", "message"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_call_is_refused_before_anything_changes(tmp_path, spill, ids, x, kind, message):
    with (
        Fleet(network(), note, max_resident=1, spill=tmp_path / "spill")
        if spill
        else Fleet(network(), note) as fleet
    ):
        fleet(["old"] * 12, torch.rand(12, 3, 8, 8))
        if spill:
            fleet(["last"], torch.rand(1, 3, 8, 8))
        before = {name: fleet.state_dict(name) for name in fleet}
        with pytest.raises(kind, match=message):
            fleet(ids, x)
        assert equal(before, {name: fleet.state_dict(name) for name in fleet})
        assert fleet(["old"], torch.rand(1, 3, 8, 8)).shape == (1, CLASSES)


def test_streams_may_have_different_sizes():
    model = network()
    fleet, separate = Fleet(model, note), Separate(model, note)
    for (ids, x), (others, y) in zip(calls(8, 3), calls(8, 3, seed=1, size=6), strict=True):
        torch.testing.assert_close(fleet(ids, x), separate(ids, x), atol=1e-4, rtol=1e-4)
        others = [f"small {name}" for name in others]
        torch.testing.assert_close(fleet(others, y), separate(others, y), atol=1e-4, rtol=1e-4)
    assert_same_streams(fleet, separate)


def test_an_empty_call():
    fleet = Fleet(network(), note)
    assert fleet([], torch.rand(0, 3, 8, 8)).shape == (0, CLASSES) and len(fleet) == 0


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"max_resident": 0}, "max_resident must be at least 1, got 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1, got 0"),
        (
            {"method": tta.TENT},
            "a fleet runs methods such as tta.NOTE, with or without wrappers; TENT computes its answers",
        ),
        ({"method": lambda model: Smoothed(tta.Source(model))}, "with or without wrappers; Source computes"),
    ],
)
def test_wrong_settings_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        Fleet(network(), **keywords)


def test_what_is_no_method_is_refused():
    with pytest.raises(TypeError, match=r"method must return a method such as tta\.NOTE"):
        Fleet(network(), lambda model: model)


def test_more_streams_than_fit_are_refused_without_a_folder():
    fleet = Fleet(network(), note, max_resident=2)
    fleet(["a"], torch.rand(1, 3, 8, 8))
    with pytest.raises(ValueError, match="3 streams do not fit: max_resident is 2"):
        fleet(["a", "b", "c"], torch.rand(3, 3, 8, 8))
    assert list(fleet) == ["a"] and fleet.counters("a")["samples"] == 1
    fleet(["b"], torch.rand(1, 3, 8, 8))
    with pytest.raises(ValueError, match="do not fit"):
        fleet.load_state_dict("c", fleet.state_dict("a"))
    fleet.drop("a")
    fleet(["c"], torch.rand(1, 3, 8, 8))
    assert sorted(fleet) == ["b", "c"]


@pytest.mark.parametrize("make", SETTINGS.values(), ids=SETTINGS)
def test_spilled_streams_come_back_exact(tmp_path, make, resident=2):
    model = network()
    all_in_memory = Fleet(model, make)
    with Fleet(model, make, max_resident=resident, spill=tmp_path) as fleet:
        for ids, x in calls(15, 8):
            torch.testing.assert_close(fleet(ids, x), all_in_memory(ids, x), atol=1e-4, rtol=1e-4)
            assert len(fleet.resident) <= resident
        assert set(fleet) == set(all_in_memory) and len(fleet) == len(all_in_memory) == 8
        assert all(name in fleet for name in all_in_memory) and "cam-99" not in fleet
        for name in all_in_memory:
            assert close(fleet.state_dict(name), all_in_memory.state_dict(name))
            assert fleet.counters(name) == all_in_memory.counters(name)
    with Fleet(model, make, spill=tmp_path) as again:
        assert len(again.resident) == 0 and set(again) == set(all_in_memory)
        for ids, x in calls(10, 8, seed=1):
            torch.testing.assert_close(again(ids, x), all_in_memory(ids, x), atol=1e-4, rtol=1e-4)


def test_ids_are_never_paths(tmp_path):
    odd = [
        "",
        "..",
        "../../outside",
        "/etc/passwd",
        "a/b",
        "nul\0",
        "ünï",
        "\ud800",
        "x" * 5000,
        1,
        "1",
        -5,
        10**30,
    ]
    with Fleet(network(), note, max_resident=2, spill=tmp_path / "spill") as fleet:
        fleet(odd, torch.rand(len(odd), 3, 8, 8))
        fleet.flush()
        assert set(fleet) == set(odd) and [type(i) for i in fleet] != []
    with Fleet(network(), note, spill=tmp_path / "spill") as fleet:
        assert set(fleet) == set(odd)
        assert all(fleet.counters(name)["samples"] == 1 for name in odd)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert written == {"spill", "spill/streams.sqlite"}


def test_a_folder_belongs_to_one_fleet_at_a_time(tmp_path):
    model = network()
    with Fleet(model, note, spill=tmp_path) as fleet:
        with pytest.raises(ValueError, match="is in use by another fleet or process"):
            Fleet(model, note, spill=tmp_path)
        code = f"from note_tta.fleet.store import Store; Store({str(tmp_path)!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert "is in use by another fleet or process" in other.stderr
        fleet(["a"], torch.rand(1, 3, 8, 8))
    with Fleet(model, note, spill=tmp_path) as fleet:
        assert list(fleet) == ["a"]


def test_a_folder_belongs_to_one_model_and_method(tmp_path):
    Fleet(network(), note, spill=tmp_path).close()
    for model, make, what in (
        (network(seed=1), note, "model"),
        (network("bn"), note, "model|layers"),
        (tta.convert_iabn(network(), alpha=2.0), note, "layers"),
        (network(), lambda model: Smoothed(note(model)), r"method, NOTE; this fleet has Smoothed\(NOTE\)"),
    ):
        with pytest.raises(ValueError, match=f"holds streams of another ({what})"):
            Fleet(model, make, spill=tmp_path)
    Fleet(network(), note, spill=tmp_path).close()


@pytest.mark.parametrize("room", [1, 2, 8])
def test_a_damaged_record_is_said_and_harms_no_other(tmp_path, room):
    with Fleet(network(), note, spill=tmp_path) as fleet:
        fleet(["a", "b"], torch.rand(2, 3, 8, 8))
    with Store(tmp_path) as store:
        (record,) = store._database.execute("SELECT record FROM streams WHERE id = ?", (b"sa",)).fetchone()
        damaged = bytearray(record)
        damaged[-100] ^= 1
        store._database.execute("UPDATE streams SET record = ? WHERE id = ?", (bytes(damaged), b"sa"))
    with Fleet(network(), note, max_resident=room, spill=tmp_path) as fleet:
        with pytest.raises(ValueError, match=r"stream 'a' in .* is damaged: its checksum is wrong"):
            fleet(["new", "b", "a"], torch.rand(3, 3, 8, 8))
        assert fleet.counters("b")["samples"] == 1 and "new" not in fleet
        fleet(["b"], torch.rand(1, 3, 8, 8))
        fleet.reset("a")
        fleet(["a"], torch.rand(1, 3, 8, 8))
        assert fleet.counters("a")["samples"] == 1 and fleet.counters("b")["samples"] == 2


def after_a_kill(folder, to):
    """A copy of the files as a kill at this moment would leave them."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return Store(to)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("make", ["paper", "wrapped and delayed"])
def test_killed_between_any_two_chunks_the_folder_has_every_stream_nearly_as_it_was(
    tmp_path, monkeypatch, every, make
):
    folder, oldest = tmp_path / "spill", 0
    resident = 3 if every == 1 else 6
    with Fleet(
        network(), SETTINGS[make], max_resident=resident, spill=folder, checkpoint_every=every
    ) as fleet:
        receive = Fleet._receive

        def look_after(self, *arguments):
            nonlocal oldest
            answers = receive(self, *arguments)
            live = {stream.name: stream.method.counters for stream in self._streams.in_memory.values()}
            with after_a_kill(folder, tmp_path / "copy") as left:
                for name, counters in live.items():
                    updates = left.get(name)["counters"]["updates"] if name in left else 0
                    oldest = max(oldest, counters["updates"] - updates)
            return answers

        monkeypatch.setattr(Fleet, "_receive", look_after)
        for ids, x in calls(8, 6, rows=80):
            fleet(ids, x)
    assert oldest <= every
    assert every == 1 or oldest >= 2


def test_a_source_that_replays_resumes_exactly(tmp_path):
    model, samples = network(), {name: torch.rand(60, 3, 8, 8) * (1 + name / 4) for name in range(4)}
    with Fleet(model, note, spill=tmp_path / "spill") as fleet:
        for start in range(0, 30, 5):
            for name, x in samples.items():
                fleet([name] * 5, x[start : start + 5])
        after_a_kill(tmp_path / "spill", tmp_path / "copy").close()
    with Fleet(model, note, spill=tmp_path / "copy") as resumed:
        for name, x in samples.items():
            done = resumed.counters(name)["samples"]
            assert 0 < done <= 30
            resumed([name] * (60 - done), x[done:])
            single = note(model)
            single(x)
            assert close(resumed.state_dict(name), single.state_dict())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is forked for each kill")
@pytest.mark.parametrize("every", [1, 3])
def test_killed_at_random_moments_the_folder_has_every_stream_whole(tmp_path, every):
    """Eight kills; `python -m benchmarks.kills` does fifty, with its result in `results/benchmarks`."""
    code = "import sys, torch; from pathlib import Path; from benchmarks.kills import fleet; torch.set_num_threads(1); "
    code += "print(fleet.whole_after(8, Path(sys.argv[1]), int(sys.argv[2])))"
    command = [sys.executable, "-c", code, str(tmp_path), str(every)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "8\n", done.stderr


def test_flush_makes_all_durable_and_says_where_it_cannot(tmp_path):
    with Fleet(network(), note, spill=tmp_path / "spill") as fleet:
        fleet([0, 1] * 6, torch.rand(12, 3, 8, 8))
        with after_a_kill(tmp_path / "spill", tmp_path / "copy") as left:
            assert len(left) == 0
        fleet.flush()
        with after_a_kill(tmp_path / "spill", tmp_path / "copy") as left:
            assert all(left.get(name)["counters"] == fleet.counters(name) for name in (0, 1))
    with pytest.raises(ValueError, match="keeps its streams in memory"):
        Fleet(network(), note).flush()


def test_what_is_asked_for_is_durable_at_once(tmp_path):
    folder, model = tmp_path / "spill", network()

    def left(name):
        with after_a_kill(folder, tmp_path / "copy") as store:
            return store.get(name) if name in store else None

    with Fleet(model, note, spill=folder) as fleet:
        fleet([0, 1] * 10, torch.rand(20, 3, 8, 8))
        assert left(0)["counters"]["samples"] == 8
        fleet.pause(0)
        assert left(0)["paused"] and left(0)["counters"]["samples"] == 10
        fleet.reset(0)
        assert left(0)["counters"]["samples"] == 0 and not left(0)["paused"]
        fleet.load_state_dict("new", fleet.state_dict(1))
        assert left("new")["counters"]["samples"] == 10
        fleet.drop("new")
        assert left("new") is None and "new" not in fleet


def test_pause_resume_reset_drop_and_fork():
    model = network()
    fleet = Fleet(model, note)
    start = note(model).state_dict()
    x = torch.rand(20, 3, 8, 8)
    fleet(["a", "b"] * 10, x)
    fleet.pause("a")
    kept = fleet.state_dict("a")
    fleet(["a"] * 20, x)
    assert fleet.counters("a")["samples"] == 30 and fleet.counters("a")["updates"] == 1
    assert equal(fleet.state_dict("a")["model"], kept["model"])
    fleet.resume("a")
    fleet(["a"] * 20, x)
    assert fleet.counters("a")["updates"] == 3
    twin = fleet.fork("a")
    assert equal(twin.state_dict(), fleet.state_dict("a"))
    expected = twin(x)
    assert not equal(twin.state_dict(), fleet.state_dict("a"))
    torch.testing.assert_close(fleet(["a"] * 20, x), expected, atol=1e-4, rtol=1e-4)
    fleet.reset("a")
    assert equal(fleet.state_dict("a"), start)
    fleet.drop("a")
    assert list(fleet) == ["b"]
    known_only = (fleet.drop, fleet.reset, fleet.counters, fleet.state_dict, fleet.pause, fleet.fork)
    for unknown in (*known_only, fleet.roll_back, fleet.keep, fleet.durable, fleet.method):
        with pytest.raises(KeyError, match="there is no stream 'a' in this fleet"):
            unknown("a")


def test_roll_back_keep_and_what_is_durable(tmp_path):
    model = network()
    with Fleet(model, note, max_resident=1, spill=tmp_path / "spill") as fleet:
        fleet(["a"] * 20, torch.rand(20, 3, 8, 8))
        assert fleet.durable("a") == 16 and fleet.counters("a")["samples"] == 20
        fleet.keep("a")
        with after_a_kill(tmp_path / "spill", tmp_path / "copy") as left:
            assert fleet.durable("a") == 20 == left.get("a")["counters"]["samples"]
        fleet(["a", "b"], torch.rand(2, 3, 8, 8))  # there is room for one: a is spilled
        assert fleet.resident == ["b"] and fleet.durable("a") == 21 and fleet.durable("b") == 0
        assert len(fleet.method("a").inner.memory) == 8 and fleet.resident == ["a"]
        fleet.roll_back("a")
        assert fleet.counters("a")["samples"] == 21
        assert equal(fleet.state_dict("a")["model"], note(model).state_dict()["model"])
    in_memory = Fleet(model, note)
    in_memory(["a"], torch.rand(1, 3, 8, 8))
    in_memory.keep("a")
    assert in_memory.durable("a") is None


def test_a_fork_is_ready_to_be_saved_and_exported(tmp_path):
    from safetensors.torch import save_model

    fleet = Fleet(network(), note)
    fleet(["a"] * 20, torch.rand(20, 3, 8, 8))
    save_model(fleet.fork("a").model, tmp_path / "adapted.safetensors")


def test_warnings_come_once_per_fleet_and_name_the_stream():
    fleet = Fleet(network("bn"), tta.NOTE)
    x = torch.full((80, 3, 8, 8), torch.nan)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for name in ("a", "b", "c"):
            fleet([name] * 80, x)
    assert [str(warning.message).partition(":")[0] for warning in said] == ["stream 'a'"]


def test_the_ablation_is_warned_of_once():
    with pytest.warns(RuntimeWarning, match="PBRS-only ablation") as said:
        fleet = Fleet(network("bn"))
        fleet(["a", "b", "c"], torch.rand(3, 3, 8, 8))
    assert len(said) == 1


def test_a_stream_of_many_rows_takes_turns_with_the_others(monkeypatch):
    fleet, chunks = Fleet(network(), note), []
    receive = Fleet._receive

    def record(self, chunk, *arguments):
        chunks.append({stream.name: len(rows) for stream, rows in chunk})
        return receive(self, chunk, *arguments)

    monkeypatch.setattr(Fleet, "_receive", record)
    fleet(["busy"] * 500 + list(range(50)), torch.rand(550, 3, 8, 8))
    assert chunks[0] == {"busy": 8} | dict.fromkeys(range(50), 1)
    assert all(chunk == {"busy": 8} for chunk in chunks[1:-1]) and sum(c["busy"] for c in chunks) == 500
    assert max(sum(chunk.values()) for chunk in chunks) <= fleet_module.CHUNK


def test_many_streams_share_one_draft_and_have_no_module(monkeypatch):
    made, modules, make = [], [], IntervalMethod.make_draft
    monkeypatch.setattr(IntervalMethod, "make_draft", lambda self: made.append(1) or make(self))
    fleet = Fleet(network(), note)
    for ids, x in calls(15, 10):
        fleet(ids, x)
    for stream in fleet._streams.in_memory.values():
        modules += list(stream.inner._made)
    assert len(made) == 1 and modules == []


def tensors_of(thing, seen=None):
    """Every tensor that is reachable from an object, except through modules, classes and functions."""
    seen = {} if seen is None else seen
    waiting = [thing]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type | nn.Module) or callable(thing):
            continue
        seen[id(thing)] = thing
        waiting.extend(gc.get_referents(thing))
    return {id(t): t for t in seen.values() if isinstance(t, torch.Tensor)}


def test_a_stream_holds_few_objects_and_hardly_more_bytes_than_it_has_values():
    fleet = Fleet(network(), note)
    fleet([0, 1] * 40, torch.rand(80, 3, 8, 8))
    first, second = (stream.method for stream in fleet._streams.in_memory.values())
    shared = tensors_of(first.backbone) | tensors_of(fleet._streams.template)
    own = [t for key, t in tensors_of(second).items() if key not in shared and key not in tensors_of(first)]
    norm = sum(tensor.nbytes for tensor in second.tensors.values())
    moments = 2 * sum(t.nbytes for t in second.tensors.values() if isinstance(t, nn.Parameter))
    samples = 8 * 3 * 8 * 8 * 4
    assert sum(tensor.untyped_storage().nbytes() for tensor in own) <= norm + moments + samples + 64
    assert len(own) <= 6


def test_a_fleet_is_used_from_many_threads():
    model = network()
    fleet, singles = Fleet(model, note), {name: note(model) for name in range(4)}
    samples = {name: torch.rand(40, 3, 8, 8) * (1 + name / 4) for name in singles}

    def feed(name):
        for part in samples[name].split(3):
            fleet([name] * len(part), part)

    threads = [threading.Thread(target=feed, args=(name,)) for name in singles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, single in singles.items():
        single(samples[name])
        assert close(fleet.state_dict(name), single.state_dict())


def test_an_error_in_one_streams_update_leaves_the_others_whole(monkeypatch):
    model = network()
    fleet, separate = Fleet(model, note), Separate(model, note)
    learn = tta.NOTE.learn

    def fail(self, draft, x):
        if self.label == "stream 'sick'":
            raise MemoryError("no room")
        learn(self, draft, x)

    monkeypatch.setattr(tta.NOTE, "learn", fail)
    x = torch.rand(8, 3, 8, 8)
    fleet(["well"] * 8, x)
    with pytest.raises(MemoryError, match="no room"):
        fleet(["sick"] * 8, x)
    assert fleet.counters("sick")["rejected_updates"] == 1
    fleet(["well"] * 8, x)
    separate(["well"] * 8, x)
    separate(["well"] * 8, x)
    assert close(fleet.state_dict("well"), separate.methods["well"].state_dict())


def test_delayed_updates_have_one_thread_which_ends_with_the_fleet():
    before = set(threading.enumerate())

    def started(name):
        return [thread for thread in threading.enumerate() if thread not in before and name in thread.name]

    fleet, most = Fleet(network(), lambda model: note(model, delay=8)), 0
    for ids, x in calls(20, 10):
        fleet(ids, x)
        most = max(most, len(started("note-tta")))
    assert most == 1 and started("note-tta updates")
    del fleet
    gc.collect()
    for thread in started("note-tta"):
        thread.join(timeout=60)
    assert not started("note-tta")


@pytest.fixture
def gated(monkeypatch):
    """A fleet whose updates wait at a gate, the gate, and the streams whose updates have arrived there."""
    fleet = Fleet(network(), lambda model: note(model, delay=8))
    gate, order = threading.Event(), []
    learn = tta.NOTE.learn

    def recorded(self, draft, x):
        order.append(self.label)
        gate.wait(60)
        learn(self, draft, x)

    monkeypatch.setattr(tta.NOTE, "learn", recorded)
    return fleet, gate, order


@pytest.fixture
def held_up(gated, monkeypatch):
    """The same; the thread works on the update of stream a, and those of b, c and d are queued."""
    fleet, _, order = gated
    monkeypatch.setattr(fleet._workshop, "keep_up", lambda: None)
    for name in "abcd":
        fleet([name] * 8, torch.rand(8, 3, 8, 8))
        until(lambda: order)
    return gated


def until(condition):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


def test_an_update_that_is_waited_for_comes_first(held_up):
    fleet, gate, order = held_up
    timer = threading.Timer(1.0, gate.set)
    timer.start()
    fleet.state_dict("d")
    fleet.state_dict("c")
    assert order.index("stream 'd'") <= 1 and len(order) >= 3


def test_the_update_that_is_due_soonest_comes_first(held_up):
    fleet, gate, order = held_up
    fleet(["d"] * 4, torch.rand(4, 3, 8, 8))
    fleet(["c"] * 2, torch.rand(2, 3, 8, 8))
    thread = fleet._workshop._thread
    gate.set()
    thread.join(60)
    assert order == [f"stream '{name}'" for name in "adcb"]


def test_the_update_of_a_stream_with_many_samples_comes_before_those_that_have_more_time(gated, monkeypatch):
    fleet, gate, order = gated

    def send(name, count):
        fleet([name] * count, torch.rand(count, 3, 8, 8))

    gate.set()
    for name, count in (("slow", 8), ("fast", 407), ("first", 7), ("slow", 7)):
        send(name, count)
    for name in ("slow", "fast"):
        fleet.state_dict(name)
    gate.clear()
    monkeypatch.setattr(fleet._workshop, "keep_up", lambda: None)
    send("first", 1)
    until(lambda: order[-1] == "stream 'first'")
    for name, count in (("slow", 1), ("slow", 4), ("fast", 1)):
        send(name, count)
    thread = fleet._workshop._thread
    gate.set()
    thread.join(60)
    assert order[-3:] == [f"stream '{name}'" for name in ("first", "fast", "slow")]


def test_the_next_update_of_a_stream_that_was_waited_for_comes_before_those_that_have_more_time(
    held_up, monkeypatch
):
    fleet, gate, order = held_up
    take_effect = tta.NOTE._take_effect
    monkeypatch.setattr(tta.NOTE, "_take_effect", lambda self: (take_effect(self), time.sleep(0.5)))
    timer = threading.Timer(0.5, gate.set)
    timer.start()
    fleet(["d"] * 8, torch.rand(8, 3, 8, 8))
    until(lambda: len(order) == 5)
    assert order[:3] == [f"stream '{name}'" for name in "add"]


def test_updates_do_not_go_on_while_a_call_computes_its_answers(monkeypatch):
    monkeypatch.setattr(delay, "LONGEST", 60.0)
    fleet, in_a_call, seen = Fleet(network(), lambda model: note(model, delay=8)), threading.Event(), []
    learn, look = tta.NOTE.learn, Together.look
    monkeypatch.setattr(tta.NOTE, "learn", lambda self, draft, x: (in_a_call.wait(60), learn(self, draft, x)))
    monkeypatch.setattr(fleet._workshop, "keep_up", lambda: None)
    fleet(["a"] * 8, torch.rand(8, 3, 8, 8))
    pending = fleet.method("a").schedule.pending

    def slow(*arguments):
        in_a_call.set()
        until(lambda: pending._pieces_done)
        time.sleep(0.2)
        seen.append((pending._pieces_done, pending.done))
        return look(*arguments)

    monkeypatch.setattr(Together, "look", slow)
    fleet(["b"], torch.rand(1, 3, 8, 8))
    assert seen == [(1, False)]
    assert fleet.state_dict("a")["parts"]["schedule"]["pending"]["value"] is not None


def test_calls_wait_a_little_for_updates_that_fall_behind(monkeypatch):
    fleet = Fleet(network(), lambda model: note(model, delay=8))
    learn = tta.NOTE.learn
    monkeypatch.setattr(tta.NOTE, "learn", lambda self, draft, x: (time.sleep(0.05), learn(self, draft, x)))
    names = list(range(4))
    done = []
    for _ in range(16):
        fleet(names, torch.rand(4, 3, 8, 8))
        pending = [stream.inner.schedule.pending for stream in fleet._streams.in_memory.values()]
        done.append(sum(update is not None and update.done for update in pending))
    assert fleet.waits > 0
    assert {1, 2, 3} & set(done[8:]), "the updates were not spread over the calls"


def test_the_end_of_the_process_does_not_wait_for_what_is_left():
    code = (
        "import sys, torch; sys.path.insert(0, sys.argv[1]); torch.set_num_threads(1)\n"
        "from test_fleet import network, note; from note_tta.fleet import Fleet\n"
        "import note_tta as tta, time\n"
        "learn = tta.NOTE.learn\n"
        "tta.NOTE.learn = lambda self, draft, x: (time.sleep(1), learn(self, draft, x))\n"
        "fleet = Fleet(network(), lambda m: note(m, delay=8))\n"
        "fleet(list(range(100)) * 8, torch.rand(800, 3, 8, 8)); print('answered')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)], capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0 and done.stdout == "answered\n" and "Traceback" not in done.stderr


def test_it_says_what_it_is(tmp_path):
    with Fleet(network(), note, spill=tmp_path) as fleet:
        fleet(["a", "b"], torch.rand(2, 3, 8, 8))
        text = repr(fleet)
    assert text.startswith(
        f"Fleet of 2 streams, 2 in memory, spilling to {tmp_path}, each\n  NOTE(Sequential)"
    )
    assert Draft.__name__ not in text
