"""Training learns, resumes exactly, and says what is wrong."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import pytest
import torch

from note_tta.checkpoint import load_checkpoint, load_weights, weights_fingerprint
from note_tta.models import build_model
from note_tta.train import Diverged, Recipe, loop, train

HERE = Path(__file__).parent


class Squares:
    """Made-up data with the interface of a domain: bright squares whose place is their class."""

    def __init__(self, count=96, classes=4, seed=0, scale=1.0):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(classes, (count,), generator=generator)
        self._images = 0.3 * torch.rand(count, 1, 8, 8, generator=generator)
        for image, label in zip(self._images, self.labels.tolist(), strict=True):
            row, column = divmod(label, 2)
            image[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 0.7
        self._images *= scale
        self.fingerprint = f"squares {count} {classes} {seed} {scale}"

    def __len__(self):
        return len(self.labels)

    def inputs(self, indices):
        return self._images[indices]


RECIPE = Recipe(epochs=3, lr=0.05, batch_size=16, crop_padding=1, flip=False)


def network(norm="bn", **arguments):
    torch.manual_seed(0)
    return build_model("digits_cnn", 4, width=4, norm=norm, **arguments)


def weights(path):
    return load_checkpoint(path)[0].state_dict()


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("norm", ["bn", "iabn"])
def test_it_learns_and_the_card_tells_how(tmp_path, norm):
    out = tmp_path / "models" / "m.safetensors"
    lines = []
    card = train(
        network(norm),
        Squares(),
        Recipe(epochs=6, lr=0.1, batch_size=16),
        out=out,
        test=Squares(seed=1),
        facts={"dataset": "squares"},
        on_epoch=lambda done, measured: lines.append((done, measured["error"])),
    )
    assert card["clean_error"] < 10
    assert card["history"][-1]["loss"] < card["history"][0]["loss"]
    assert [done for done, _ in lines] == [1, 2, 3, 4, 5, 6]
    assert card["dataset"] == "squares"
    assert card["recipe"]["lr"] == 0.1
    assert card["architecture"]["norm"] == norm
    assert (card["train_samples"], card["test_samples"]) == (96, 96)
    assert card["provenance"]["version"]
    assert json.loads(out.with_suffix(".json").read_text()) == card
    model, _ = load_checkpoint(out)
    assert loop.clean_error(model, Squares(seed=1)) == card["clean_error"]
    assert sorted(p.name for p in out.parent.iterdir()) == ["m.json", "m.safetensors"]


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.rand(7)  # the caller's own random numbers must not matter
        train(network(), Squares(), RECIPE, out=tmp_path / f"{name}.safetensors", seed=seed)
    a, b, c = (weights(tmp_path / f"{name}.safetensors") for name in "abc")
    assert same(a, b)
    assert not same(a, c)


def test_the_card_names_the_code_that_was_loaded_not_what_came_while_it_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "provenance", lambda: {"commit": "before"})

    def pull(done, measured):
        monkeypatch.setattr(loop, "provenance", lambda: {"commit": "after"})

    card = train(network(), Squares(), RECIPE, out=tmp_path / "a.safetensors", on_epoch=pull)
    assert card["provenance"] == {"commit": "before"}


def test_the_callers_random_state_is_left_alone(tmp_path):
    model = network()
    before = torch.get_rng_state()
    train(model, Squares(), RECIPE, out=tmp_path / "a.safetensors")
    assert torch.equal(torch.get_rng_state(), before)


class Stop(Exception):
    pass


class OneFurther(torch.nn.Module):
    """A teacher that always names the class after the right one."""

    def forward(self, x):
        quadrants = torch.nn.functional.avg_pool2d(x[:, 0], 4).flatten(1)
        return 40 * (quadrants.roll(1, 1) - 0.5)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(("after", "teacher"), [(1, None), (2, OneFurther().eval()), (3, None)])
def test_a_stopped_run_ends_where_it_would_have(tmp_path, after, teacher, optimizer):
    recipe = Recipe(epochs=3, lr=0.05, batch_size=16, crop_padding=1, optimizer=optimizer)
    whole = train(network("iabn"), Squares(), recipe, out=tmp_path / "whole.safetensors", teacher=teacher)

    def stop(done, _):
        if done == after:
            raise Stop

    out = tmp_path / "cut.safetensors"
    with pytest.raises(Stop):
        train(network("iabn"), Squares(), recipe, out=out, teacher=teacher, on_epoch=stop)
    assert not out.exists()
    card = train(network("iabn"), Squares(), recipe, out=out, teacher=teacher)
    assert same(weights(out), weights(tmp_path / "whole.safetensors"))
    assert card["history"] == whole["history"]
    assert not list(tmp_path.glob("*.training.pt"))


def test_a_finished_run_returns_at_once(tmp_path):
    out = tmp_path / "a.safetensors"
    card = train(network(), Squares(), RECIPE, out=out)
    stamp = out.stat().st_mtime_ns
    model = network()
    assert train(model, Squares(), RECIPE, out=out) == card
    assert same(model.state_dict(), weights(out))
    assert out.stat().st_mtime_ns == stamp


def test_killed_between_weights_and_readable_card(tmp_path):
    out = tmp_path / "a.safetensors"
    card = train(network(), Squares(), RECIPE, out=out)
    (tmp_path / "a.json").write_text("{}")
    assert train(network(), Squares(), RECIPE, out=out) == card
    assert json.loads((tmp_path / "a.json").read_text()) == card


def test_another_runs_files_are_not_taken_over(tmp_path):
    out = tmp_path / "a.safetensors"
    train(network(), Squares(), RECIPE, out=out)
    other = Recipe(epochs=3, lr=0.01, batch_size=16, crop_padding=1)
    with pytest.raises(
        ValueError, match=r"a\.safetensors belongs to a run with recipe.lr 0.05, but here it is 0.01"
    ):
        train(network(), Squares(), other, out=out)
    with pytest.raises(ValueError, match="run with seed 0, but here it is 5"):
        train(network(), Squares(), RECIPE, out=out, seed=5)
    with pytest.raises(ValueError, match="run with data squares 96"):
        train(network(), Squares(seed=3), RECIPE, out=out)
    card = train(network(), Squares(), other, out=out, restart=True)
    assert card["recipe"]["lr"] == 0.01


def test_another_runs_state_is_not_taken_over(tmp_path):
    out = tmp_path / "a.safetensors"

    def stop(*_):
        raise Stop

    with pytest.raises(Stop):
        train(network(), Squares(), RECIPE, out=out, on_epoch=stop)
    with pytest.raises(ValueError, match=r"a\.training\.pt belongs to a run with seed 0, but here it is 1"):
        train(network(), Squares(), RECIPE, out=out, seed=1)
    (tmp_path / "a.training.pt").write_bytes(b"garbage")
    with pytest.raises(ValueError, match=r"a\.training\.pt cannot be read as a training state"):
        train(network(), Squares(), RECIPE, out=out)
    train(network(), Squares(), RECIPE, out=out, restart=True)


def test_half_written_files_of_a_killed_run_are_taken_away(tmp_path):
    for name in (".a.safetensors.x1.part", ".a.training.pt.x2.part", ".a.json.x3.part"):
        (tmp_path / name).write_bytes(b"half")
    train(network(), Squares(), RECIPE, out=tmp_path / "a.safetensors")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.safetensors"]


def test_no_epochs_only_evaluates(tmp_path):
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    recipe = Recipe(epochs=0, lr=0.1)
    card = train(model, Squares(), recipe, out=tmp_path / "a.safetensors", test=Squares(seed=1))
    assert same(weights(tmp_path / "a.safetensors"), before)
    assert card["history"] == []
    assert 0 <= card["clean_error"] <= 100


def test_fine_tuning_iabn_from_batchnorm_weights(tmp_path):
    recipe = Recipe(epochs=6, lr=0.1, batch_size=16)
    plain = train(network(), Squares(), recipe, out=tmp_path / "bn.safetensors", test=Squares(seed=1))
    model = load_weights(network("iabn"), tmp_path / "bn.safetensors")
    gentle = Recipe(epochs=1, lr=0.01, batch_size=16)
    tuned = train(model, Squares(), gentle, out=tmp_path / "iabn.safetensors", test=Squares(seed=1))
    assert tuned["architecture"]["norm"] == "iabn"
    assert tuned["clean_error"] <= plain["clean_error"] + 5


def test_a_teacher_counts_for_more_than_the_labels(tmp_path):
    recipe, out = Recipe(epochs=6, lr=0.1, batch_size=16), tmp_path / "a.safetensors"
    train(network(), Squares(), recipe, out=out, teacher=OneFurther().eval())
    model, test = load_checkpoint(out)[0], Squares(seed=1)
    answers = model(test.inputs(torch.arange(len(test)))).argmax(1)
    assert (answers == (test.labels + 1) % 4).float().mean() > 0.9


def test_a_teacher_belongs_to_the_run_and_stays_as_it_is(tmp_path):
    out, teacher = tmp_path / "a.safetensors", network().eval()
    before = weights_fingerprint(teacher)
    train(network(), Squares(), RECIPE, out=out, teacher=teacher)
    assert weights_fingerprint(teacher) == before
    with pytest.raises(ValueError, match=r"belongs to a run with teacher\.\w+ .*, but here it is unset"):
        train(network(), Squares(), RECIPE, out=out)


def test_a_teacher_that_cannot_teach_is_refused(tmp_path):
    out = tmp_path / "a.safetensors"
    with pytest.raises(ValueError, match=r"the teacher is in train mode, .*: call teacher\.eval\(\)"):
        train(network(), Squares(), RECIPE, out=out, teacher=network())
    broken = network().eval()
    torch.nn.init.constant_(broken.fc.bias, math.nan)
    with pytest.raises(ValueError, match="the teacher's answers are not finite"):
        train(network(), Squares(), RECIPE, out=out, teacher=broken)
    assert not out.exists()


def test_distillation_is_zero_at_the_teachers_answers_and_has_gradients_of_the_labels_size():
    taught = torch.randn(5, 10, generator=torch.Generator().manual_seed(0))
    logits = taught.clone().requires_grad_()
    assert loop._distillation(logits, taught).item() == pytest.approx(0, abs=1e-5)
    away = (taught + 0.01 * torch.eye(5, 10)).requires_grad_()
    loop._distillation(away, taught).backward()
    softened = (taught / 4).softmax(1)
    expected = 4 * ((away.detach() / 4).softmax(1) - softened)
    torch.testing.assert_close(away.grad, expected, atol=1e-6, rtol=1e-4)


def test_divergence_is_told_with_a_way_out(tmp_path):
    recipe = Recipe(epochs=2, lr=1e30, batch_size=16, optimizer="adam")
    with pytest.raises(
        Diverged, match=r"diverged in epoch 1 at lr .*lr 1e\+30 is too large for adam .* try lr 0.001"
    ):
        train(network(), Squares(), recipe, out=tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_loss_worse_than_guessing_is_warned_of_once(tmp_path):
    recipe = Recipe(epochs=2, lr=3.0, batch_size=16, optimizer="adam", schedule="constant")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(network(), Squares(), recipe, out=tmp_path / "a.safetensors")
    messages = [str(w.message) for w in caught if "guessing" in str(w.message)]
    assert len(messages) == 1
    assert "lr 3 is too large for adam here; try lr 0.001" in messages[0]
    assert f"{math.log(4):.3g}" in messages[0]


def test_bad_output_name(tmp_path):
    with pytest.raises(ValueError, match=r"ends in \.safetensors, got .*a\.pt"):
        train(network(), Squares(), RECIPE, out=tmp_path / "a.pt")


def test_a_folder_that_cannot_be_made_is_found_out_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    done = []
    with pytest.raises(OSError, match="file"):
        train(network(), Squares(), RECIPE, out=tmp_path / "file" / "a.safetensors", on_epoch=done.append)
    assert not done


def test_silent_without_a_terminal(tmp_path, capfd):
    train(network(), Squares(), RECIPE, out=tmp_path / "a.safetensors")
    assert capfd.readouterr() == ("", "")


def test_progress_on_a_terminal(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    train(network(), Squares(), RECIPE, out=tmp_path / "a.safetensors")
    shown = capfd.readouterr().err
    assert "epoch 3/3" in shown
    assert "loss" in shown
    assert "error" in shown


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
import torch
torch.set_num_threads(1)
from test_loop import Squares
from note_tta.models import build_model
from note_tta.train import Recipe, train
torch.manual_seed(0)
model = build_model("digits_cnn", 4, width=4, norm="iabn", alpha={alpha})
recipe = Recipe(epochs={epochs}, lr=0.05, batch_size=16, crop_padding={padding})
card = train(model, Squares({count}), recipe, out=sys.argv[1], test=Squares(seed=1))
"""


