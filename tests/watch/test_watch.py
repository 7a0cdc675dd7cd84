"""The watch on a real model: same answers until an alarm, back at an alarm, on again after it; its state; its words."""

import io
import logging

import pytest
import torch
from torch import nn

import note_tta as tta
from note_tta.checks import check_method, equal, example_images, example_network

CLOSE = {"look": 64, "sample": 16}
"""Looks so frequent that the contract's short streams meet every branch."""
QUICK = {"look": 256, "sample": 64}


def feed(method, x, size=64):
    return torch.cat([method(part) for part in x.split(size)])


def kinds(watch):
    return [event.kind for event in watch.events]


@pytest.fixture
def poisoned(alarmed):
    """A watch that has met noise up to its first alarm."""
    return alarmed.fork()


@pytest.fixture(scope="module")
def alarmed(digits, source, noise):
    watch = tta.Watch(tta.NOTE(digits), source=source, **QUICK)
    for part in noise.split(64):
        watch(part)
        if watch.alarms:
            return watch
    raise AssertionError("the noise raised no alarm")


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda m: tta.Watch(tta.NOTE(m, interval=16), source=[example_images(64, seed=9)], **CLOSE),
        lambda m: tta.Watch(tta.TENT(m), source=[example_images(64, seed=9)], **CLOSE),
        lambda m: tta.Watch(tta.Source(m), source=[example_images(64, seed=9)], **CLOSE),
        lambda m: tta.Watch(tta.ONDA(m), **CLOSE),
        lambda m: tta.Watch(tta.CoTTA(m, augmentations=2), **CLOSE),
        lambda m: tta.TemporalFilter(tta.Watch(tta.NOTE(m, interval=16), **CLOSE)),
        lambda m: tta.Watch(tta.NOTE(m, interval=16, delay=8), source=[example_images(64, seed=9)], **CLOSE),
    ],
    ids=["note", "tent", "source", "onda", "cotta", "filter around", "delayed"],
)
def test_keeps_the_contract(make):
    check_method(make)


@pytest.mark.parametrize("with_source", [True, False])
def test_answers_and_learns_as_the_method_alone_until_an_alarm(digits, source, clean, with_source):
    watch = tta.Watch(tta.NOTE(digits), source=source if with_source else None, **QUICK)
    alone = tta.NOTE(digits)
    x = clean[0][:1200]
    assert torch.equal(feed(watch, x, 50), feed(alone, x, 50))
    assert not watch.alarms and len(watch.journal.looks) >= 4
    assert equal(watch.state_dict()["model"], alone.state_dict()["model"])
    assert watch.memory.labels() == alone.memory.labels()
    assert watch.counters == alone.counters


@pytest.mark.parametrize("size", [1, 50])
def test_what_the_caller_does_to_the_answers_is_not_counted(digits, source, clean, size):
    watches = [tta.Watch(tta.NOTE(digits), source=source, **QUICK) for _ in range(2)]
    feed(watches[0], clean[0][:400], size)
    for part in clean[0][:400].split(size):
        watches[1](part).zero_()
    assert equal(watches[0].state_dict(), watches[1].state_dict())


def test_noise_raises_an_alarm_and_is_undone(poisoned, digits):
    assert kinds(poisoned)[-2:] == ["alarm", "rollback"]
    assert "source samples have lost" in poisoned.alarms[0].cause
    assert poisoned.alarms[0].numbers["strain"] >= 1
    held = poisoned.ring.newest_first()
    expected = held[0].learned["model"] if held else poisoned.backbone.source
    assert equal(dict(poisoned.inner.tensors), dict(expected))
    assert len(poisoned.memory) == 0


def test_a_stretch_after_an_alarm_is_answered_by_the_good_state_and_only_counted(poisoned, noise, clean):
    before = poisoned.state_dict()
    twin = poisoned.fork()
    answers = feed(poisoned, noise[:512])
    assert torch.equal(answers, feed(tta_paused(twin), noise[:512]))
    after = poisoned.state_dict()
    assert equal(before["model"], after["model"])
    assert after["counters"] == {**before["counters"], "samples": before["counters"]["samples"] + 512}
    assert poisoned.health.state == "rolled back"
    assert str(poisoned.health).startswith("rolled back: source samples have lost")


