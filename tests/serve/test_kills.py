"""Kill -9 of the server under load: each sample is learned from exactly once."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import note_tta as tta
from note_tta.fleet.store import Codec
from note_tta.methods.packed import plain
from note_tta.serve import Client

from .helpers import free_port, same, small_model

ROOT = Path(__file__).parents[2]
KILLS = 30
STREAMS, CLIENTS, SAMPLES = 20, 4, 500


class Server:
    """A server that can be killed and started again, at one port and on one store."""

    def __init__(self, store):
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        code = [sys.executable, "-m", "tests.serve.app_for_kills", str(store), str(self.port)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.starter = subprocess.Popen(code, cwd=ROOT, text=True, **pipes)

    def start(self):
        print("start", file=self.starter.stdin, flush=True)
        self.process = int(self.starter.stdout.readline())
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                return Client(self.address).ask("GET", "/readyz")
            except ConnectionError:
                time.sleep(0.02)
        raise TimeoutError("the server does not come up")

    def kill(self):
        os.kill(self.process, signal.SIGKILL)
        while Path(f"/proc/{self.process}").exists():
            time.sleep(0.005)

    def close(self):
        self.kill()
        self.starter.stdin.close()
        self.starter.wait(10)
        self.starter.stdout.close()


def samples(stream):
    generator = torch.Generator().manual_seed(stream)
    return torch.randint(0, 256, (SAMPLES, 1, 8, 8), generator=generator).float() / 255


class Noting(Client):
    """A client that notes the answer to every sample that the server had not learned from before."""

    def __init__(self, address):
        super().__init__(address)
        self.noted = []

    def send(self, stream, x, sequence=None):
        answer = super().send(stream, x, sequence)
        new = range(answer["repeated"], len(x))
        self.noted += [(stream, sequence + row, answer["probabilities"][row]) for row in new]
        return answer


def send(client, streams, kills):
    """One client: its streams in turns, a few samples at a time, through every crash."""
    chance = random.Random(streams[0])
    feeds = {stream: client.feed(stream, patience=120) for stream in streams}
    data = {stream: samples(number) for number, stream in enumerate(streams)}
    over = False
    while not over:
        over = len(kills) >= KILLS  # the last round brings all streams to where they were
        for stream, feed in feeds.items():
            wanted = range(feed.position, feed.position + chance.randint(1, 9))
            feed(data[stream][[n % SAMPLES for n in wanted]])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="it needs /proc to see that a process is gone")
def test_thirty_kills_leave_every_stream_as_if_undisturbed(tmp_path):
    server, chance, kills = Server(tmp_path), random.Random(0), []
    server.start()
    shares = [[f"{client}:{k}" for k in range(STREAMS // CLIENTS)] for client in range(CLIENTS)]
    clients = [Noting(server.address) for _ in shares]
    threads = [
        threading.Thread(target=send, args=(client, share, kills), daemon=True)
        for client, share in zip(clients, shares, strict=True)
    ]
    for thread in threads:
        thread.start()

    def answered():
        return sum(len(client.noted) for client in clients)

    while len(kills) < KILLS:
        enough, until = answered() + chance.randint(50, 300), time.monotonic() + 10
        while answered() < enough and time.monotonic() < until:
            time.sleep(chance.uniform(0.0005, 0.005))
        server.kill()
        server.start()
        kills.append(time.monotonic())
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    for client, share in zip(clients, shares, strict=True):
        for number, stream in enumerate(share):
            state = plain(Codec().decode(client.state(stream)))
            check_undisturbed(
                state, samples(number), [(n, p) for name, n, p in client.noted if name == stream]
            )
    server.close()


def check_undisturbed(state, x, noted):
    """A state and answers are those of a method that saw each sample once, in order."""
    count = state["counters"]["samples"]
    method = tta.NOTE(small_model(), interval=16)
    x = x[[n % SAMPLES for n in range(count)]]
    expected = torch.cat([method(part) for part in x.split(64)]).softmax(1)
    assert same(state, method.state_dict())
    assert count > 100 and len(noted) > 0.5 * count
    found = torch.tensor([p for _, p in noted])
    assert torch.allclose(found, expected[[n for n, _ in noted]], atol=1e-3)
