import copy
import json
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import note_tta as tta
from benchmarks import __main__ as script
from benchmarks import adaptation, latency, layers
from benchmarks.baselines import Arithmetic, PlainIABN2d, ResearchLoop, plain_iabn
from benchmarks.measure import Figure, quartiles, ratio_figure, take_turns, write_figures


def tiny():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


@pytest.mark.parametrize("training", [False, True])
def test_the_plain_baseline_is_iabn(training):
    x = torch.randn(4, 5, 6, 6) * 3 + 1
    plain, ours = PlainIABN2d(5).train(training), tta.IABN2d(5).train(training)
    torch.testing.assert_close(plain(x), ours(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(plain.running_var, ours.running_var)


def test_the_research_loop_does_what_note_does():
    model, x = tiny(), torch.rand(128, 3, 8, 8)
    loop = ResearchLoop(plain_iabn(copy.deepcopy(model)))
    loop(x, torch.zeros(128, dtype=torch.long))
    note = tta.NOTE(tta.convert_iabn(copy.deepcopy(model)))
    predictions = note(x).argmax(1).tolist()
    assert loop.predictions == predictions
    assert len(loop.scores) == 128
    torch.testing.assert_close(loop.layers[0].weight, note.model[1].weight, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(loop.layers[0].running_mean, note.model[1].running_mean, atol=1e-5, rtol=1e-4)


def test_the_arithmetic_computes_no_weight_gradient():
    arithmetic = Arithmetic(tiny())
    before = arithmetic.model[1].running_mean.clone()
    arithmetic(torch.rand(8, 3, 8, 8))
    assert all(p.grad is None for p in arithmetic.model.parameters())
    assert not torch.equal(before, arithmetic.model[1].running_mean)


def test_a_bar_may_be_a_ceiling_or_a_floor():
    assert Figure("a", 1.0, 1, 1, bar=1.1).kept and not Figure("a", 1.2, 1, 1, bar=1.1).kept
    assert Figure("a", 9.0, 1, 1, bar=8, at_most=False).kept
    assert not Figure("a", 7.0, 1, 1, bar=8, at_most=False).kept
    assert Figure("a", 7.0, 1, 1).kept


def test_ratios_of_several_cases_become_their_geometric_mean():
    figure = ratio_figure("a", [[2.0, 2.0, 2.0], [7.0, 8.0, 9.0]], bar=5)
    assert figure.value == pytest.approx(4.0) and figure.kept
    assert figure.low == pytest.approx((2 * 7.5) ** 0.5)
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)


def test_contenders_take_turns():
    calls = []
    seconds = take_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 4, least=0)
    assert "".join(calls[8:]) == "aabbbbaaaabbbbaa"  # one call that is not timed, and one that is
    assert [len(s) for s in seconds.values()] == [4, 4]


@pytest.mark.parametrize(("value", "code"), [(1.0, 0), (2.0, 1)])
def test_the_script_writes_its_figures_and_fails_on_a_missed_bar(monkeypatch, tmp_path, capsys, value, code):
    monkeypatch.setattr(
        layers, "figures", lambda repeats: [Figure("speed of light", value, 0.9, 2.1, bar=1.5)]
    )
    out = ["--out", str(tmp_path / "new" / "speed.json")]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *out, "--only", "layers"])
    assert script.main() == code
    output = capsys.readouterr().out
    assert "speed of light" in output and ("missed" in output) == bool(code)
    assert f'"kept": {"false" if code else "true"}' in (tmp_path / "new" / "speed.json").read_text()


def test_each_part_is_measured_in_a_process_of_its_own_and_one_that_fails_is_a_failure(monkeypatch, tmp_path):
    started, out = [], tmp_path / "speed.json"
    out.write_text("an earlier run")

    def run(command, check):
        started.append(command[1:])
        return subprocess.CompletedProcess(command, -9 if command[-1] == "resnet20" else 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--out", str(out)])
    assert script.main() == 1
    assert ["-m", "benchmarks", "--out", str(out), "--only", "layers"] in started
    assert [command[-1] for command in started] == ["layers", *adaptation.parts(1, 64)]
    assert not out.exists()


class Busy:
    """A method whose update goes on for a while after its calls."""

    def __init__(self):
        self.shapes, self.asked = [], 0

    def __call__(self, x):
        self.shapes.append(tuple(x.shape))
        self.asked = 0

    @property
    def busy(self):
        self.asked += 1
        return self.asked < 3


def test_every_call_but_the_warm_ones_is_timed_and_no_update_runs_into_another_turn(monkeypatch):
    monkeypatch.setattr(latency, "WARM", 3)
    monkeypatch.setattr(latency, "SETTLE", 1)
    methods = [Busy(), Busy()]
    contenders = [latency.Contender(method) for method in methods]
    assert [method.asked for method in methods] == [3, 3]  # until it was no longer busy
    latency._take_turns(contenders, 4 * latency.ROUNDS - 1)
    for method, contender in zip(methods, contenders, strict=True):
        assert method.shapes == [(1, 3, 32, 32)] * (3 + latency.ROUNDS * (1 + 4)) and not method.busy
        assert [len(times) for times in contender.rounds] == [4] * latency.ROUNDS
    assert latency._percentile([3.0, 1.0, 2.0], 50) == 2.0 and latency._percentile([3.0, 1.0, 2.0], 99) == 3.0


def test_the_latency_s_figures_are_of_all_turns():
    source, slow = (object.__new__(latency.Contender) for _ in range(2))
    source.rounds = [[1.0] * 3, [2.0] * 4]
    slow.rounds = [[4.0] * 200, [1.0] * 100 + [6.0] * 99 + [9.0]]
    figure = latency._tail("slow", slow, source, 2.5, {"source": source})
    assert figure.value == 6.0 / 2.0 and not figure.kept
    assert (figure.low, figure.high) == (3.25, 3.75)  # between 4 / 1 and 6 / 2
    assert figure.detail["source"] == [1000.0] * 3 + [2000.0] * 4


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux binds threads to cores")
def test_one_core_is_one_core_and_all_come_back():
    before, threads = os.sched_getaffinity(0), torch.get_num_threads()
    with latency._one_core():
        assert len(os.sched_getaffinity(0)) == 1 and torch.get_num_threads() == 1
    assert os.sched_getaffinity(0) == before and torch.get_num_threads() == threads


def test_figures_are_written_with_their_commit_and_others_are_kept_where_wanted(tmp_path):
    path = tmp_path / "figures.json"
    first = [Figure("old", 1.0, 1.0, 1.0), Figure("again", 2.0, 2.0, 2.0, bar=1.0)]
    write_figures(path, first, repeats=3)
    content = json.loads(path.read_text())
    commit = content["provenance"]["commit"]
    assert content["repeats"] == 3 and [figure["kept"] for figure in content["figures"]] == [True, False]
    path.write_text(path.read_text().replace(f'"{commit}"', '"before"'))
    write_figures(path, [Figure("again", 0.5, 0.5, 0.5, bar=1.0)], keep=True)
    figures = {figure["name"]: figure for figure in json.loads(path.read_text())["figures"]}
    assert figures["old"]["commit"] == "before"
    assert figures["again"]["commit"] == commit and figures["again"]["kept"]
    write_figures(path, [Figure("again", 0.5, 0.5, 0.5)])
    assert len(json.loads(path.read_text())["figures"]) == 1
