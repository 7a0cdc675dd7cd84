"""`note-tta train` on the embedded digits."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from note_tta.checkpoint import load_checkpoint, read_card, save_checkpoint
from note_tta.cli import app
from note_tta.data import DATASETS
from note_tta.files import file_digest
from note_tta.models import build_model

ROOT = Path(__file__).parents[2]
SMALL = ["train", "--dataset", "digits", "--width", "2", "--samples", "80", "--epochs", "1"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(autouse=True)
def one_thread():
    """The command may set the number of threads; give it back."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_default_place_and_card(tmp_path):
    result = run(*SMALL, "--norm", "iabn", "--seed", 3, "--data-root", tmp_path, "--alpha", 2, "--threads", 1)
    assert result.exit_code == 0, result.output
    path = tmp_path / "models" / "digits-digits_cnn-w2-iabn-seed3.safetensors"
    assert str(path) in result.output
    assert "clean error" in result.output
    model, card = load_checkpoint(path)
    assert (card["dataset"], card["model"], card["norm"], card["seed"]) == ("digits", "digits_cnn", "iabn", 3)
    assert card["architecture"]["alpha"] == 2
    assert card["recipe"]["epochs"] == 1
    assert card["recipe"]["lr"] == 0.1
    assert card["train_samples"] == card["test_samples"] == 80
    assert model.fc.in_features == 8


def test_options_reach_the_recipe(tmp_path):
    options = ["--lr", 0.02, "--batch-size", 16, "--optimizer", "adam", "--weight-decay", 0.1]
    out = tmp_path / "a.safetensors"
    result = run(
        *SMALL, *options, "--schedule", "constant", "--mean", "0.5", "--std", "0.25", "--out", out, "-v"
    )
    assert result.exit_code == 0, result.output
    assert "epoch 1/1: loss" in result.stderr
    card = json.loads((tmp_path / "a.json").read_text())
    recipe = card["recipe"]
    assert (recipe["lr"], recipe["batch_size"], recipe["optimizer"]) == (0.02, 16, "adam")
    assert (recipe["weight_decay"], recipe["schedule"]) == (0.1, "constant")
    assert (card["architecture"]["mean"], card["architecture"]["std"]) == ([0.5], [0.25])


def test_fine_tune_batchnorm_weights_with_iabn(tmp_path):
    torch.save(build_model("digits_cnn", 10, width=2).state_dict(), tmp_path / "w.pt")
    out = tmp_path / "a.safetensors"
    assert run(*SMALL, "--norm", "iabn", "--init", tmp_path / "w.pt", "--out", out).exit_code == 0
    card = json.loads((tmp_path / "a.json").read_text())
    assert card["init"]["file"] == "w.pt"
    assert len(card["init"]["sha256"]) == 64


def test_width_and_normalisation_follow_a_checkpoint_of_ours(tmp_path):
    plain, tuned = tmp_path / "bn.safetensors", tmp_path / "iabn.safetensors"
    assert run(*SMALL, "--mean", "0.4", "--std", "0.2", "--out", plain).exit_code == 0
    without_width = [option for option in SMALL if option not in ("--width", "2")]
    assert run(*without_width, "--norm", "iabn", "--init", plain, "--out", tuned).exit_code == 0
    card = load_checkpoint(tuned)[1]["architecture"]
    assert (card["width"], card["mean"], card["std"], card["norm"]) == (2, [0.4], [0.2], "iabn")
    other = run(*SMALL, "--init", plain, "--mean", "0.1", "--std", "1", "--out", tmp_path / "c.safetensors")
    assert other.exit_code == 0
    assert load_checkpoint(tmp_path / "c.safetensors")[1]["architecture"]["mean"] == [0.1]


def test_a_teacher_is_named_on_the_card_and_must_know_the_same_classes(tmp_path):
    plain, tuned = tmp_path / "bn.safetensors", tmp_path / "iabn.safetensors"
    assert run(*SMALL, "--out", plain).exit_code == 0
    assert run(*SMALL, "--norm", "iabn", "--teacher", plain, "--out", tuned).exit_code == 0
    assert read_card(tuned)["teacher"] == {"file": "bn.safetensors", "sha256": file_digest(plain)}
    with pytest.raises(ValueError, match=r"belongs to a run with facts\.teacher"):
        run(*SMALL, "--norm", "iabn", "--out", tuned)
    save_checkpoint(plain, build_model("digits_cnn", 5, width=2), {})
    with pytest.raises(ValueError, match="holds a network of num_classes 5, but 10 are needed"):
        run(*SMALL, "--teacher", plain, "--out", tmp_path / "c.safetensors")


def test_data_options_are_in_the_name_and_on_the_card(tmp_path):
    assert run(*SMALL, "--data-root", tmp_path).exit_code == 0
    assert run(*SMALL, "--data-option", "seed=1", "--data-root", tmp_path).exit_code == 0
    usual, other = (
        tmp_path / "models" / f"digits-{name}digits_cnn-w2-bn-seed0.safetensors" for name in ("", "seed1-")
    )
    assert "data_options" not in read_card(usual)
    assert read_card(other)["data_options"] == {"seed": 1}
    assert read_card(other)["run"]["data"] != read_card(usual)["run"]["data"]


