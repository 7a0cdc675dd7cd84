"""The service over real HTTP."""

import http.client
import io
import json
import re
import threading
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from PIL import Image

import note_tta as tta
from note_tta.serve import Client, Limits
from note_tta.serve.limits import Refused

from .helpers import ask


@pytest.fixture
def address(model, serving):
    with serving(tta.Fleet(model)) as address:
        yield address


def test_answers_are_the_methods_own(client, model, x):
    method = tta.NOTE(model)
    states = []
    for start in range(0, 200, 20):
        answer = client.send("cam-1", x[start : start + 20])
        expected = method(x[start : start + 20]).softmax(1)
        assert torch.allclose(torch.tensor(answer["probabilities"]), expected, atol=1e-4)
        states.append(answer["health"]["state"])
    assert answer["samples"] == 200 and answer["repeated"] == 0 and answer["durable"] is None
    assert states == ["learning"] * 6 + ["steady"] * 4


def test_npy_json_and_png_are_answered_alike(address, x):
    image = (x[0, 0] * 255).round().byte().numpy()
    file, picture = io.BytesIO(), io.BytesIO()
    np.save(file, image[None, None])
    Image.fromarray(image).save(picture, "PNG")
    answers = []
    for name, kind, body in (
        ("a", "application/x-npy", file.getvalue()),
        ("b", "application/json", json.dumps({"samples": x[:1].tolist()}).encode()),
        ("c", "image/png", picture.getvalue()),
    ):
        status, _, content = ask(address, "POST", f"/streams/{name}/samples", body, content_type=kind)
        assert status == 200, content
        answers.append(json.loads(content)["probabilities"])
    assert answers[0] == answers[1] == answers[2]


def test_a_stream_can_be_asked_about_changed_and_forgotten(client, x):
    client.send("cam-1", x[:100])
    page = client.stream("cam-1")
    assert page["counters"]["samples"] == 100 and page["counters"]["updates"] == 1
    for what in ("pause", "resume", "rollback", "reset"):
        assert client.ask("POST", f"/streams/cam-1/{what}")["id"] == "cam-1"
    assert [event["kind"] for event in client.stream("cam-1")["events"]] == [
        "pause",
        "resume",
        "rollback",
        "reset",
    ]
    assert len(client.ask("GET", "/streams/cam-1/memory")["labels"]) == 0
    assert [one["id"] for one in client.ask("GET", "/streams")["streams"]] == ["cam-1"]
    assert client.put_state("cam-2", client.state("cam-1"))["samples"] == 100
    client.ask("DELETE", "/streams/cam-1")
    with pytest.raises(Refused, match="there is no stream cam-1"):
        client.stream("cam-1")


def test_a_gap_says_what_comes_next(client, x):
    with pytest.raises(Refused, match="at most 0, got 5") as refused:
        client.send("cam-1", x[:1], 5)
    assert refused.value.status == 409 and refused.value.details == {"expected": 0}


def test_a_repeat_of_another_size_is_refused(client, x):
    client.send("cam-1", x[:2])
    with pytest.raises(Refused, match="holds samples of shape") as refused:
        client.send("cam-1", x[:2, :, 1:], 0)
    assert refused.value.status == 422


@pytest.mark.parametrize("sequence", ["-1", "x", "1.5", "", "9" * 30, "%C2%B2"])
def test_a_sequence_is_a_whole_number(address, sequence):
    status, _, content = ask(address, "POST", f"/streams/a/samples?sequence={sequence}", b"x")
    assert status == 400 and b"sequence must be a whole number" in content


@pytest.mark.parametrize(
    "name", ["..", ".hidden", "a%2Fb", "%00", "a%20b", "%3Cscript%3E", "x" * 129, "é", "-x", "a%0A"]
)
def test_ids_that_could_be_paths_or_markup_are_refused(address, name):
    name = name.replace("é", "%C3%A9")
    for verb, path in (
        ("GET", ""),
        ("POST", "/samples"),
        ("POST", "/reset"),
        ("PUT", "/state"),
        ("DELETE", ""),
    ):
        status, headers, content = ask(
            address, verb, f"/streams/{name}{path}", b"" if verb != "GET" else None
        )
        assert status in (400, 404), (verb, path, status)
        assert headers.get_content_type() == "application/json" and b"<" not in content


def test_too_large_bodies_are_refused_declared_or_not(model, serving):
    with serving(tta.Fleet(model), limits=Limits(body=1000)) as address:
        status, _, content = ask(
            address, "POST", "/streams/a/samples", bytes(1001), content_type="application/x-npy"
        )
        assert status == 413 and b"the limit is 1000" in content
        chunks = (bytes(100) for _ in range(20))
        status, _, content = ask(
            address, "POST", "/streams/a/samples", chunks, content_type="application/x-npy"
        )
        assert status == 413 and b"more than 1000 bytes" in content


