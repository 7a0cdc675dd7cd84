"""The study's bookkeeping, on a stream of a few images: what is kept, what is scored, what is not looked at twice."""

import json
from dataclasses import replace

import torch

import note_tta as tta
from benchmarks import filter_study
from note_tta.checks import example_images, example_network
from note_tta.filter import Runs


def stream():
    x = example_images(60)
    labels = torch.arange(60) // 20
    made = {"iabn": example_network, "swapped": example_network}
    return filter_study.Stream(
        "digits", "dusk0", x, labels, made, methods=("source", "lame"), chronological=True
    )


def test_answers_are_kept_once_and_in_order(tmp_path, capsys):
    filter_study.keep_answers(stream(), tmp_path)
    names = sorted(file.name for file in (tmp_path / "answers").glob("*.npz"))
    assert names == [
        "digits.iabn.lame.correlated.dusk0.npz",
        "digits.iabn.source.correlated.dusk0.npz",
        "digits.iabn.source.shuffled.dusk0.npz",
        "digits.swapped.lame.correlated.dusk0.npz",
        "digits.swapped.source.correlated.dusk0.npz",
        "digits.swapped.source.shuffled.dusk0.npz",
    ]
    assert len(capsys.readouterr().out.splitlines()) == 6
    filter_study.keep_answers(stream(), tmp_path)
    assert capsys.readouterr().out == ""


def test_scores_are_errors_with_and_without_the_filter(tmp_path):
    filter_study.keep_answers(stream(), tmp_path)
    scored = filter_study.score(tmp_path, {})
    row = next(
        r
        for r in scored["rows"]
        if (r["layers"], r["method"], r["order"]) == ("iabn", "source", "correlated")
    )
    logits = tta.Source(example_network())(example_images(60)).log_softmax(1)
    labels = torch.arange(60) // 20
    for key, answers in (("error", logits), ("filtered", Runs()(logits))):
        assert row[key] == round(100 * float((answers.argmax(1) != labels).double().mean()), 3)
    assert (row["run"], row["samples"], row["streams"]) == (20.0, 60, 1)


def test_rows_stay_with_the_settings_of_their_time_unless_as_many_streams_were_run(tmp_path):
    filter_study.keep_answers(replace(stream(), methods=("source",)), tmp_path)
    old = {"data": "digits", "method": "source", "order": "correlated", "filter": "balance=0.5"}
    known = {
        "rows": [
            old | {"layers": layers, "streams": n} for layers, n in (("bn", 1), ("iabn", 1), ("swapped", 2))
        ]
    }
    scored = filter_study.score(tmp_path, known)
    kept = {(row["layers"], row["order"]): row["filter"] for row in scored["rows"]}
    assert kept["bn", "correlated"] == kept["swapped", "correlated"] == "balance=0.5"
    assert kept["iabn", "correlated"] == scored["filter"] == filter_study.settings()
    assert len(scored["rows"]) == 5


def test_a_filter_that_saw_a_shuffled_stream_is_scored_on_what_comes_after(tmp_path):
    filter_study.keep_answers(replace(stream(), methods=("source",)), tmp_path)
    rows = filter_study.score(tmp_path, {})["rows"]
    row = next(r for r in rows if (r["layers"], r["order"]) == ("iabn", "correlated"))
    logits = tta.Source(example_network())(example_images(60)).log_softmax(1)
    labels = torch.arange(60) // 20
    runs = Runs()
    runs(logits[stream().orders()["shuffled"]])
    assert row["after shuffled"] == filter_study._error(runs(logits), labels)


def test_the_committed_study_names_the_settings_of_the_filter():
    """A changed default needs its figures measured anew, or the page says of them what they were measured with."""
    assert json.loads(filter_study.OUT.read_text(encoding="utf-8"))["filter"] == filter_study.settings()
    assert " balance=1.0" in filter_study.settings() and "stay=(0.5,0.9,0.99) " in filter_study.settings()


def test_settings_are_varied_around_what_adapt_makes(tmp_path):
    wider = replace(stream(), methods=("note warm 10",))
    filter_study.keep_answers(wider, tmp_path)
    found = filter_study.vary(tmp_path)
    varied = found["variants"]
    assert set(varied) == set(filter_study.VARIANTS)
    assert found["varied"] == {"digits correlated": 1, "digits shuffled": 1}
    assert all(row.keys() == {"digits correlated", "digits shuffled"} for row in varied.values())


def test_every_variant_changes_a_setting_of_the_filter():
    logits = 3 * torch.randn(300, 4, generator=torch.Generator().manual_seed(0)).repeat_interleave(5, 0)
    expected = Runs()(logits)
    same = [name for name, s in filter_study.VARIANTS.items() if torch.equal(Runs(**s)(logits), expected)]
    assert same == ["as chosen"]
