"""The service beside the same fleet in process: throughput, latency of single samples, and overload.

`python -m benchmarks.serve --out results/benchmarks/serve.json`. The server is a process of its own, the clients are
threads of this one. What is compared runs in turns, in one run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import statistics
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import note_tta as tta
from note_tta.models import build_model
from note_tta.provenance import provenance
from note_tta.serve import Client, Limits, serve
from note_tta.serve.limits import Refused

STREAMS, BATCH = 32, 16


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
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
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


def throughput(arguments: argparse.Namespace) -> dict[str, Any]:
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
    ratio = statistics.median(ratios)
    return {"ratio": ratio, "ratios": ratios, "bar": 0.8, "kept": ratio >= 0.8}


def latency(arguments: argparse.Namespace) -> dict[str, Any]:
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
    p99 = [statistics.quantiles(values[requests // 10 :], n=100)[98] for values in (outside, inside)]
    medians = [statistics.median(values) for values in (outside, inside)]
    names = ("http_ms", "fleet_ms")
    return {
        "extra_ms": p99[0] - p99[1],
        "p99": dict(zip(names, p99, strict=True)),
        "median": dict(zip(names, medians, strict=True)),
        "bar": 15.0,
        "kept": p99[0] - p99[1] <= 15,
    }


def overload(arguments: argparse.Namespace) -> dict[str, Any]:
    """As many samples as four times what the service can answer: what it says, what it takes, how it recovers."""
    seconds, threads = arguments.seconds, arguments.threads
    x = torch.randint(0, 256, (BATCH, 3, 32, 32), dtype=torch.uint8).numpy()
    with Served(threads, queue=512) as server:
        client, start, sent = Client(server.address), time.perf_counter(), 0
        while time.perf_counter() - start < 5:
            client.send(f"s{sent % STREAMS}", x)
            sent += 1
        capacity = sent / (time.perf_counter() - start)
        calm = server.megabytes()
        statuses: Counter[str] = Counter()
        memory: list[float] = []
        until = time.perf_counter() + seconds
        pause = 64 / (4 * capacity)

        def send(share: int) -> None:
            own, k = Client(server.address, timeout=60), share
            while time.perf_counter() < until:
                k, began = k + 1, time.perf_counter()
                try:
                    own.send(f"s{k % STREAMS}", x)
                    statuses["200"] += 1
                except Refused as refused:
                    statuses[str(refused.status)] += 1
                except ConnectionError:
                    statuses["no answer"] += 1
                time.sleep(max(0.0, pause - (time.perf_counter() - began)))
                if share == 0:
                    memory.append(server.megabytes())

        _together(send, 64)
        start = time.perf_counter()
        client.send("after", x)
        recovered = time.perf_counter() - start
        offered = sum(statuses.values()) / seconds
        return {
            "offered_per_capacity": offered / capacity,
            "statuses": dict(statuses),
            "megabytes": {"before": calm, "most": max(memory), "after": server.megabytes()},
            "recovered_after_s": recovered,
            "bar": 5.0,
            "kept": recovered <= 5 and statuses.keys() <= {"200", "429"},
        }


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
    parser.add_argument("--threads", type=int, default=2, help="threads to compute with")
    arguments = parser.parse_args()
    figures = {name: PARTS[name](arguments) for name in arguments.only}
    print(json.dumps(figures, indent=2))
    if arguments.out:
        for figure in figures.values():
            figure["provenance"] = provenance()
        before = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
        arguments.out.write_text(json.dumps(before | figures, indent=2) + "\n")
    return 0 if all(figure["kept"] for figure in figures.values()) else 1


PARTS = {"throughput": throughput, "latency": latency, "overload": overload}

if __name__ == "__main__":
    sys.exit(main())
