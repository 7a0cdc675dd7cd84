import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from note_tta.checkpoint import save_checkpoint
from note_tta.cli._several_values import spread
from note_tta.experiments.catalog import EXPERIMENTS
from note_tta.experiments.store import Store
from note_tta.models import build_model

PROGRAM = [sys.executable, "-c", "from note_tta.cli import main; main()", "reproduce"]
TIMES = ("seconds", "samples_per_second", "latency_ms")


@pytest.fixture
def hapt(tmp_path):
    """HAPT in its published form with four users, and source models for it."""
    folder = tmp_path / "HAPT" / "RawData"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = []
    for experiment, user in enumerate((1, 2, 22, 23), start=1):
        signal_rows = rng.normal(size=(2400, 3)) + np.repeat(np.arange(6), 400)[:, None]
        for sensor in ("acc", "gyro"):
            np.savetxt(folder / f"{sensor}_exp{experiment:02}_user{user:02}.txt", signal_rows, fmt="%.4f")
        rows += [[experiment, user, k + 1, 400 * k + 1, 400 * k + 400] for k in range(6)]
    np.savetxt(folder / "labels.txt", rows, fmt="%d")
    for norm in ("bn", "iabn"):
        path = tmp_path / "models" / f"hapt-sensor_cnn4-{norm}-seed0.safetensors"
        save_checkpoint(path, build_model("sensor_cnn4", 12, norm=norm, in_channels=6), {"clean_error": 50.0})
    return tmp_path


@pytest.fixture
def call(program):
    """Run `note-tta reproduce`; its exit code."""
    return partial(program, "reproduce")


