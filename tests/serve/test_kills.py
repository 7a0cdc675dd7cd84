"""Kill -9 of the server under load: each sample is learned from exactly once."""

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import note_tta as tta
from note_tta.serve import Client

from .helpers import free_port, same, small_model

ROOT = Path(__file__).parents[2]
KILLS = 30
STREAMS, CLIENTS, SAMPLES = 20, 4, 600


def start(store, port):
    code = [sys.executable, "-m", "tests.serve.app_for_kills", str(store), str(port)]
    process = subprocess.Popen(code, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            Client(f"http://127.0.0.1:{port}").ask("GET", "/readyz")
            return process
        except ConnectionError:
            assert process.poll() is None, process.stdout.read().decode()
            time.sleep(0.05)
    raise TimeoutError("the server does not come up")


def samples(stream):
    generator = torch.Generator().manual_seed(stream)
    return torch.randint(0, 256, (SAMPLES, 1, 8, 8), generator=generator).float() / 255


def send(address, streams, answers, done):
    """One client: its streams in turns, a few samples at a time, through every crash."""
    chance = random.Random(streams[0])
    client = Client(address)
    feeds = {stream: client.feed(f"s{stream}", patience=120) for stream in streams}
    data = {stream: samples(stream) for stream in streams}
    while any(feed.position < SAMPLES for feed in feeds.values()):
        for stream, feed in feeds.items():
            if feed.position < SAMPLES:
                answers[stream] += feed(data[stream][feed.position : feed.position + chance.randint(1, 9)])
    done.append(streams)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_thirty_kills_leave_every_stream_as_if_undisturbed(tmp_path):
    port, chance = free_port(), random.Random(0)
    process = start(tmp_path, port)
    answers, done = {stream: [] for stream in range(STREAMS)}, []
    shares = [list(range(k, STREAMS, CLIENTS)) for k in range(CLIENTS)]
    threads = [
        threading.Thread(target=send, args=(f"http://127.0.0.1:{port}", share, answers, done), daemon=True)
        for share in shares
    ]
    for thread in threads:
        thread.start()
    kills, seen = 0, 0
    while kills < KILLS and len(done) < CLIENTS:
        time.sleep(chance.uniform(0.05, 0.7))
        process.kill()
        process.wait()
        kills += 1
        process = start(tmp_path, port)
    for thread in threads:
        thread.join(300)
    assert len(done) == CLIENTS and kills == KILLS, (len(done), kills)
    states = {stream: Client(f"http://127.0.0.1:{port}").state(f"s{stream}") for stream in range(STREAMS)}
    process.terminate()
    assert process.wait(10) == 0
    for stream in range(STREAMS):
        undisturbed = tta.NOTE(small_model(), interval=16)
        expected = undisturbed(samples(stream)).softmax(1)
        state = tta.fleet.plain(tta.store.Codec().decode(states[stream]))
        assert same(state, undisturbed.state_dict()), stream
        found = torch.tensor([p for _, p in answers[stream]])
        off = (found - expected).abs().amax(1) > 1e-3
        seen += int(off.sum())
    # A sample whose answer was lost with the server after it was written is answered by the state of after it.
    assert seen <= 3 * KILLS * CLIENTS
