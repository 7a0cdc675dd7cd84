"""What comes over the wire: long and slow requests end, others are answered."""

import http.client
import io
import itertools
import socket
import time
from urllib.parse import urlsplit

import numpy as np
import pytest

import note_tta as tta
from note_tta.serve import Client, Limits
from note_tta.serve.protocol import HEAD

from .helpers import ask, running, small_model

START = b"POST /streams/a/samples HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-npy\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "first line": (b"GET /", b"a" * 1000),
    "headers": (START, b"x: " + b"a" * 1000 + b"\r\n"),
    "one header": (START + b"x: ", b"a" * 1000),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\n", b"x: " + b"a" * 1000 + b"\r\n"),
    "one trailer": (CHUNKED + b"1\r\na\r\n0\r\nx: ", b"a" * 1000),
    "words about a chunk": (CHUNKED + b"1;", b"a" * 1000),
}


def connect(address):
    return socket.create_connection(("127.0.0.1", urlsplit(address).port), timeout=20)


@pytest.mark.parametrize(("start", "more"), ENDLESS.values(), ids=ENDLESS)
def test_what_never_ends_is_cut_off(start, more):
    with running(tta.Fleet(small_model())) as address, connect(address) as sender:
        sender.sendall(start)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in itertools.takewhile(lambda sent: sent < 100, itertools.count()):
                sender.sendall(more * 100)
        assert ask(address, "GET", "/healthz")[0] == 200


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\nHost: 127", CHUNKED + b"5\r\nab"])
def test_who_sends_nothing_more_is_cut_off(start):
    limits = Limits(patience=0.2)
    with running(tta.Fleet(small_model()), limits=limits) as address, connect(address) as sender:
        sender.sendall(start)
        began = time.monotonic()
        while sender.recv(1000):
            pass
        assert time.monotonic() - began < 10


def test_a_page_may_stay_open():
    with running(tta.Fleet(small_model()), limits=Limits(patience=0.5)) as address:
        client = Client(address)
        client.send("a", np.zeros((1, 1, 8, 8)))
        page = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
        page.request("GET", "/live")
        lines = page.getresponse()
        assert lines.readline()
        time.sleep(1.5)  # more than a request may take
        client.send("a", np.zeros((1, 1, 8, 8)))
        assert any(b'"samples":2,' in lines.readline() for _ in range(20))
        page.close()


def test_a_long_body_may_come_in_chunks():
    file = io.BytesIO()
    np.save(file, np.zeros((4, 1, 128, 128), np.float32))
    body = file.getvalue()
    assert len(body) > 3 * HEAD
    chunks = (body[at : at + 8192] for at in range(0, len(body), 8192))
    with running(tta.Fleet(small_model())) as address:
        status, _, content = ask(
            address, "POST", "/streams/a/samples", chunks, content_type="application/x-npy"
        )
    assert status == 422 and b"128" in content, content