def script(tmp_path, **values):
    file = tmp_path / "job.py"
    file.write_text(textwrap.dedent(SCRIPT).format(here=str(HERE), **values))
    return file


def environment():
    root = str(HERE.parents[1])
    return {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_kill_9_and_resume(tmp_path):
    """Killed for real, at several moments, the run ends with the weights of an undisturbed one."""
    job = script(tmp_path, alpha=4.0, epochs=12, padding=1, count=320)
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    subprocess.run([sys.executable, job, whole], check=True, env=environment(), timeout=120)
    state = tmp_path / "cut.training.pt"
    kills = 0
    for pause in (0.0, 0.15, 0.4, 0.05, 0.3):
        process = subprocess.Popen([sys.executable, job, cut], env=environment())
        seen = state.stat().st_mtime_ns if state.exists() else 0
        while process.poll() is None and (state.stat().st_mtime_ns if state.exists() else 0) == seen:
            time.sleep(0.01)
        time.sleep(pause)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 3
    subprocess.run([sys.executable, job, cut], check=True, env=environment(), timeout=120)
    assert same(weights(whole), weights(cut))
    assert (
        json.loads(cut.with_suffix(".json").read_text())["history"]
        == (json.loads(whole.with_suffix(".json").read_text())["history"])
    )


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    """With alpha=0 no statistic crosses samples, so two processes must take the very steps of one."""
    job = script(tmp_path, alpha=0.0, epochs=2, padding=0, count=101)
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    subprocess.run([sys.executable, job, one], check=True, env=environment(), timeout=120)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*launcher, job, two], check=True, env=environment(), timeout=180)
    alone, together = weights(one), weights(two)
    for name, tensor in alone.items():
        if "running" not in name and "num_batches" not in name:
            # Rounding grows where an instance is nearly constant: alpha=0 divides it by its own small deviation.
            assert torch.allclose(tensor, together[name], atol=5e-3), name
    cards = [json.loads(path.with_suffix(".json").read_text()) for path in (one, two)]
    assert cards[1]["run"]["processes"] == 2
    assert cards[1]["history"][-1]["loss"] == pytest.approx(cards[0]["history"][-1]["loss"], rel=1e-3)
    assert not list(tmp_path.glob("*.training.pt"))