def tta_paused(method):
    method.pause()
    return method


def test_the_clean_error_is_saved(digits, source, noise, clean):
    def error_after_noise(method):
        feed(method, noise[:3072])
        return 100 * float(
            (feed(tta_paused(method), clean[0][:1200]).argmax(1) != clean[1][:1200]).float().mean()
        )

    watched = error_after_noise(tta.Watch(tta.NOTE(digits), source=source))
    alone = error_after_noise(tta.NOTE(digits))
    assert watched < 4 < 2 * watched + 4 < alone


def test_learning_begins_again_on_varied_input(poisoned, clean):
    updates = poisoned.counters["updates"]
    feed(poisoned, clean[0])
    assert "resume" in kinds(poisoned)
    assert poisoned.counters["updates"] > updates
    assert poisoned.health.state != "rolled back"
    assert len(poisoned.alarms) == 1


def test_nothing_oscillates(digits, source, noise):
    watch = tta.Watch(tta.NOTE(digits), source=source, look=64, sample=64)
    feed(watch, torch.cat([noise, noise]))
    assert 2 <= len(watch.alarms) <= 4
    rests = [event.numbers["rest"] for event in watch.events if event.kind == "rollback"]
    assert rests == sorted(rests) and len(set(rests)) == len(rests)
    order = [kind for kind in kinds(watch) if kind in ("rollback", "resume")]
    assert order == (["rollback", "resume"] * len(order))[: len(order)]


def test_an_alarm_soon_after_going_back_goes_back_further(poisoned, noise, clean):
    poisoned.ring.add(0, poisoned.inner.snapshot(), 2)
    poisoned.tally.target, poisoned.tally.woken = 0, poisoned.tally.samples
    poisoned._alarm("again", {})
    assert poisoned.ring.newest_first() == []
    assert equal(dict(poisoned.inner.tensors), dict(poisoned.backbone.source))


def test_without_rollback_it_only_tells(digits, source, noise):
    watch = tta.Watch(tta.NOTE(digits), source=source, rollback=False, **QUICK)
    alone = tta.NOTE(digits)
    assert torch.equal(feed(watch, noise[:2048]), feed(alone, noise[:2048]))
    assert kinds(watch).count("alarm") == 1 and "rollback" not in kinds(watch)
    assert watch.health.state == "suspect"


def test_without_source_copies_of_one_sample_raise_an_alarm(digits, clean):
    watch = tta.Watch(tta.NOTE(digits), **QUICK)
    feed(watch, clean[0][:1].repeat(1024, 1, 1, 1))
    assert "copies of others" in watch.alarms[0].cause or "classes for a long time" in watch.alarms[0].cause
    assert watch.health.error is None


def test_dead_rows_raise_an_alarm_and_the_same_pictures_whole_do_not(digits, source, clean):
    dead = clean[0].clone()
    dead[:, :, 8:20] = 0
    watch = tta.Watch(tta.NOTE(digits), source=source, **QUICK)
    feed(watch, dead[:1024])
    assert "of what varied on the source does not vary" in watch.alarms[0].cause
    whole = tta.Watch(tta.NOTE(digits), source=source, **QUICK)
    feed(whole, clean[0][:1024])
    assert not whole.alarms and whole.health.signals["dead"] < 0.1


class Collapsing(tta.Method):
    """Answers as its model does for 256 samples, then with one class for everything."""

    batch_free = True

    def forward(self, x):
        logits = self.predict(x)
        return logits if self.counters["samples"] < 256 else logits.roll(1, 0) * 0 + torch.eye(10)[3]


def test_collapse_is_seen_without_source(digits, clean):
    watch = tta.Watch(Collapsing(digits), look=64, sample=4)
    order = torch.randperm(2048, generator=torch.Generator().manual_seed(0))
    feed(watch, clean[0][order][:1024])
    assert "the answers have" in watch.alarms[0].cause
    calm = tta.Watch(tta.Source(digits), look=64, sample=4)
    feed(calm, clean[0][order][:1024])
    assert not calm.alarms


