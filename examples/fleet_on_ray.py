"""Streams on several machines with Ray: the id of a stream decides its worker, and a worker may die at any time.

    python examples/fleet_on_ray.py        # two local workers; one is killed in the middle of the streams

Ids are divided into shards. A shard is a fleet with its own folder on storage that all machines share. Only one
worker at a time can open it, because `spill` is locked. A hash assigns each shard to a worker, so when a worker
dies, only its own shards move. They continue from their last durable state, and the source sends the later
samples again.
"""

import os
import signal
import tempfile
import zlib
from pathlib import Path

import ray
import torch
from digits_model import train_digits
from ray.exceptions import RayActorError
from torch import Tensor, nn

import note_tta as tta
from note_tta.data import open_dataset

SHARDS = 8


def shard_of(stream: str) -> int:
    """Return the shard of a stream, which never changes."""
    return zlib.crc32(stream.encode()) % SHARDS


@ray.remote
class Worker:
    """The fleets of some shards; a shard is opened when it is first used."""

    def __init__(self, model: nn.Module, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.fleets: dict[int, tta.Fleet] = {}

    def fleet(self, shard: int) -> tta.Fleet:
        """Return a shard's fleet, with all streams in its folder."""
        if shard not in self.fleets:
            self.fleets[shard] = tta.Fleet(self.model, spill=self.folder / f"shard-{shard}")
        return self.fleets[shard]

    def answer(self, shard: int, ids: list[str], x: Tensor) -> Tensor:
        """Answer samples of streams of one shard."""
        return self.fleet(shard)(ids, x)

    def samples(self, stream: str) -> int:
        """Return how many samples a stream has seen; its source continues from there."""
        fleet = self.fleet(shard_of(stream))
        return fleet.counters(stream)["samples"] if stream in fleet else 0

    def state(self, stream: str) -> dict:
        """Return a stream's state."""
        return self.fleet(shard_of(stream)).state_dict(stream)

    def release(self, shard: int) -> None:
        """Write a shard and release its folder for another worker."""
        if shard in self.fleets:
            self.fleets.pop(shard).close()

    def pid(self) -> int:
        """Return the process id of this worker."""
        return os.getpid()


class Router:
    """Sends each stream's samples to the worker that has its shard."""

    def __init__(self, model: nn.Module, folder: Path, workers: list[str]) -> None:
        self.model, self.folder = ray.put(model), folder
        self.workers = {name: Worker.remote(self.model, folder) for name in workers}

    def home(self, shard: int) -> str:
        """Return the worker of a shard: the one with the largest hash, so that a dead worker moves only its shards."""
        return max(self.workers, key=lambda name: zlib.crc32(f"{name}/{shard}".encode()))

    def at(self, stream: str) -> ray.actor.ActorHandle:
        """Return the worker that has a stream."""
        return self.workers[self.home(shard_of(stream))]

    def add(self, name: str) -> None:
        """Give a new worker its share of the shards; the others write and release them."""
        before = {shard: self.workers[self.home(shard)] for shard in range(SHARDS)}
        self.workers[name] = Worker.remote(self.model, self.folder)
        ray.get([before[s].release.remote(s) for s in before if self.workers[self.home(s)] != before[s]])

    def __call__(self, ids: list[str], x: Tensor) -> tuple[Tensor, set[int]]:
        """Return the answers, NaN if a worker died, and the shards of dead workers, which continue from the store."""
        rows = {
            shard: [r for r, name in enumerate(ids) if shard_of(name) == shard] for shard in range(SHARDS)
        }
        asked = {
            shard: (self.home(shard), own, self._ask(shard, [ids[r] for r in own], x[own]))
            for shard, own in rows.items()
            if own
        }
        answers, dead = torch.full((len(ids), 10), torch.nan), set()
        for home, own, answer in asked.values():
            try:
                answers[own] = ray.get(answer)
            except RayActorError:
                dead.add(home)
        lost = {shard for shard in range(SHARDS) if self.home(shard) in dead}
        for home in dead:
            del self.workers[home]
        return answers, lost

    def _ask(self, shard: int, ids: list[str], x: Tensor) -> ray.ObjectRef:
        return self.workers[self.home(shard)].answer.remote(shard, ids, x)


def main(streams: int = 24, length: int = 200, per_call: int = 8) -> None:
    """Send streams of digits and kill a worker; then compare the streams with undisturbed ones."""
    model, domain = train_digits(), open_dataset("digits").domain("test")
    sources, position = {}, {}
    for number in range(streams):
        picked = torch.randint(len(domain), (length,), generator=torch.Generator().manual_seed(number))
        sources[f"cam-{number}"] = domain.inputs(picked) * (1 - 0.6 * number / streams)
        position[f"cam-{number}"] = 0
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        router = Router(model, Path(folder), ["worker-1", "worker-2"])
        calls, again = 0, 0
        while waiting := [name for name in sources if position[name] < length]:
            if calls == length // per_call * 3 // 4:
                os.kill(ray.get(router.workers["worker-2"].pid.remote()), signal.SIGKILL)
            parts = {name: sources[name][position[name] :][:per_call] for name in waiting}
            ids = [name for name, part in parts.items() for _ in part]
            _, lost = router(ids, torch.cat(list(parts.values())))
            calls += 1
            for name, part in parts.items():
                position[name] += len(part)
            for name in sources:
                if shard_of(name) in lost:
                    durable = ray.get(router.at(name).samples.remote(name))
                    again += position[name] - durable
                    position[name] = durable
            if lost:
                moved = sum(shard_of(name) in lost for name in sources)
                print(
                    f"worker-2 was killed: {moved} of {streams} streams moved, {again:,} samples are sent again"
                )
        same = 0
        for name, x in sources.items():
            single = tta.NOTE(model)
            single(x)
            ours, alone = ray.get(router.at(name).state.remote(name)), single.state_dict()
            close = (
                torch.allclose(ours["model"][key], alone["model"][key], 1e-4, 1e-4) for key in alone["model"]
            )
            same += ours["counters"] == alone["counters"] and all(close)
        print(f"{same} of {streams} streams are as if nothing had happened, {length} samples each")
    ray.shutdown()


if __name__ == "__main__":
    main()
