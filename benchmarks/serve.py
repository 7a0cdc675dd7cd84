"""The service beside the same fleet in process: throughput, latency of single samples, and overload.

`python -m benchmarks.serve --out results/benchmarks/serve.json`. The server is a process of its own, the clients are
threads of this one. What is compared runs in turns, in one run.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import note_tta as tta
from note_tta.models import build_model
from note_tta.serve import Client, Limits, serve
from note_tta.serve.demo import CAMERAS
from note_tta.serve.limits import Refused

from .measure import Figure, free_port, quartiles, write_figures

STREAMS, BATCH, CLIENTS = 32, 16, 128
OFFERED = 4.5
"""Requests under overload, as a multiple of what the service can answer."""
ROOT = Path(__file__).resolve().parents[1]


def make_fleet() -> tta.Fleet:
    """ResNet-20 for CIFAR, whose weights do not matter for speed."""
    torch.manual_seed(0)
    return tta.Fleet(build_model("resnet20", num_classes=10, norm="iabn").eval())


def run_server(port: int, threads: int, queue: int) -> None:
    """The server's process."""
    torch.set_num_threads(threads)
    serve(make_fleet(), port=port, limits=Limits(rate=1e9, queue=queue))


class Served:
    """A server in a process of its own."""

    def __init__(self, threads: int, queue: int = 2048) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=run_server, args=(self.port, threads, queue), daemon=True)

    def __enter__(self) -> Served:
        self.process.start()
        while True:
            try:
                Client(self.address).ask("GET", "/readyz")
                return self
            except ConnectionError:
                time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.join(15)

    def megabytes(self) -> float:
        """The process's resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


def throughput(arguments: argparse.Namespace) -> Iterator[Figure]:
    """Samples per second over HTTP and in process, in turns, updates included."""
    samples, threads = arguments.samples, arguments.threads
    torch.set_num_threads(threads)
    x = torch.randint(0, 256, (BATCH, 3, 32, 32), dtype=torch.uint8)
    fleet = make_fleet()
    names = [f"s{k}" for k in range(STREAMS)]

    def in_process() -> float:
        start = time.perf_counter()
        for first in range(0, samples // BATCH, 4):
            ids = [names[(first + k) % STREAMS] for k in range(4) for _ in range(BATCH)]
            fleet(ids, (x.float() / 255).repeat(4, 1, 1, 1)).softmax(1).tolist()
        return samples / (time.perf_counter() - start)

    def over_http(server: Served) -> float:
        def send(share: int) -> None:
            client = Client(server.address)
            for k in range(share, samples // BATCH, 8):
                client.send(names[k % STREAMS], x.numpy())

        start = time.perf_counter()
        _together(send, 8)
        return samples / (time.perf_counter() - start)

    with Served(threads) as server:
        over_http(server), in_process()
        pairs = []
        for turn in range(arguments.rounds):
            if turn % 2:
                pairs.append((over_http(server), in_process()))
            else:
                inside = in_process()
                pairs.append((over_http(server), inside))
        ratios = [http / inside for http, inside in pairs]
    low, ratio, high = quartiles(ratios)
    name = f"throughput over HTTP ÷ the fleet in process, batches of {BATCH}"
    yield Figure(name, ratio, low, high, bar=0.8, at_most=False)


def latency(arguments: argparse.Namespace) -> Iterator[Figure]:
    """The 99th percentile of one sample's answer over HTTP, less that of a call of the fleet with one sample."""
    requests, threads = arguments.requests, arguments.threads
    torch.set_num_threads(threads)
    x = torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    fleet, inside, outside = make_fleet(), [], []
    with Served(threads) as server:
        client = Client(server.address)
        for k in range(requests):
            name = f"s{k % STREAMS}"
            start = time.perf_counter()
            client.send(name, x.numpy())
            middle = time.perf_counter()
            fleet([name], x.float() / 255)
            end = time.perf_counter()
            outside.append(1000 * (middle - start))
            inside.append(1000 * (end - middle))
    outside, inside = outside[requests // 10 :], inside[requests // 10 :]
    extra = _p99(outside) - _p99(inside)
    fifth = len(inside) // 5
    parts = [slice(k * fifth, (k + 1) * fifth) for k in range(5)]
    low, _, high = quartiles(_p99(outside[part]) - _p99(inside[part]) for part in parts)
    detail = {"p99_http_ms": _p99(outside), "p99_fleet_ms": _p99(inside)}
    detail |= {"median_http_ms": statistics.median(outside), "median_fleet_ms": statistics.median(inside)}
    yield Figure(
        "p99 of one sample over HTTP − the fleet's own", extra, low, high, 15.0, unit="ms", detail=detail
    )


def overload(arguments: argparse.Namespace) -> Iterator[Figure]:
    """As many samples as four times what the service can answer: what it says, what it takes, how it recovers."""
    seconds, threads = arguments.seconds, arguments.threads
    x = torch.randint(0, 256, (BATCH, 3, 32, 32), dtype=torch.uint8).numpy()
    with Served(threads, queue=512) as server:
        calls: Counter[str] = Counter()
        until = time.perf_counter() + 6

        def fill(share: int) -> None:
            own = Client(server.address)
            while time.perf_counter() < until:
                own.send(f"s{sum(calls.values()) % STREAMS}", x)
                calls[f"client {share}"] += 1

        _together(fill, 8)
        capacity = sum(calls.values()) / 6
        calm = server.megabytes()
        statuses: Counter[str] = Counter()
        memory: list[float] = []
        start = time.perf_counter()
        until, pause = start + seconds, CLIENTS / (OFFERED * capacity)

        def send(share: int) -> None:
            own, k = Client(server.address, timeout=60), share
            due = start + pause * share / CLIENTS
            while due < until:
                time.sleep(max(0.0, due - time.perf_counter()))
                k, due = k + 1, due + pause  # a slow answer does not make the next request come later
                try:
                    own.send(f"s{k % STREAMS}", x)
                    statuses["200"] += 1
                except Refused as refused:
                    statuses[str(refused.status)] += 1
                except ConnectionError:
                    statuses["no answer"] += 1
                if share == 0:
                    memory.append(server.megabytes())

        _together(send, CLIENTS)
        lasted, start = time.perf_counter() - start, time.perf_counter()
        Client(server.address).send("after", x)
        recovered = time.perf_counter() - start
        most, after = max(memory), server.megabytes()
    offered = sum(statuses.values()) / lasted / capacity
    others = sum(count for status, count in statuses.items() if status not in ("200", "429"))
    detail: dict[str, object] = {"seconds": lasted, "capacity per second": capacity, **statuses}
    name = f"overload for {seconds:g} s: requests ÷ what the service can answer"
    yield Figure(name, offered, offered, offered, 4.0, at_most=False, detail=detail)
    yield Figure("overload: requests neither answered nor refused with 429", others, others, others, 0.0)
    detail = {"before_mb": calm, "most_mb": most, "after_mb": after}
    yield Figure(
        "overload: most memory ÷ memory before", most / calm, most / calm, most / calm, 1.5, detail=detail
    )
    yield Figure("overload: answered again after", recovered, recovered, recovered, 5.0, unit="s")


def demo(arguments: argparse.Namespace) -> Iterator[Figure]:
    """From the command in a fresh clone to a dashboard that shows all of the demonstration's cameras."""
    with contextlib.ExitStack() as stack:
        folder = arguments.clone or Path(stack.enter_context(tempfile.TemporaryDirectory()), "clone")
        if not folder.exists():
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
            subprocess.run(["make", "--quiet", ".venv/.ready"], cwd=folder, check=True)
        seconds = [_until_all_are_shown(folder) for _ in range(3)]
    low, middle, high = quartiles(seconds)
    name = f"note-tta serve --demo, from a fresh clone: until {CAMERAS} streams are on the wall"
    yield Figure(name, middle, low, high, 60.0, unit="s")


def _until_all_are_shown(folder: Path) -> float:
    port, start, shown = free_port(), time.perf_counter(), 0
    command = [str(folder / ".venv" / "bin" / "note-tta"), "serve", "--demo", "--port", str(port)]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    while shown < CAMERAS:
        time.sleep(0.1)
        with contextlib.suppress(ConnectionError):
            shown = len(Client(f"http://127.0.0.1:{port}").ask("GET", "/streams")["streams"])
    seconds = time.perf_counter() - start
    process.terminate()
    process.wait(15)
    return seconds


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def _together(task: Any, count: int) -> None:
    threads = [threading.Thread(target=task, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    """Measure, print, and write where asked; the exit code is 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.serve", description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file, beside those it has")
    parser.add_argument(
        "--only", nargs="+", choices=[*PARTS], default=[*PARTS], help="measure these parts only"
    )
    parser.add_argument("--samples", type=int, default=2048, help="samples of one turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns")
    parser.add_argument("--requests", type=int, default=1000, help="single samples")
    parser.add_argument("--seconds", type=float, default=60, help="of overload")
    parser.add_argument(
        "--clone", type=Path, help="a fresh clone of this, made ready; made where it is not there"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads to compute with")
    arguments = parser.parse_args()
    figures = []
    for name in arguments.only:
        for figure in PARTS[name](arguments):
            figures.append(figure)
            print(f"{figure.name}: {figure.value:.3g} {figure.unit} {figure.detail or ''}", flush=True)
            if arguments.out:
                write_figures(arguments.out, figures, keep=len(arguments.only) < len(PARTS))
    return 0 if all(figure.kept for figure in figures) else 1


PARTS = {"throughput": throughput, "latency": latency, "overload": overload, "demo": demo}

if __name__ == "__main__":
    sys.exit(main())