def test_a_slow_body_is_given_up(model, serving):
    with serving(tta.Fleet(model), limits=Limits(patience=0.2)) as address:
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
        connection.putrequest("POST", "/streams/a/samples")
        connection.putheader("Content-Length", "10")
        connection.endheaders()
        assert connection.getresponse().status == 408
        connection.close()


def test_what_requests_take_together_is_limited(model, serving, x):
    with serving(tta.Fleet(model), limits=Limits(pending=2000)) as address:
        client = Client(address)
        client.send("a", x[:1])
        with pytest.raises(Refused, match="too much is being sent at once") as refused:
            client.send("a", x[:20])
        assert refused.value.status == 429
        for _ in range(20):
            client.send("a", x[:1])


def test_a_stream_that_sends_too_fast_is_told(model, serving, x):
    with serving(tta.Fleet(model), limits=Limits(rate=0.1)) as address:
        client = Client(address)
        client.send("a", x[:1])
        with pytest.raises(Refused, match=r"faster than 0\.1 samples per second") as refused:
            client.send("a", x[:1])
        assert refused.value.status == 429
        client.send("b", x[:1])


def test_many_clients_at_once_each_get_their_own_answers(address, model, x):
    answers = {}

    def send(name, start):
        client = Client(address)
        answers[name] = [client.send(name, x[i : i + 5]) for i in range(start, start + 100, 5)]

    threads = [threading.Thread(target=send, args=(f"cam-{k}", 10 * k)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for k in range(8):
        method = tta.NOTE(model)
        expected = [method(x[i : i + 5]).softmax(1) for i in range(10 * k, 10 * k + 100, 5)]
        found = [torch.tensor(answer["probabilities"]) for answer in answers[f"cam-{k}"]]
        assert torch.allclose(torch.cat(found), torch.cat(expected), atol=1e-4)


def test_metrics_count_samples(client, x):
    client.send("a", x[:7])
    text = client.ask("GET", "/metrics").decode()
    assert re.search(r"^note_tta_samples_total 7\.0$", text, re.M)
    assert re.search(r'^note_tta_streams\{state="learning"\} 1\.0$', text, re.M)


def test_metrics_count_repeated_and_refused_samples_as_such(model, serving, x):
    with serving(tta.Fleet(model), limits=Limits(streams=1)) as address:
        client = Client(address)
        client.send("a", x[:7], 0)
        client.send("a", x[:9], 0)
        client.send("a", x[:9], 0)
        for stream, samples, sequence in (("a", x[:5], 50), ("a", x[:3, :, 1:], None), ("b", x[:2], None)):
            with pytest.raises(Refused):
                client.send(stream, samples, sequence)
        text = client.ask("GET", "/metrics").decode()
    assert re.search(r"^note_tta_samples_total 9\.0$", text, re.M)
    assert re.search(r"^note_tta_call_samples_count 2\.0$", text, re.M)
    for status in (409, 422, 429):
        assert f'note_tta_refused_samples_total{{status="{status}"}} 1.0' in text


def test_it_says_whether_it_lives_and_what_it_can_do(client):
    assert client.ask("GET", "/healthz") == {"alive": True}
    assert client.ask("GET", "/readyz") == {"ready": True}
    assert "/streams/{id}/samples" in client.ask("GET", "/openapi.json")["paths"]


def test_the_wall_is_sent_live(address, x):
    Client(address).send("cam-1", x[:5])
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    connection.request("GET", "/live")
    response = connection.getresponse()
    assert response.headers.get_content_type() == "text/event-stream"
    seen = {}
    while not seen.get("streams"):
        line = response.fp.readline()
        if line.startswith(b"data: "):
            seen = json.loads(line[6:])
    assert seen["streams"][0]["id"] == "cam-1"
    connection.close()


def test_open_pages_are_limited(model, serving):
    with serving(tta.Fleet(model), limits=Limits(viewers=0)) as address:
        status, _, content = ask(address, "GET", "/live")
        assert status == 429 and b"0 pages are open" in content


def test_an_error_of_ours_is_500_and_tells_nothing(model, serving, monkeypatch):
    fleet = tta.Fleet(model)
    monkeypatch.setattr(type(fleet), "durable", lambda self, stream: 1 / 0)
    with serving(fleet) as address:
        body = json.dumps({"samples": torch.zeros(1, 1, 8, 8).tolist()})
        status, _, content = ask(address, "POST", "/streams/a/samples", body, content_type="application/json")
        assert status == 500 and json.loads(content) == {
            "reason": "an error in the service: its log says which"
        }
        assert ask(address, "GET", "/healthz")[0] == 200
