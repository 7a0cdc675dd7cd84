import json

import pytest

import note_tta as tta
from note_tta.serve import Client
from note_tta.serve.limits import Refused
from note_tta.serve.server import check_address

from .helpers import ask

TOKEN = "a-token-of-many-letters"


@pytest.fixture
def guarded(model, serving):
    with serving(tta.Fleet(model), token=TOKEN) as address:
        yield address


def test_a_token_is_needed_for_all_that_tells_or_changes(guarded):
    document = json.loads(ask(guarded, "GET", "/openapi.json")[2])
    tried = 0
    for path, item in document["paths"].items():
        for verb in item.keys() & {"get", "post", "put", "delete"}:
            if path in ("/healthz", "/readyz"):
                continue
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}):
                status, found, _ = ask(guarded, verb.upper(), path.replace("{id}", "a"), **headers)
                assert status == 401 and found["WWW-Authenticate"] == "Bearer"
                tried += 1
    assert tried > 30


def test_with_the_token_it_answers(guarded, x):
    assert Client(guarded, TOKEN).send("a", x[:2])["samples"] == 2
    with pytest.raises(Refused, match="the token is missing or wrong"):
        Client(guarded, TOKEN + "x").send("a", x[:2])
    with pytest.raises(Refused, match="the token is missing or wrong"):
        Client(guarded).send("a", x[:2])


def test_the_empty_page_and_the_signs_of_life_are_open(guarded):
    for path in ("/", "/healthz", "/readyz", "/openapi.json", "/static/main.js"):
        assert ask(guarded, "GET", path)[0] == 200, path


def test_tokens_are_compared_in_constant_time(monkeypatch):
    from note_tta.serve import guard

    seen = []
    monkeypatch.setattr(guard.hmac, "compare_digest", lambda a, b: seen.append((a, b)) or True)
    guard.Guard(None, "right").check("/streams", guard.Headers({"authorization": "Bearer é", "host": "x"}))
    assert seen == [("é".encode(), b"right")]


def test_without_a_token_another_host_name_is_refused(client):
    address = f"http://127.0.0.1:{client._connection.port}"
    for host in (
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "",
        "[",
        "localhost@evil.example",
    ):
        assert ask(address, "GET", "/streams", host=host)[0] == 403, host
    for host in ("localhost", "127.0.0.1:1", "127.0.0.2:1", "[::1]:8000"):
        assert ask(address, "GET", "/streams", host=host)[0] == 200, host


def test_a_page_from_elsewhere_is_refused(client):
    address = f"http://127.0.0.1:{client._connection.port}"
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://["):
        assert ask(address, "POST", "/streams/a/reset", origin=origin)[0] == 403, origin
    assert ask(address, "POST", "/streams/a/reset", origin=address)[0] == 404


def test_every_answer_has_strict_headers(guarded):
    for path in ("/", "/streams", "/nowhere", "/static/main.js"):
        headers = ask(guarded, "GET", path)[1]
        assert headers["X-Frame-Options"] == "DENY" and headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["Server"] is None


@pytest.mark.parametrize(
    "path", ["/static/../desk.py", "/static/%2e%2e/desk.py", "/static//etc/passwd", "/static/..%2fdesk.py"]
)
def test_files_beside_the_page_are_out_of_reach(guarded, path):
    assert ask(guarded, "GET", path)[0] == 404


def test_others_may_not_ask_without_a_token():
    for host in ("127.0.0.1", "::1", "localhost"):
        check_address(host, None)
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.com"):
        with pytest.raises(ValueError, match=f"others can reach {host}: give a token"):
            check_address(host, None)
        check_address(host, TOKEN)
    with pytest.raises(ValueError, match="at least 16 characters, got 5"):
        check_address("127.0.0.1", "short")
