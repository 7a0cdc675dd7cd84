import sqlite3
from contextlib import closing

import pytest
import torch

import note_tta as tta
from note_tta.serve.desk import KEPT_WITHIN, Desk, Request
from note_tta.serve.limits import Limits, Refused

from .helpers import same


@pytest.fixture
def desk(model):
    return Desk(tta.Fleet(model), Limits())


def test_requests_of_many_streams_are_answered_as_their_own_methods_would(desk, model, x):
    singles = {name: tta.NOTE(model) for name in "abc"}
    for start in range(0, 240, 8):
        requests = [Request(name, x[start + k : start + k + 8]) for k, name in enumerate("abc")]
        for request, answer in zip(requests, desk.answer(requests), strict=True):
            expected = singles[request.stream](request.x).softmax(1)
            assert torch.allclose(torch.tensor(answer["probabilities"]), expected, atol=1e-4)
            assert answer["classes"] == expected.argmax(1).tolist()
    assert answer["samples"] == 240 and answer["durable"] is None


def test_a_repeated_sample_is_answered_and_not_learned_from(desk, model, x):
    once, twice = Desk(tta.Fleet(model), Limits()), desk
    for start in range(0, 192, 16):
        once.answer([Request("a", x[start : start + 16], start)])
        first = twice.answer([Request("a", x[start : start + 16], start)])[0]
        again = twice.answer([Request("a", x[start : start + 16], start)])[0]
        assert first["repeated"] == 0 and again["repeated"] == 16
        assert again["samples"] == first["samples"] == start + 16
        assert len(again["classes"]) == 16
    assert same(once.fleet.state_dict("a"), twice.fleet.state_dict("a"))


def test_a_request_may_be_partly_repeated(desk, model, x):
    desk.answer([Request("a", x[:50], 0)])
    answer = desk.answer([Request("a", x[40:80], 40)])[0]
    assert answer["repeated"] == 10 and answer["samples"] == 80 and len(answer["classes"]) == 40
    whole = tta.NOTE(model)
    whole(x[:80])
    assert same(desk.fleet.state_dict("a"), whole.state_dict())


def test_repeats_within_one_call_are_seen_too(desk, model, x):
    answers = desk.answer([Request("a", x[:70], 0), Request("a", x[:70], 0), Request("a", x[70:80], 70)])
    assert [answer["repeated"] for answer in answers] == [0, 70, 0]
    whole = tta.NOTE(model)
    whole(x[:80])
    assert same(desk.fleet.state_dict("a"), whole.state_dict())


def test_a_gap_is_refused_and_says_what_comes_next(desk, x):
    desk.answer([Request("a", x[:10], 0)])
    refused = desk.answer([Request("a", x[20:30], 20)])[0]
    assert isinstance(refused, Refused) and refused.status == 409 and refused.details == {"expected": 10}
    assert desk.position("a") == 10
    refused = desk.answer([Request("new", x[20:30], 20)])[0]
    assert refused.details == {"expected": 0} and "new" not in desk.fleet


def test_one_bad_request_is_its_own_matter(desk, x):
    answers = desk.answer([Request("a", x[:4]), Request("b", x[:4])])
    assert all(isinstance(answer, dict) for answer in answers)
    wrong = torch.rand(2, 1, 9, 9)
    answers = desk.answer([Request("a", wrong), Request("c", wrong)])
    assert [answer.status for answer in answers] == [422, 422]
    assert desk.names == {"a", "b"} and desk.position("a") == 4