def test_returns_to_the_source_when_the_stream_is_as_it_was(digits, clean):
    watch = tta.Watch(tta.NOTE(digits), sample=16)
    for name, tensor in watch.inner.tensors.items():
        if name.endswith("running_var"):
            tensor.mul_(4)
    feed(watch, clean[0][:512])
    (event,) = (event for event in watch.events if event.kind == "return")
    assert "the statistics of the source" in event.cause
    moved = watch.inner.tensors["features.1.running_var"] / watch.backbone.source["features.1.running_var"]
    assert float(moved.max()) < 2


def test_returns_within_640_samples_of_a_sudden_change(digits, clean):
    watch = tta.Watch(tta.NOTE(digits))
    feed(watch, clean[0][:1536])
    for name, tensor in watch.inner.tensors.items():
        if name.endswith("running_var"):
            tensor.mul_(16)
    feed(watch, torch.cat([clean[0][1536:], clean[0][:128]]))
    (event,) = (event for event in watch.events if event.kind == "return")
    assert event.samples == 1536 + 640


def test_a_state_goes_on_exactly(poisoned, digits, clean, noise):
    file = io.BytesIO()
    torch.save(poisoned.state_dict(), file)
    file.seek(0)
    twin = tta.Watch(tta.NOTE(digits))
    twin.load_state_dict(torch.load(file, weights_only=True))
    assert twin.reference.is_same(poisoned.reference)
    x = torch.cat([noise[:300], clean[0]])
    assert torch.equal(feed(poisoned, x), feed(twin, x))
    assert equal(poisoned.state_dict(), twin.state_dict())
    assert str(poisoned.health) == str(twin.health)


def test_a_state_goes_on_from_a_file(poisoned, digits, tmp_path, clean):
    tta.save_state(tmp_path / "stream", poisoned)
    twin = tta.Watch(tta.NOTE(digits))
    tta.load_state(tmp_path / "stream", twin)
    assert torch.equal(feed(poisoned, clean[0][:300]), feed(twin, clean[0][:300]))


def test_forks_share_what_is_known_of_the_source_and_nothing_else(poisoned, clean):
    poisoned.bench  # noqa: B018
    fork = poisoned.fork()
    assert fork.reference is poisoned.reference and fork.bench is poisoned.bench
    before = poisoned.state_dict()
    answers = feed(fork, clean[0])
    assert equal(poisoned.state_dict(), before)
    assert torch.equal(feed(poisoned, clean[0]), answers)


def test_a_loaded_state_shares_the_reference_that_is_there(poisoned, digits, source):
    twin = tta.Watch(tta.NOTE(digits), source=source, **QUICK)
    own = twin.reference
    twin.load_state_dict(poisoned.state_dict())
    assert twin.reference is own


def test_reset_in_a_rest_is_the_start(poisoned, clean):
    poisoned.reset()
    assert not poisoned.events and not poisoned.paused
    feed(poisoned, clean[0][:128])
    assert poisoned.counters["updates"] == 2


def test_a_rest_is_no_pause_and_a_pause_outlasts_a_rest(poisoned, clean):
    assert not poisoned.paused and poisoned.inner.paused
    poisoned.pause()
    seen = poisoned.tally.samples
    feed(poisoned, clean[0][:512])
    assert poisoned.tally.samples == seen
    poisoned.resume()
    assert not poisoned.paused and poisoned.inner.paused


def test_a_filter_around_goes_on_filtering_in_a_rest(poisoned, clean):
    filtered = tta.TemporalFilter(poisoned)
    before = filtered.runs.state_dict()
    filtered(clean[0][:8])
    assert not equal(filtered.runs.state_dict(), before)


def test_events_are_called_back_and_logged(digits, source, noise, caplog):
    seen = []
    with caplog.at_level(logging.INFO, logger="note_tta.watch"):
        watch = tta.Watch(tta.NOTE(digits), source=source, on_event=seen.append, **QUICK)
        feed(watch, noise[:2048])
    assert seen == watch.events
    levels = {record.getMessage(): record.levelname for record in caplog.records}
    assert levels[str(watch.alarms[0])] == "WARNING"


def test_a_callback_that_fails_costs_no_answer(digits, source, noise, caplog):
    def fail(event):
        raise RuntimeError("no line to the pager")

    watch = tta.Watch(tta.NOTE(digits), source=source, on_event=fail, **QUICK)
    assert len(feed(watch, noise[:2048])) == 2048
    assert "no line to the pager" in caplog.text


