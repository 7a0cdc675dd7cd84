import asyncio
import json

from note_tta.serve import wall as module
from note_tta.serve.record import USUAL, Record
from note_tta.serve.wall import Wall


def record(*confidences):
    made = Record()
    for confidence in confidences:
        for _ in range(USUAL):
            made.count([1], [confidence])
    return made


def test_the_worst_come_first_and_sleepers_are_counted():
    records = {"calm": record(0.95), "worst": record(0.9, 0.5), "unsure": record(0.7)}
    shown = Wall(records, {*records, "asleep-1", "asleep-2"}, lambda: False).look()
    assert [stream["id"] for stream in shown["streams"]] == ["worst", "unsure", "calm"]
    assert shown["states"] == {"steady": 2, "drifting": 1, "asleep": 2} and shown["count"] == 5


def test_of_many_streams_those_with_most_trouble_are_shown(monkeypatch):
    monkeypatch.setattr(module, "SHOWN", 2)
    records = {f"s{k}": record(0.9 - 0.1 * k) for k in range(4)}
    shown = Wall(records, set(records), lambda: False).look()
    assert [stream["id"] for stream in shown["streams"]] == ["s3", "s2"] and shown["count"] == 4


def test_only_streams_that_changed_get_a_point_of_history():
    records = {"a": record(0.9), "b": record(0.9)}
    wall = Wall(records, set(records), lambda: False)
    wall.mark()
    records["a"].count([1], [0.9])
    wall.mark()
    assert [len(records[name].times) for name in "ab"] == [2, 1]


def test_pages_are_sent_each_look_once_until_the_end(monkeypatch):
    monkeypatch.setattr(module, "EVERY", 0.01)
    stop = []
    wall = Wall({"a": record(0.9)}, {"a"}, lambda: bool(stop))

    async def watch():
        wall.mark()
        seen = []
        async for event in wall.live():
            assert wall.viewers == 1 and event.startswith("data: ") and event.endswith("\n\n")
            seen.append(json.loads(event[6:]))
            if len(seen) == 2:
                stop.append(True)
            await asyncio.sleep(0.02)
            wall.mark()
        return seen

    seen = asyncio.run(asyncio.wait_for(watch(), 10))
    assert len(seen) == 2 and seen[0]["streams"][0]["id"] == "a" and wall.viewers == 0