class Picky(torch.nn.Module):
    """A model that fails at samples with a value above nine."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        if (x > 9).any():
            raise RuntimeError("lookup failed")
        return self.model(x)


def bad_at_the_end(x):
    x = x.clone()
    x[-1, 0, 0, 0] = 10
    return x


@pytest.mark.parametrize("sequence", [None, 50])
def test_what_a_failed_call_has_learned_from_is_not_learned_again(model, x, sequence):
    desk = Desk(tta.Fleet(Picky(model)), Limits())
    for name in "ab":
        desk.answer([Request(name, x[:50])])
    # 14 samples remain until the update of `a`: the call learns from them, and fails at its next pass
    answers = desk.answer([Request("a", x[50:70], sequence), Request("b", bad_at_the_end(x[50:94]))])
    assert answers[0]["samples"] == 70 and len(answers[0]["classes"]) == 20
    assert answers[1].status == 422 and "lookup failed" in answers[1].reason
    whole = tta.NOTE(Picky(model))
    whole(x[:70])
    assert same(desk.fleet.state_dict("a"), whole.state_dict())


def test_a_request_after_one_that_failed_in_the_same_stream_begins_where_that_one_ended(model, x):
    desk = Desk(tta.Fleet(Picky(model)), Limits())
    requests = [Request("a", x[:4]), Request("a", bad_at_the_end(x[4:8])), Request("a", x[8:12])]
    first, bad, last = desk.answer(requests)
    assert first["samples"] == 4 and bad.status == 422
    assert last["samples"] == 8 and last["repeated"] == 0


def test_a_stream_that_began_in_a_failed_call_is_known(model, x):
    desk = Desk(tta.Fleet(Picky(model)), Limits())
    desk.answer([Request("a", x[:4])])
    refused = desk.answer([Request("b", bad_at_the_end(x[:70]))])[0]
    assert refused.status == 422 and desk.position("b") == 64
    assert desk.record("b").samples == 64 and desk.names == {"a", "b"}


def test_a_repeat_of_another_size_is_its_own_matter():
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.AdaptiveAvgPool2d(1)]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(4, 3)).eval()
    desk = Desk(tta.Fleet(tta.convert_iabn(model)), Limits())
    desk.answer([Request("a", torch.rand(4, 1, 8, 8))])
    larger = torch.rand(4, 1, 12, 12)
    for requests in ([Request("b", larger), Request("a", larger, 0)], [Request("a", larger, 0)]):
        *others, refused = desk.answer(requests)
        assert [other["samples"] for other in others] == [4] * len(others)
        assert refused.status == 422 and "a stream keeps one shape" in refused.reason
    assert desk.position("b") == 4


def test_a_damaged_stream_is_its_own_matter_and_can_be_deleted(model, x, tmp_path):
    with tta.Fleet(model, spill=tmp_path) as fleet:
        fleet(["a", "b"], x[:2])
    with closing(sqlite3.connect(tmp_path / "streams.sqlite")) as database, database:
        database.execute("UPDATE streams SET record = zeroblob(length(record)) WHERE id = ?", (b"sa",))
    desk = Desk(tta.Fleet(model, spill=tmp_path), Limits())
    refused, answer = desk.answer([Request("a", x[:4]), Request("b", x[:4])])
    assert refused.status == 500 and "the stored state of stream a is damaged" in refused.reason
    assert str(tmp_path) not in refused.reason
    assert answer["samples"] == 5
    for _ in range(2):
        with pytest.raises(Refused, match="the stored state of stream a is damaged: delete the stream"):
            desk.record("a")
    desk.drop("a")
    assert desk.answer([Request("a", x[:4])])[0]["samples"] == 4


def test_an_error_after_learning_is_its_own_matter(desk, x, monkeypatch):
    durable = desk.fleet.durable
    monkeypatch.setattr(desk.fleet, "durable", lambda stream: 1 / 0 if stream == "a" else durable(stream))
    broken, answer = desk.answer([Request("a", x[:4]), Request("b", x[:4])])
    assert isinstance(broken, ZeroDivisionError) and answer["samples"] == 4


def test_a_sample_with_nan_is_answered_with_null(desk, x):
    bad = x[:3].clone()
    bad[1] = torch.nan
    answer = desk.answer([Request("a", bad)])[0]
    assert answer["classes"][1] is None and answer["probabilities"][1] is None
    assert None not in (answer["classes"][0], answer["classes"][2])


def test_the_number_of_streams_is_limited(model, x):
    desk = Desk(tta.Fleet(model), Limits(streams=2))
    answers = desk.answer([Request(name, x[:2]) for name in ("a", "b", "c", "a")])
    assert [isinstance(answer, dict) for answer in answers] == [True, True, False, True]
    assert answers[2].status == 429 and "the limit is 2" in answers[2].reason
    with pytest.raises(Refused, match="the limit is 2"):
        desk.put_state("c", desk.state("a"))
    desk.drop("b")
    assert isinstance(desk.answer([Request("c", x[:2])])[0], dict)


def test_reset_begins_anew_and_the_sequence_goes_on(desk, model, x):
    desk.answer([Request("a", x[:200], 0)])
    assert desk.change("a", "reset")["samples"] == 200
    desk.answer([Request("a", x[200:300], 200)])
    anew = tta.NOTE(model)
    anew(x[200:300])
    state, expected = desk.fleet.state_dict("a"), anew.state_dict()
    assert state["counters"].pop("samples") == 300 and expected["counters"].pop("samples") == 100
    assert same(state, expected)


def test_rollback_returns_to_the_source(desk, x):
    desk.answer([Request("a", x[:200])])
    assert desk.record("a").distance > 0
    source = {name: t.clone() for name, t in desk.fleet.method("a").backbone.source.items()}
    assert desk.change("a", "rollback")["distance"] == 0
    assert same(desk.fleet.state_dict("a")["model"], source)
    assert desk.fleet.counters("a")["samples"] == 200


def test_pause_and_resume(desk, x):
    desk.answer([Request("a", x[:10])])
    assert desk.change("a", "pause")["paused"]
    desk.answer([Request("a", x[:200])])
    assert desk.fleet.counters("a") | {"samples": 210, "updates": 0} == desk.fleet.counters("a")
    assert not desk.change("a", "resume")["paused"]
    desk.answer([Request("a", x[:64])])
    assert desk.fleet.counters("a")["updates"] == 1


def test_a_state_moves_to_another_service(desk, model, x):
    desk.answer([Request("a", x[:100])])
    other = Desk(tta.Fleet(model), Limits())
    assert other.put_state("b", desk.state("a"))["samples"] == 100
    one, two = desk.answer([Request("a", x[100:])])[0], other.answer([Request("b", x[100:], 100)])[0]
    assert one["probabilities"] == two["probabilities"]


@pytest.mark.parametrize("damage", [lambda s: b"", lambda s: s[:-1], lambda s: s[:200] + b"?" + s[201:]])
def test_a_damaged_state_is_refused_and_changes_nothing(desk, x, damage):
    desk.answer([Request("a", x[:100])])
    before = desk.fleet.state_dict("a")
    with pytest.raises(Refused, match="no state of a stream of this model"):
        desk.put_state("a", damage(desk.state("a")))
    assert same(desk.fleet.state_dict("a"), before)
    assert same(before, desk.fleet.state_dict("a"))


def test_another_models_state_is_refused(desk, x):
    torch.manual_seed(5)
    layers = [torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(144, 3)]
    other = Desk(tta.Fleet(tta.convert_iabn(torch.nn.Sequential(*layers).eval())), Limits())
    other.answer([Request("a", x[:4])])
    with pytest.raises(Refused, match="no state of a stream of this model"):
        desk.put_state("a", other.state("a"))
    assert "a" not in desk.names


def test_durable_is_what_the_next_process_finds(model, x, tmp_path):
    desk = Desk(tta.Fleet(model, spill=tmp_path), Limits())
    answers = [desk.answer([Request("a", x[i : i + 10], i)])[0] for i in range(0, 150, 10)]
    assert [answer["durable"] for answer in answers][:6] == [0] * 6
    assert answers[-1]["durable"] == 128
    desk.fleet._streams.store._database.close()  # as a kill: nothing more is written
    after = Desk(tta.Fleet(model, spill=tmp_path), Limits())
    assert after.position("a") == 128


def test_a_stream_that_does_not_learn_is_written_too(model, x, tmp_path):
    desk = Desk(tta.Fleet(model, spill=tmp_path), Limits())
    desk.answer([Request("a", x[:10], 0)])
    desk.change("a", "pause")
    at = 10
    while at < 3 * KEPT_WITHIN:
        answer = desk.answer([Request("a", x[:50], at)])[0]
        at = answer["samples"]
        assert at - answer["durable"] < KEPT_WITHIN + 50
    assert answer["durable"] >= KEPT_WITHIN


def test_after_a_call_that_failed_on_disk_nothing_is_learned_twice(model, x, tmp_path, monkeypatch):
    desk = Desk(tta.Fleet(model, spill=tmp_path), Limits())
    store = desk.fleet._streams.store
    commit, left = store.commit, [2]

    def failing():
        if left[0]:
            left[0] -= 1
            raise OSError("no space left on device")
        commit()

    monkeypatch.setattr(store, "commit", failing)
    sent, refusals = 0, []
    while sent < 300:
        answer = desk.answer([Request("a", x[sent : sent + 30], sent)])[0]
        if isinstance(answer, Refused):
            refusals.append((answer.status, "send the samples again" in answer.reason))
        else:
            sent = answer["samples"]
    assert left == [0] and refusals == [(503, True)] * 2
    whole = tta.NOTE(model)
    whole(x[:300])
    assert same(desk.fleet.state_dict("a"), whole.state_dict())


def test_the_memory_is_shown_as_pictures(desk, x):
    import base64

    desk.answer([Request("a", x[:10])])
    shown = desk.memory("a")
    assert shown["shape"] == [1, 8, 8] and len(shown["labels"]) == 10
    pixels = torch.frombuffer(bytearray(base64.b64decode(shown["pixels"])), dtype=torch.uint8)
    held = desk.fleet.method("a").memory.inputs()
    assert torch.equal(pixels.view(held.shape).float() / 255, held)


def test_an_unknown_stream_is_404(desk):
    for ask in (desk.record, desk.state, desk.drop, desk.memory, lambda name: desk.change(name, "reset")):
        with pytest.raises(Refused, match="there is no stream a") as refused:
            ask("a")
        assert refused.value.status == 404


@pytest.fixture
def watched(model):
    return Desk(
        tta.Fleet(model, lambda model: tta.Watch(tta.NOTE(model, interval=8), look=16, sample=4)), Limits()
    )


def test_a_watched_streams_health_and_events_are_told(watched, x):
    same_picture = x[:1].expand(64, 1, 8, 8)
    for _ in range(6):
        answer = watched.answer([Request("a", same_picture)])[0]
    assert answer["health"]["state"] == "rolled back" and "learning is paused" in answer["health"]["why"]
    assert {"alarm", "rollback"} <= {event["kind"] for event in watched.events("a")}
    assert watched.record("a").trouble >= 3
    assert watched.record("a").page("a")["health"]["state"] == "rolled back"


def test_a_watched_stream_rolls_back_to_its_last_good_snapshot(watched, x):
    watched.answer([Request("a", x[:200])])
    method = watched.fleet.method("a")
    start = 200
    while next(iter(method.ring.newest_first())).samples + 8 > start:  # until it has learned since
        watched.answer([Request("a", x[start : start + 4])])
        start += 4
    kept = dict(next(iter(method.ring.newest_first())).learned["model"])
    assert not same({name: t.clone() for name, t in method.inner.tensors.items()}, kept)
    watched.change("a", "rollback")
    assert same({name: t.clone() for name, t in method.inner.tensors.items()}, kept)
    assert watched.events("a")[-1]["kind"] == "rollback"
    assert (
        "as requested" in [event["cause"] for event in watched.events("a") if event["kind"] == "rollback"][-2]
    )


def test_a_watch_that_knows_the_source_estimates_the_error(model, x):
    source = [(x[:128], model(x[:128]).argmax(1))]
    make = lambda model: tta.Watch(tta.NOTE(model), source, look=128, sample=16)  # noqa: E731
    desk = Desk(tta.Fleet(model, make), Limits())
    for start in range(0, 400, 50):
        desk.answer([Request("a", x[start : start + 50])])
    told = desk.record("a").page("a")["health"]["error"]
    assert (
        told.keys() == {"value", "low", "high"} and 0 <= told["low"] <= told["value"] <= told["high"] <= 100
    )
