import json
from functools import partial

import numpy as np
import pytest

from note_tta.checkpoint import save_checkpoint
from note_tta.experiments.store import Store
from note_tta.models import build_model

MODEL = """
from torch import nn

def make_model():
    pooled = [nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.AdaptiveAvgPool1d(1), nn.Flatten()]
    return nn.Sequential(*pooled, nn.Linear(4, 3))
"""


@pytest.fixture
def call(program):
    """Run `note-tta run`; its exit code."""
    return partial(program, "run")


@pytest.fixture
def own(tmp_path):
    """A model and data of the user's own."""
    (tmp_path / "my_models.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", x=rng.normal(size=(80, 2, 16)).astype(np.float32), y=np.arange(80) % 3)
    return tmp_path


@pytest.fixture
def digits(tmp_path):
    """Source models for the embedded digits."""
    for norm in ("bn", "iabn"):
        path = tmp_path / "data" / "models" / f"digits-digits_cnn-{norm}-seed0.safetensors"
        save_checkpoint(path, build_model("digits_cnn", 10, norm=norm, in_channels=1), {"clean_error": 90.0})


def stored(folder="results"):
    return [json.loads(line) for path in Store(folder).files() for line in path.read_text().splitlines()]


def test_one_method_over_named_domains(call, digits, capsys):
    code = call("--dataset", "digits", "--domains", "style", "contrast", "--samples", 100, "--method", "tent")
    assert code == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out] == ["domain", "style", "contrast", "mean", "Results"]
    cells = [data["cell"] for data in stored()]
    assert {(c["order"], c["delta"], c["samples"], "norm" in c) for c in cells} == {
        ("dirichlet", 0.1, 100, False)
    }


def test_done_cells_are_not_run_again(call, digits, capsys):
    command = ("--dataset", "digits", "--domains", "style", "--samples", 64, "--stream", "iid")
    assert call(*command) == 0
    first = stored()
    assert call(*command) == 0
    assert stored() == first
    assert "1 cells, 1 done before, 0 to run" in capsys.readouterr().err
    assert first[0]["cell"]["norm"] == "iabn"


def test_a_protocol_is_one_run_with_an_error_for_each_domain(call, digits, capsys):
    assert call("--dataset", "digits", "--protocol", "ptta", "--samples", 64) == 0
    (record,) = Store("results")
    assert (record.job.stream.order, record.result["samples"]) == ("ptta", 64 * 3)
    assert list(record.result["visits"]) == record.job.stream.domain.split("+")
    printed = capsys.readouterr().out
    assert all(f"\n{name} " in printed for name in ("all", *record.result["visits"]))


def test_options_of_method_and_norm_are_told_apart(call, digits):
    options = ("--set", "weight_decay=5e-4", "correction=1", "--set", "memory=reservoir")
    assert call("--dataset", "digits", "--domains", "style", "--samples", 64, *options) == 0
    (data,) = stored()
    assert data["cell"]["method_options"] == {"memory": "reservoir", "weight_decay": 0.0005}
    assert data["cell"]["norm_options"] == {"correction": 1}


def test_an_own_model_is_converted_for_note_and_called_by_the_layers_it_has(call, own, capsys):
    arguments = ("--model", "my_models:make_model", "--data", "mine.npz")
    for method in ("note", "tent"):
        assert call(*arguments, "--method", method) == 0
    assert {(data["cell"]["method"], data["cell"].get("norm")) for data in stored()} == {
        ("note", "iabn*"),
        ("tent", None),
    }
    assert call(*arguments, "--norm", "iabn") != 0
    assert "my_models:make_model has no IABN layers: --norm 'iabn*' converts" in capsys.readouterr().err


@pytest.mark.parametrize("norm", ["bn", "iabn*"])
def test_own_model_and_data(call, own, capsys, norm):
    for _ in range(2):
        assert call("--model", "my_models:make_model", "--data", "mine.npz", "--norm", norm) == 0
    assert "1 cells, 0 done before, 1 to run" in capsys.readouterr().err
    (record,) = Store("results")
    assert record.job.stream.order == "chronological"
    assert record.result["samples"] == 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name the data: --dataset for one of the library's datasets, or --data for your own"),
        (("--dataset", "digits", "--method", "magic"), "unknown method 'magic'; known are source, bn_stats"),
        (("--dataset", "hapt"), "HAPT recordings not found; looked in"),
        (("--dataset", "nothing"), "nothing"),
        (
            ("--dataset", "digits", "--domains", "rain"),
            "unknown domain 'rain' of digits; known are train, test, contrast",
        ),
        (("--dataset", "digits"), "no source model digits-digits_cnn-iabn-seed0.safetensors in"),
        (("--dataset", "digits", "--stream", "random"), "unknown stream 'random'"),
        (("--dataset", "digits", "--stream", "ptta"), "unknown stream 'ptta'; known are dirichlet"),
        (("--dataset", "digits", "--protocol", "iid"), "unknown protocol 'iid'; known are continual, ptta"),
        (
            ("--dataset", "digits", "--protocol", "ptta", "--stream", "iid"),
            "a protocol has its own order: leave out --stream",
        ),
        (("--dataset", "digits", "--norm", "xn"), "unknown norm 'xn'"),
        (("--dataset", "digits", "--set", "lr"), "--set takes name=value, got 'lr'"),
        (("--dataset", "digits", "--workers", "0"), "workers must be at least 1, got 0"),
        (("--data", "mine.npz"), "--data needs --model module:function"),
        (("--data", "none.npz", "--model", "a:b"), "no such data: none.npz; --data is a folder"),
        (("--dataset", "cifar"), "unknown dataset 'cifar'; known are cifar10"),
        (("--data", "mine.npz", "--model", "a:b"), "cannot import a for the model a:b"),
        (("--data", "mine.npz", "--model", "resnet20", "--checkpoint", "w.pt"), "no checkpoint w.pt"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(call, own, capsys, arguments, message):
    assert call(*arguments) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert message in lines[0]


def test_a_checkpoint_of_another_class_count_is_one_line_and_exit_code_2(call, tmp_path, capsys):
    path = tmp_path / "seven.safetensors"
    save_checkpoint(path, build_model("digits_cnn", 7, norm="iabn", in_channels=1), {})
    assert call("--dataset", "digits", "--domains", "style", "--checkpoint", path, "--samples", 10) == 2
    assert "num_classes 7, but 10 are needed" in capsys.readouterr().err
    assert call("--dataset", "digits", "--domains", "style", "--model", "resnet20", "--checkpoint", path) == 2
    assert "error: 1 of 1 cells failed" in capsys.readouterr().err
    assert stored() == []


def test_a_network_without_batch_norm_has_its_own_norm_layers(call, tmp_path):
    path = tmp_path / "data" / "models" / "digits-vit_tiny-w8-ln-seed0.safetensors"
    save_checkpoint(path, build_model("vit_tiny", 10, width=8, in_channels=1), {"clean_error": 90.0})
    few = ("--domains", "style", "--samples", 70)
    assert call("--dataset", "digits", "--model", "vit_tiny", "--width", 8, "--method", "note", *few) == 0
    (data,) = stored()
    assert data["cell"]["norm"] == "ln"
    assert data["result"]["counters"]["updates"] == 1
