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
