"""Who wants to break the service: every request is answered, none with 500, and nothing is left outside the store."""

import io
import json
import os
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import note_tta as tta
from note_tta.serve import Client, Limits
from note_tta.serve.application import STATE

from .helpers import ask, running, small_model


def picture(kind, size=(8, 8)):
    file = io.BytesIO()
    Image.new("L", size, 77).save(file, kind)
    return file.getvalue()


def bomb():
    """A PNG of a few bytes that says it has four thousand million pixels."""

    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 65_000, 65_000, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + part(b"IHDR", header)
        + part(b"IDAT", zlib.compress(bytes(10**6)))
        + part(b"IEND", b"")
    )


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def good_bodies(client):
    """Bodies that are fine, by content type; damaged ones are made of them."""
    x = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)
    client.send("known", x)
    return {
        "application/x-npy": npy(x),
        "application/json": json.dumps({"samples": x.round(2).tolist()}).encode(),
        "image/png": picture("PNG"),
        "image/jpeg": picture("JPEG"),
        "image/webp": picture("WEBP"),
        "application/octet-stream": client.state("known"),
    }


def damaged(body, chance):
    data = bytearray(body)
    for _ in range(chance.randint(1, 8)):
        kind = chance.randrange(4)
        at = chance.randrange(max(1, len(data)))
        if kind == 0 and data:
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at : at + chance.randint(1, 30)]
        elif kind == 2:
            data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 30)))
        else:
            data = data[: at + 1]
    return bytes(data)


def memory_of_this_process():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def barrage(address, count, seed=0):
    """Requests of every kind to every address; the statuses they are answered with."""
    chance, client = random.Random(seed), Client(address)
    bodies = good_bodies(client)
    names = [
        "known",
        "new",
        "..",
        "%2e%2e%2fetc%2fpasswd",
        "a" * 200,
        "%00",
        "<b>",
        "con",
        "a b".replace(" ", "%20"),
        "%ff",
    ]
    actions = ["samples", "state", "reset", "rollback", "pause", "resume", "memory", "", "nothing", "../../x"]
    verbs = ["POST", "PUT", "GET", "DELETE", "PATCH", "HEAD", "OPTIONS"]
    statuses = {}
    for _ in range(count):
        kind = chance.choice(list(bodies))
        body = damaged(bodies[kind], chance) if chance.random() < 0.8 else bodies[kind]
        if chance.random() < 0.3:
            kind = chance.choice([*bodies, "text/html", "", "image/png; x=\u00ff"])
        action = "samples" if chance.random() < 0.5 else chance.choice(actions)
        verb = (
            {"samples": "POST", "state": "PUT"}.get(action, "GET")
            if chance.random() < 0.7
            else chance.choice(verbs)
        )
        query = chance.choice(
            ["", "", "?sequence=0", "?sequence=-1", "?sequence=99999", "?sequence=abc", "?x=%ff"]
        )
        path = f"/streams/{chance.choice(names)}/{action}{query}"
        status, _, content = ask(address, verb, path, None if verb == "HEAD" else body, content_type=kind)
        assert status < 500, (verb, path, kind, status, content[:200])
        statuses[status] = statuses.get(status, 0) + 1
    return statuses


def forged(record, chance):
    """A state with something else in its header, and a checksum that is right: damage that is not found at once."""
    start = record.index(b"{")
    length = int(record[16:28])
    header = json.loads(record[start : start + length])
    layouts, content = record[start + length :], b""
    if layouts:
        size = sum(header["layouts"])
        layouts, content = layouts[:size], layouts[size + -(start + length + size) % 16 :]
    nodes = [node for node in inside(header) if isinstance(node, dict | list) and node]
    for _ in range(chance.randint(1, 2)):
        node = chance.choice(nodes)
        place = chance.choice([*node]) if isinstance(node, dict) else chance.randrange(len(node))
        old = node[place]
        node[place] = old + chance.choice((-1, 1, 1000)) if type(old) is int else chance.choice(STRANGE)
    head = json.dumps(header).encode() + layouts
    length = len(head) - len(layouts)
    body = head + bytes(-len(head) % 16) + content
    return record[:16] + b"%12d%12d" % (length, zlib.crc32(body)) + record[40:start] + body