def test_health_says_how_far_it_is(digits, source, clean):
    watch = tta.Watch(tta.NOTE(digits), source=source, **QUICK)
    assert str(watch.health) == "learning: 0 samples so far, the first look is at 64"
    feed(watch, clean[0][:512])
    assert watch.health.state == "learning" and watch.health.samples == 512
    feed(watch, clean[0])
    assert watch.health.state == "steady"
    assert watch.health.reasons[0].endswith("% of the answers differ from the source model's")


def test_the_error_is_estimated_where_the_source_is_known(digits, source, clean):
    watch = tta.Watch(tta.NOTE(digits), source=source, **QUICK)
    error = 100 * float((feed(watch, clean[0]).argmax(1) != clean[1]).float().mean())
    estimate = watch.health.error
    assert estimate.low <= estimate.value <= estimate.high
    assert abs(estimate.value - error) < 3
    assert f"error about {estimate}" in str(watch.health)


def test_input_unlike_the_sources_is_called_drifting_and_over(digits, source, clean):
    watch = tta.Watch(tta.Source(digits), source=source, look=256, sample=8)
    faded = 0.1 + 0.3 * clean[0]
    feed(watch, faded[:1024])
    assert watch.health.state == "drifting"
    feed(watch, clean[0])
    assert kinds(watch) == ["drift", "drift over"]
    assert watch.health.state == "steady"


def test_samples_too_far_off_make_it_suspect(digits, source, clean):
    watch = tta.Watch(tta.NOTE(digits), source=source, **QUICK)
    feed(watch, 100 * clean[0][:512])
    assert watch.health.state == "suspect"
    assert "too far off to be learned from" in str(watch.health)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"look": 0}, "look must be at least 1, got 0"),
        ({"look": 100}, r"look must be a multiple of sample \(64\), got 100"),
        ({"sample": 0}, "sample must be at least 1, got 0"),
        ({"snapshots": 0}, "snapshots must be at least 1, got 0"),
        ({"expected_run": 10}, "expected_run must be at least 2048, got 10"),
        ({"tolerance": 1.5}, "tolerance must be between 0 and 1, got 1.5"),
    ],
)
def test_settings_that_make_no_sense_are_refused(digits, settings, message):
    with pytest.raises(ValueError, match=message):
        tta.Watch(tta.NOTE(digits), **settings)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: state["settings"].update(look=0), "look must be at least 1"),
        (lambda state: state["settings"].update(look="often"), "look must be an int"),
        (lambda state: state["parts"]["tally"].update(samples="many"), "its samples is a str"),
        (lambda state: state["parts"]["tally"].pop("rest"), "its tally has other"),
        (lambda state: state["parts"]["tally"].update(last=99), "its last answer is 99"),
        (lambda state: state["parts"]["tally"].update(waiting=torch.zeros(3, 4)), "its waiting answers"),
        (lambda state: state["parts"]["journal"].update(names=["one"]), "another number of columns"),
        (
            lambda state: state["parts"]["snapshots"].update(held={0: [1, {"model": {}}]}),
            "its snapshots have other",
        ),
        (lambda state: state["parts"]["reference"].pop("canaries"), "knows about the source"),
        (
            lambda state: state["parts"]["reference"].update(answers=torch.full((64,), 99)),
            "beyond its classes",
        ),
        (lambda state: state["parts"]["reference"].update(spread=torch.zeros(3)), "differ in shape"),
        (lambda state: state["parts"]["reference"].update(levels={"forgetting": 0.1}), "its limits must be"),
        (lambda state: state["parts"]["tally"].update(lasting=1.0), "its lasting is a float"),
    ],
)
def test_a_crafted_state_is_refused_and_changes_nothing(poisoned, spoil, message):
    state = poisoned.state_dict()
    spoil(state)
    before = poisoned.state_dict()
    with pytest.raises(ValueError, match=message):
        poisoned.load_state_dict(state)
    assert equal(poisoned.state_dict(), before)


