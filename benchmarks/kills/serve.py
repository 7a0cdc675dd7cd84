"""A service under load, killed again and again: each sample is learned from exactly once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from note_tta.fleet.codec import Codec
from note_tta.methods.packed import plain
from note_tta.serve import Client

from ..measure import free_port
from . import small

ROOT = Path(__file__).parents[2]
STREAMS, CLIENTS, SAMPLES, ENOUGH = 20, 4, 500, 50  # a stream of fewer samples is too short to judge


class Server:
    """A server that can be killed and started again, at one port and on one store."""

    def __init__(self, store: Path) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "benchmarks.kills.service", str(store), str(self.port)]
        self.starter = subprocess.Popen(
            command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert self.starter.stdin is not None and self.starter.stdout is not None
        print("start", file=self.starter.stdin, flush=True)
        self.process = int(self.starter.stdout.readline())
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            try:
                Client(self.address).ask("GET", "/readyz")
                return
            except ConnectionError:
                time.sleep(0.02)
        raise TimeoutError("the server does not come up")

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        os.kill(self.process, signal.SIGKILL)
        while Path(f"/proc/{self.process}").exists():
            time.sleep(0.005)

    def close(self) -> None:
        """Kill it for good."""
        self.kill()
        self.starter.communicate(timeout=10)


class Noting(Client):
    """A client that notes the answer to every sample that the server had not learned from before."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.noted: list[tuple[str, int, list[float]]] = []

    def send(self, stream: str, x: Any, sequence: int | None = None) -> dict[str, Any]:
        """Send samples and note the answers."""
        answer = super().send(stream, x, sequence)
        assert sequence is not None
        new = range(answer["repeated"], len(x))
        self.noted += [(stream, sequence + row, answer["probabilities"][row]) for row in new]
        return answer


def undisturbed_after(kills: int, folder: Path) -> int:
    """How many of twenty streams are, in answers and state, as if nothing had been killed.

    Args:
        kills: How often the server is killed while four clients send.
        folder: The server's store.
    """
    server, chance, over = Server(folder), random.Random(0), threading.Event()
    server.start()
    shares = [[f"{client}:{k}" for k in range(STREAMS // CLIENTS)] for client in range(CLIENTS)]
    clients = [Noting(server.address) for _ in shares]
    threads = [
        threading.Thread(target=_send, args=(client, share, over), daemon=True)
        for client, share in zip(clients, shares, strict=True)
    ]
    for thread in threads:
        thread.start()
    for _ in range(kills):
        _wait_for(clients, chance.randint(50, 300), chance)
        server.kill()
        server.start()
    over.set()
    for thread in threads:
        thread.join(600)
        if thread.is_alive():
            raise TimeoutError("a client does not come to its end")
    undisturbed = sum(
        _undisturbed(client, stream, number)
        for client, share in zip(clients, shares, strict=True)
        for number, stream in enumerate(share)
    )
    server.close()
    return undisturbed


def _wait_for(clients: list[Noting], more: int, chance: random.Random) -> None:
    """Wait until so many more samples are answered, ten seconds at most."""
    enough, until = sum(len(client.noted) for client in clients) + more, time.monotonic() + 10
    while sum(len(client.noted) for client in clients) < enough and time.monotonic() < until:
        time.sleep(chance.uniform(0.0005, 0.005))


def _send(client: Noting, streams: list[str], over: threading.Event) -> None:
    """One client: its streams in turns, a few samples at a time, through every crash, until each can be judged."""
    chance = random.Random(streams[0])
    feeds = [client.feed(stream, patience=900) for stream in streams]
    last = False
    while not last:
        # the last round brings all streams to where they were
        last = over.is_set() and min(feed.position for feed in feeds) >= ENOUGH
        for number, feed in enumerate(feeds):
            feed(_samples(number, range(feed.position, feed.position + chance.randint(1, 9))))


def _samples(number: int, wanted: range) -> Tensor:
    return small.images(SAMPLES, number)[[n % SAMPLES for n in wanted]]


def _undisturbed(client: Noting, stream: str, number: int) -> bool:
    """Whether a stream is as a method that saw each sample once, in order."""
    state = plain(Codec().decode(client.state(stream)))
    count = state["counters"]["samples"]
    method = small.method(small.network())
    expected = torch.cat([method(part) for part in _samples(number, range(count)).split(64)]).softmax(1)
    noted = [(n, p) for name, n, p in client.noted if name == stream]
    if count < ENOUGH or len(noted) < 0.5 * count:
        raise RuntimeError(
            f"stream {stream} has {count} samples, {len(noted)} of them answered: too few to judge"
        )
    places, answers = [n for n, _ in noted], torch.tensor([p for _, p in noted])
    return same(state, method.state_dict()) and torch.allclose(answers, expected[places], atol=1e-3)


def same(one: Any, other: Any) -> bool:
    """Whether two states are the same, tensors to rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, Tensor):
        return torch.allclose(one.double(), other.double(), atol=1e-5)
    return bool(one == other)