def test_epochs_0_wraps_weights(tmp_path):
    weights = build_model("digits_cnn", 10, width=2).state_dict()
    torch.save(weights, tmp_path / "w.pt")
    out = tmp_path / "a.safetensors"
    assert run(*SMALL, "--epochs", 0, "--init", tmp_path / "w.pt", "--out", out).exit_code == 0
    loaded = load_checkpoint(out)[0].state_dict()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


def test_new_head(tmp_path):
    torch.save(build_model("digits_cnn", 5, width=2).state_dict(), tmp_path / "w.pt")
    out = tmp_path / "a.safetensors"
    with pytest.raises(ValueError, match="has 5 classes, the model 10"):
        run(*SMALL, "--init", tmp_path / "w.pt", "--out", out)
    assert run(*SMALL, "--init", tmp_path / "w.pt", "--new-head", "--out", out).exit_code == 0


def test_a_recipe_that_starts_from_imagenet_weights_asks_for_them(tmp_path, monkeypatch):
    digits = DATASETS["digits"]
    pretrained = replace(digits, recipe=replace(digits.recipe, pretrained=True))
    monkeypatch.setitem(DATASETS, "digits", pretrained)
    out = tmp_path / "a.safetensors"
    with pytest.raises(
        ValueError, match="starts from ImageNet weights: give them with --init, or use --from-scr"
    ):
        run(*SMALL, "--out", out)
    assert run(*SMALL, "--out", out, "--from-scratch").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "cats"], "unknown dataset 'cats'"),
        (["--model", "vgg"], "unknown model 'vgg'"),
        (["--norm", "ln"], "norm of digits_cnn must be one of bn, iabn, in, gn"),
        (["--epochs", "0"], "--epochs 0 keeps the initial weights as they are: give them with --init"),
        (["--epochs", "0", "--teacher", "t.safetensors"], "so --teacher has no effect: leave it out"),
        (["--lr", "-1"], "lr must be positive"),
        (["--samples", "0"], "--samples must be at least 1, got 0"),
        (["--threads", "0"], "threads must be at least 1, got 0"),
        (["--mean", "a,b", "--std", "1"], "--mean takes numbers separated by commas, got 'a,b'"),
        (["--device", "toaster"], "cannot compute on device 'toaster'"),
    ],
)
def test_bad_options(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        run(*SMALL, "--out", tmp_path / "a.safetensors", *options)
    assert list(tmp_path.iterdir()) == []


def test_an_option_that_does_not_change_the_training_data_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "digits", replace(DATASETS["digits"], source_options=()))
    with pytest.raises(ValueError, match="seed does not change the training data of digits"):
        run(*SMALL, "--data-option", "seed=1", "--out", tmp_path / "a.safetensors")


def test_mistakes_end_in_one_line_and_exit_code_2(tmp_path):
    command = [sys.executable, "-c", "from note_tta.cli import main; main()", *SMALL, "--init", "nowhere.pt"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2
    assert done.stderr == "error: no such file: nowhere.pt\n"


def test_help_does_not_import_torch():
    code = (
        "import sys; from typer.testing import CliRunner; from note_tta.cli import app; "
        "r = CliRunner().invoke(app, ['train', '--help']); "
        "assert r.exit_code == 0 and '--norm' in r.output, r.output; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT)})


OWN = """
from torch import nn

def make_model(classes=10):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, classes),
    )

def too_many():
    return make_model(11)

def for_colours():
    return nn.Conv2d(3, 4, 3)
"""


def test_a_network_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_nets.py").write_text(OWN)
    out = tmp_path / "own.safetensors"
    few = ["train", "--dataset", "digits", "--epochs", "1", "--samples", "64"]
    result = run(*few, "--model", "my_nets:make_model", "--norm", "iabn", "--out", out)
    assert result.exit_code == 0, result.output
    card = read_card(out)
    assert (card["model"], card["norm"]) == ("my_nets:make_model", "iabn")
    with pytest.raises(ValueError, match="your own network my_nets:make_model: make the network and load"):
        load_checkpoint(out)
    import my_nets

    from note_tta import convert_iabn, load_weights

    load_weights(convert_iabn(my_nets.make_model()), out)
    for name, message in (
        ("too_many", r"too_many has 11 classes, but digits has 10"),
        ("for_colours", r"does not accept samples of shape \(1, 32, 32\)"),
        ("nothing", "my_nets has no nothing to make a model with"),
    ):
        with pytest.raises(ValueError, match=message):
            run(*few, "--model", f"my_nets:{name}", "--out", out)
    with pytest.raises(ValueError, match="--width is for the networks of this package"):
        run(*few, "--model", "my_nets:make_model", "--width", "3", "--out", out)
    with pytest.raises(ValueError, match="for your own network --norm must be iabn or left out, got gn"):
        run(*few, "--model", "my_nets:make_model", "--norm", "gn", "--out", out)
