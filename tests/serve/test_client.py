import threading
import time

import pytest
import torch
import uvicorn

import note_tta as tta
from note_tta.serve import Client
from note_tta.serve.limits import Refused
from note_tta.serve.server import make_server

from .helpers import free_port, running, same


def test_a_feed_goes_on_where_the_stream_is(client, x):
    feed = client.feed("a")
    assert feed.position == 0
    feed(x[:30])
    assert Client(f"http://127.0.0.1:{client._connection.port}").feed("a").position == 30
    assert len(feed(x[30:32])) == 2


def test_a_feed_learns_each_sample_once_through_a_crash(model, serving, x, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    with serving(tta.Fleet(model, spill=first)) as address:
        feed = Client(address).feed("a")
        for start in range(0, 100, 10):
            feed(x[start : start + 10])
        feed.client.ask("GET", "/healthz")
        (second).mkdir()
        for file in first.iterdir():  # what a kill would leave
            (second / file.name).write_bytes(file.read_bytes())
    with serving(tta.Fleet(model, spill=second)) as address:
        feed.client = Client(address)
        answers = [feed(x[start : start + 10]) for start in range(100, 200, 10)]
        found = Client(address).stream("a")["counters"]["samples"]
    assert found == 200
    whole = tta.NOTE(model)
    expected = torch.cat([whole(x[:100]), whole(x[100:200])]).softmax(1)
    assert torch.allclose(torch.tensor([p for part in answers for _, p in part]), expected[100:], atol=1e-4)
    with tta.Fleet(model, spill=second) as fleet:
        assert same(fleet.state_dict("a"), whole.state_dict())


def test_a_feed_waits_for_a_server_that_is_away(model, x):
    port, begun = free_port(), []
    client = Client(f"http://127.0.0.1:{port}")
    with pytest.raises(ConnectionError):
        client.feed("cam-1", patience=0.2)
    thread = threading.Thread(target=lambda: begun.append(client.feed("cam-1")(x[:2])))
    thread.start()
    time.sleep(0.3)
    server = make_server(tta.Fleet(model), "127.0.0.1", port)
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    thread.join(30)
    server.should_exit = True
    serving.join(20)
    assert len(begun[0]) == 2


def test_a_feed_keeps_only_what_is_not_durable(model, serving, x, tmp_path):
    with serving(tta.Fleet(model, spill=tmp_path)) as address:
        feed = Client(address).feed("a")
        for start in range(0, 200, 20):
            feed(x[start : start + 20])
        assert min(feed._kept) == 192


def test_a_feed_that_no_longer_has_what_the_server_wants_says_so(client, x):
    feed = client.feed("a")
    feed(x[:10])
    client.ask("DELETE", "/streams/a")
    with pytest.raises(LookupError, match="the server wants sample 0 of a, which is gone here"):
        feed(x[10:20])


def test_a_client_without_a_server_says_so(x):
    with pytest.raises(ConnectionError, match="no answer from the service"):
        Client(f"http://127.0.0.1:{free_port()}").send("a", x[:1])


def test_a_connection_that_was_idle_for_long_is_made_anew(model, x, monkeypatch):
    config = uvicorn.Config
    monkeypatch.setattr(
        uvicorn, "Config", lambda *args, **more: config(*args, **more | {"timeout_keep_alive": 1})
    )
    with running(tta.Fleet(model)) as address:
        client = Client(address)
        client.send("a", x[:1])
        time.sleep(2.5)
        assert client.send("a", x[:1])["samples"] == 2


def test_a_mistake_is_not_tried_again(client):
    with pytest.raises(Refused) as refused:
        client.feed("a")(torch.zeros(1, 1, 3, 3))
    assert refused.value.status == 422


def test_an_address_is_checked():
    with pytest.raises(ValueError, match=r"address must be like http://127\.0\.0\.1:8000, got 'localhost'"):
        Client("localhost")
