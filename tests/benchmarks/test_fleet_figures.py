"""The fleet's benchmark: mixes, merging, and that a fleet which differs is noticed."""

import math
from collections import Counter

import pytest
import torch
from torch import nn

import note_tta as tta
from benchmarks import fleet, fleet_equality
from note_tta.models import build_model


def tiny():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3, stride=4), tta.IABN2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4, 10)).eval()


def sources(streams):
    samples = [torch.rand(200, 3, 32, 32) + stream for stream in range(streams)]
    return [lambda numbers, own=own: own[numbers] for own in samples]


@pytest.mark.parametrize("mix", [*fleet.MIXES, "half"])
def test_mixes_have_the_streams_that_they_say(mix):
    calls = list(fleet.ids_of(mix, 100, 50))
    assert all(len(ids) == fleet.TICK and set(ids) <= set(range(100)) for ids in calls)
    counts = Counter(name for ids in calls for name in ids)
    share = counts[0] / counts.total()
    assert share == pytest.approx({"identical": 1.0, "half": 0.505, "skewed": 0.193}.get(mix, 0.01), abs=0.02)
    assert len(counts) == (1 if mix == "identical" else 100)


def test_a_fleet_is_as_separate_methods_and_one_that_is_not_is_noticed(monkeypatch):
    assert all(figure.kept for figure in fleet_equality.equality(tiny(), sources(3), 2))
    answer = tta.Fleet.__call__
    monkeypatch.setattr(tta.Fleet, "__call__", lambda self, ids, x: answer(self, ids[::-1], x))
    assert not all(figure.kept for figure in fleet_equality.equality(tiny(), sources(3), 2))


def test_a_state_that_differs_in_what_is_no_float_is_infinitely_apart():
    state = tta.NOTE(tiny()).state_dict()
    assert fleet_equality._apart(state, state) == 0
    assert fleet_equality._apart(state, state | {"counters": state["counters"] | {"samples": 1}}) == math.inf


def test_every_size_is_measured_in_every_mix(monkeypatch):
    model = tiny()
    note = tta.NOTE(model)
    note(fleet._images())
    monkeypatch.setattr(fleet, "_resnet", lambda name: (model, note.state_dict()))
    monkeypatch.setattr(fleet, "SIZES", (1, 3, 120))
    monkeypatch.setattr(fleet, "RESIDENT", 100)
    figures = list(fleet._sizes(2, None))
    assert [figure.detail["streams"] for figure in figures] == [1, 3, 120]
    for figure in figures:
        mixes = figure.detail["mixes"]
        contenders = {"fleet"} if figure.detail["streams"] > 100 else {"fleet", "separate", "copies"}
        assert {mix: {*of} for mix, of in mixes.items()} == dict.fromkeys(fleet.MIXES, contenders)
        assert figure.value == min(of["fleet"]["samples/s ÷ one NOTE's"] for of in mixes.values()) > 0


def test_a_folder_that_holds_the_streams_is_used_again(monkeypatch, tmp_path):
    model = tiny()
    note = tta.NOTE(model)
    note(fleet._images())
    monkeypatch.setattr(fleet, "RESIDENT", 10)
    for samples in (64, 65):
        with fleet._filled(model, note.state_dict(), 30, tmp_path) as filled:
            assert len(filled) == 30 and filled.resident == list(reversed(range(10)))
            assert filled.counters(29)["samples"] == samples
            filled([29], fleet._images()[:1])


@pytest.mark.slow
@pytest.mark.real_data
def test_fifty_real_streams_are_as_separate_methods(data_root):
    weights = data_root / "models" / "cifar10-resnet20-iabn-seed0.safetensors"
    if not weights.exists():
        pytest.skip(f"{weights} is not there")
    model = tta.load_weights(tta.convert_iabn(build_model("resnet20", 10)), weights).eval()
    for figure in fleet_equality.equality(model, fleet_equality.cifar10_streams(50), 2):
        assert figure.kept, figure