def test_the_list_has_one_line_an_experiment_with_its_datasets(call, capsys):
    assert call("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXPERIMENTS)
    for line, experiment in zip(lines, EXPERIMENTS.values(), strict=True):
        assert tuple(line.split()[1 : 1 + len(experiment.datasets)]) == experiment.datasets


def test_the_list_needs_no_torch():
    code = (
        "import sys; sys.argv = ['note-tta', 'reproduce', '--list']\n"
        "from note_tta.cli import main\n"
        "try: main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_table_is_run_and_printed_beside_the_papers(call, hapt, capsys):
    command = (
        "table-hapt",
        "--data-root",
        hapt,
        "--seeds",
        "0",
        "1",
        "--samples",
        40,
        "--rows",
        "source",
        "note",
    )
    assert call(*command, "--results", "out") == 0
    captured = capsys.readouterr()
    assert "8 cells, 0 done before, 8 to run" in captured.err
    assert "first 40 samples of each domain, 2 of 9 domains (user22, user23), seeds 0, 1" in captured.out
    assert (
        "| Method | user22<br>Real stream | user23<br>Real stream | Avg<br>Real stream<br>runs of "
        in captured.out
    )
    assert call(*command, "--results", "out") == 0
    assert "8 cells, 8 done before, 0 to run" in capsys.readouterr().err


def test_domains_make_it_smaller_and_the_title_says_so(call, hapt, capsys):
    assert (
        call(
            "table-hapt", "--domains", "user23", "--data-root", hapt, "--seeds", 0, "--rows", "source", "lame"
        )
        == 0
    )
    assert "1 of 9 domains (user23), seed 0" in capsys.readouterr().out


def test_several_experiments_share_their_cells(call, hapt, capsys):
    rows = (
        "--rows",
        "source",
        "note",
        "--data-root",
        hapt,
        "--dataset",
        "hapt",
        "--seeds",
        "0",
        "--samples",
        "40",
    )
    assert call("table-hapt", "figure-realtime", *rows) == 0
    assert "4 cells, 0 done before" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table9"], "unknown experiment 'table9'; known are table1, table2"),
        (
            ["table1", "--dataset", "hapt"],
            "unknown dataset 'hapt' of table1; known are cifar10, cifar100, imagenet",
        ),
        (["table-hapt", "--rows", "pbrs"], "unknown row 'pbrs' of table-hapt"),
        (
            ["table-hapt", "--domains", "user99"],
            "unknown domain 'user99' of hapt; known are user22, user23",
        ),
        (["table2"], "not found; looked in"),
        (["table-hapt", "--models", "nowhere"], "no source model hapt-sensor_cnn4-bn-seed0.safetensors in"),
        (["table-hapt", "--samples", "0"], "samples must be at least 1, got 0"),
        (
            ["table-hapt", "--data-option", "rotation=w3"],
            'rotation must be an axis and degrees such as "x90"',
        ),
        (["table-hapt", "--device", "abacus"], "cannot compute on device 'abacus'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(call, hapt, capsys, arguments, message):
    assert call(*arguments, "--data-root", hapt) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error


def test_a_results_folder_of_another_version_is_one_line_and_exit_code_2(call, hapt, capsys):
    command = ("table-hapt", "--data-root", hapt, "--seeds", 0, "--samples", 40, "--rows", "source")
    assert call(*command) == 0
    for path in Store("results").files():
        path.write_text(path.read_text().replace('"schema":2', '"schema":3'))
    capsys.readouterr()
    assert call(*command) == 2
    assert "has result schema 3, but this version of note-tta reads 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "parsed"),
    [
        ("table1 --seeds 0 1 2", "table1 --seeds 0 --seeds 1 --seeds 2"),
        ("--seeds 0 1 table1", "--seeds 0 --seeds 1 table1"),
        ("--dataset a b table1 --ray", "--dataset a --dataset b table1 --ray local"),
        ("--ray auto table1", "--ray auto table1"),
        ("--ray table1", "--ray local table1"),
        ("table1 --seeds --list", "table1 --seeds --list"),
        ("table1 --seeds x 1", "table1 --seeds x --seeds 1"),
    ],
)
def test_several_values_after_one_name(typed, parsed):
    assert spread(typed.split(), ["--seeds", "--dataset"], ["table1"]) == parsed.split()


def results_of(folder):
    """What was computed, without what differs from run to run."""
    return {
        record.job: {name: value for name, value in record.result.items() if name not in TIMES}
        for record in Store(folder)
    }


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_as_if_nothing_had_happened(hapt, tmp_path):
    command = [*PROGRAM, "table-hapt", "--data-root", str(hapt), "--seeds", "0", "1", "--workers", "2"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = subprocess.Popen([*command, "--results", str(killed)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while len(Store(killed)) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = len(Store(killed))
    assert 3 <= before < 32
    again = subprocess.run([*command, "--results", str(killed)], capture_output=True, text=True, timeout=280)
    assert again.returncode == 0, again.stderr
    assert f"32 cells, {before} done before, {32 - before} to run" in again.stderr
    undisturbed = subprocess.run([*command, "--results", str(whole)], capture_output=True, timeout=280)
    assert undisturbed.returncode == 0
    assert results_of(killed) == results_of(whole)
    assert len(results_of(whole)) == 32
    assert {path.name for path in killed.iterdir()} == {path.name for path in whole.iterdir()}


@pytest.mark.slow
def test_a_stop_by_hand_is_clean(hapt, tmp_path):
    command = [
        *PROGRAM,
        "table-hapt",
        "--data-root",
        str(hapt),
        "--seeds",
        *map(str, range(20)),  # enough that a busy machine cannot finish them before the stop
        "--results",
        str(tmp_path / "r"),
    ]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in a shell's background
    )
    deadline = time.monotonic() + 240
    while len(Store(tmp_path / "r")) < 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "cells are done; give the same command to continue" in error
    assert "Traceback" not in error


@pytest.mark.slow
@pytest.mark.ray
def test_ray_runs_the_same_cells(hapt, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    common = [
        "table-hapt",
        "--data-root",
        str(hapt),
        "--seeds",
        "0",
        "--rows",
        "source",
        "note",
        "--workers",
        "2",
    ]
    for folder, extra in (("pool", []), ("ray", ["--ray"])):
        command = [*PROGRAM, *common, "--results", str(tmp_path / folder), *extra]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr
    assert results_of(tmp_path / "pool") == results_of(tmp_path / "ray")