STRANGE = (
    None, True, -1, 2**40, 1.5, float("inf"), float("nan"), "x", [], [-1], [10**9], [64, 1, 8, 8], "float64", "int64",
    {"dict": []}, {"tensor": 0}, {"tensor": 99}, {"tuple": []}, {"packed": [0, [0]]},
)  # fmt: skip


def inside(node):
    """A node of JSON and all that is in it."""
    yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from inside(child)


def test_forged_states_are_refused_or_harmless():
    chance, x = random.Random(0), np.random.default_rng(0).random((70, 1, 8, 8), np.float32)
    make = lambda model: tta.NOTE(model, tta.PBRS(8), interval=8)  # noqa: E731
    with running(tta.Fleet(small_model(), make), limits=Limits(rate=1e6)) as address:
        client = Client(address)
        client.send("good", x)
        state, statuses = client.state("good"), set()
        for _ in range(200):
            body = forged(state, chance)
            status, _, content = ask(address, "PUT", "/streams/other/state", body, content_type=STATE)
            assert status in (200, 422), content
            statuses.add(status)
            if status == 200:
                for verb, action in (
                    ("POST", "samples"),
                    ("GET", "memory"),
                    ("GET", "state"),
                    ("POST", "reset"),
                ):
                    body = npy(x[:9]) if action == "samples" else None
                    path = f"/streams/other/{action}"
                    status, _, content = ask(address, verb, path, body, content_type="application/x-npy")
                    assert status < 500, (action, content)
        assert statuses == {200, 422}
        assert client.state("good") == state


def test_a_bomb_is_refused_before_it_is_unpacked(client):
    address = f"http://127.0.0.1:{client._connection.port}"
    before = memory_of_this_process()
    for _ in range(5):
        status, _, content = ask(address, "POST", "/streams/a/samples", bomb(), content_type="image/png")
        assert status == 413 and b"more than 4,000,000 pixels" in content
    assert memory_of_this_process() - before < 50


def nothing_but_the_store(folder):
    expected = {"store"} | {f"store/streams.sqlite{end}" for end in ("", "-wal", "-shm")}
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} <= expected


def test_hostile_requests_are_refused_one_by_one(tmp_path):
    store = tmp_path / "store"
    with running(tta.Fleet(small_model(), spill=store), limits=Limits(rate=1e6, streams=50)) as address:
        statuses = barrage(address, 300)
        assert statuses.keys() >= {200, 400, 404, 405, 422}
        assert len(Client(address).send("known", np.zeros((1, 1, 8, 8), np.float32))["classes"]) == 1
    assert nothing_but_the_store(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_hostile_requests_leave_nothing_behind(tmp_path):
    store = tmp_path / "store"
    with running(tta.Fleet(small_model(), spill=store), limits=Limits(rate=1e6, streams=50)) as address:
        barrage(address, 2000)
        before = memory_of_this_process()
        barrage(address, 8000, seed=1)
        assert memory_of_this_process() - before < 60
    assert nothing_but_the_store(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_service_keeps_to_its_schema():
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, settings
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    with running(tta.Fleet(small_model()), limits=Limits(rate=1e6, streams=50, viewers=0)) as address:
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
        tried = set()
        for result in schema.get_all_operations():
            operation = result.ok()

            valid, invalid = (
                operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode
            )

            @given(case=valid | invalid)
            @settings(max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            def check(case):
                response = case.call(base_url=address)
                assert response.status_code < 500
                # A schema cannot say what an npy file or a state is, so what fits it may be refused.
                case.validate_response(response, excluded_checks=[positive_data_acceptance])

            check()
            tried.add(operation.label)
        assert len(tried) == 15