def test_a_model_without_running_statistics_is_watched_too():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))
    watch = tta.Watch(tta.NOTE(model, interval=16), source=[example_images(64, seed=9)], **CLOSE)
    feed(watch, example_images(300), 50)
    assert watch.health.samples == 300


def test_sixteen_bits_are_watched_too():
    watch = tta.Watch(tta.NOTE(example_network().bfloat16()), source=[example_images(64, seed=9)], **CLOSE)
    assert feed(watch, example_images(200), 50).dtype == torch.bfloat16
    assert watch.health.error is not None


def test_going_back_by_hand_goes_to_the_last_good_snapshot(digits, source, clean):
    watch = tta.Watch(tta.NOTE(digits), source=source, **QUICK)
    feed(watch, clean[0][:300])
    good = watch.ring.newest_first()[0].learned["model"]
    watch.roll_back()
    assert equal(dict(watch.inner.tensors), dict(good))
    assert watch.events[-1].cause.endswith("as requested") and not watch.inner.paused
    watch.roll_back({"model": watch.backbone.source, "parts": watch.inner.snapshot()["parts"]})
    assert equal(dict(watch.inner.tensors), dict(watch.backbone.source))


def test_streams_of_a_fleet_are_watched_each_by_itself(digits, source, clean, noise, tmp_path):
    def make(model):
        return tta.TemporalFilter(tta.Watch(tta.NOTE(model), source=source, **QUICK))

    single = make(digits)
    with tta.Fleet(digits, method=make, max_resident=2, spill=tmp_path) as fleet:
        for x, other in zip(clean[0][:640].split(32), noise.split(32), strict=False):
            answers = fleet(["clean"] * 32 + ["noise"] * 32 + ["third"] * 32, torch.cat([x, other, x]))
            torch.testing.assert_close(answers[:32], single(x), atol=1e-4, rtol=1e-4)
        healths = {name: fleet.method(name).health for name in ("clean", "noise")}
        assert healths["clean"].samples == healths["noise"].samples == 640
        assert healths["noise"].signals["forgetting"] > 3 * healths["clean"].signals["forgetting"]
        one, two = (fleet.method(name) for name in ("clean", "noise"))
        assert one.reference is two.reference and one.bench is two.bench


class TestAnswersOfNaN:
    def ruined(self, size):
        """A watch around a method whose first update is finite and makes every answer NaN."""
        watch = tta.Watch(tta.NOTE(example_network(), lr=1e37), **CLOSE)
        x = example_images(64 * 5)
        return watch, torch.cat([watch(part) for part in x.split(size)])

    def test_are_an_alarm_if_the_source_model_has_an_answer(self):
        watch, answers = self.ruined(64)
        assert watch.alarms[0].cause == "the last 64 answers are NaN, but not the source model's"
        assert watch.health.state == "rolled back"
        unanswered = answers.isnan().all(dim=1).nonzero()[:, 0]
        assert unanswered.tolist() == list(range(64, 128))

    @pytest.mark.parametrize("size", [1, 7, 320])
    def test_are_noticed_at_the_same_sample_for_any_batch_size(self, size):
        watch, answers = self.ruined(size)
        twin, same = self.ruined(64)
        torch.testing.assert_close(answers, same, equal_nan=True)
        assert watch.events == twin.events

    def test_to_bad_samples_are_no_alarm_but_show_in_the_health(self):
        watch = tta.Watch(tta.NOTE(example_network()), **CLOSE)
        watch(example_images(256))
        bad = torch.full_like(example_images(200), torch.nan)
        with pytest.warns(RuntimeWarning):
            watch(bad)
        assert not watch.alarms
        assert str(watch.health) == "suspect: the last 200 samples were answered with NaN"
        watch(example_images(1))
        assert watch.health.state != "suspect"


def test_reset_returns_to_the_settings_at_construction():
    watch, other = tta.Watch(tta.NOTE(example_network())), tta.Watch(tta.NOTE(example_network()), look=256)
    watch.load_state_dict(other.state_dict())
    assert watch.look == 256
    watch.reset()
    assert watch.look == 1024


def test_rollbacks_on_request_during_a_rest_do_not_hide_its_alarm(poisoned):
    for _ in range(300):
        poisoned.roll_back()
    assert poisoned.health.state == "rolled back"
