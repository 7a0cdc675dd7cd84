"""Many streams on one model: a fleet against separate methods, against copies, and against one stream at B=64."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import note_tta as tta
from note_tta.files import write_atomically
from note_tta.fleet.codec import Codec
from note_tta.fleet.store import Store
from note_tta.models import build_model

from . import fleet_equality
from .fleet_equality import one_by_one
from .measure import Figure, quartiles, side_by_side

TICK = 64
"""Samples of a call."""
BLOCK = 16
"""Calls whose seconds are added up for one ratio: updates fall unevenly."""
MIXES = ("distinct", "uniform", "skewed", "identical")
SIZES = (1, 10, 100, 1_000, 10_000)
RESIDENT = 1_024
WARM_UP = 128
"""Calls until a stream of 64 that has every 128th row has had an interval."""

Call = Callable[[Sequence[int], Tensor], object]


def parts(ticks: int, spill: Path | None, weights: Path | None) -> dict[str, Callable[[], Iterator[Figure]]]:
    """What can be measured, by name.

    Args:
        ticks: Calls of each comparison.
        spill: A folder for the 10,000 streams. One that holds them already saves the time to make them.
        weights: A ResNet-20 with IABN of CIFAR-10; without one, "real" is left out.
    """
    real = {} if weights is None else {"real": lambda: fleet_equality.on_real_streams(weights)}
    return real | {
        "limit": lambda: _against_the_limit(2 * ticks),
        "flat": lambda: _flat(ticks, spill),
        "separate": lambda: _against_separate_methods(ticks),
        "fair": lambda: _fair(4 * ticks),
        "bytes": lambda: _bytes(200),
        "stores": lambda: _stores(100),
        "sizes": lambda: _sizes(ticks // 5, spill),
    }


def ids_of(mix: str, streams: int, ticks: int, seed: int = 0) -> Iterator[list[int]]:
    """The stream of each sample, for each call.

    Args:
        mix: "distinct" takes streams in turns, "uniform" draws them, "skewed" draws the k-th with a weight of 1/k,
            "identical" is one stream alone, "half" has every other sample from one stream.
        streams: How many there are.
        ticks: How many calls.
        seed: Of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = 1 / torch.arange(1, streams + 1, dtype=torch.float64)
    for tick in range(ticks):
        if mix == "distinct":
            yield [(tick * TICK + row) % streams for row in range(TICK)]
        elif mix == "skewed":
            yield torch.multinomial(weights, TICK, replacement=True, generator=generator).tolist()
        elif mix == "identical":
            yield [0] * TICK
        else:
            drawn = torch.randint(streams, (TICK,), generator=generator).tolist()
            yield [0 if mix == "half" and row % 2 else name for row, name in enumerate(drawn)]


def _against_the_limit(ticks: int) -> Iterator[Figure]:
    model, state = _resnet("resnet20")
    fleet, note = _filled(model, state, 1_000), _continued(tta.NOTE(model), state, 0)
    seconds = _side_by_side(
        {"fleet": fleet, "one NOTE": lambda _, x: note(x)}, ids_of("uniform", 1_000, ticks)
    )
    yield _rate(
        "1,000 streams, uniform: samples/s of the fleet ÷ one NOTE at B=64",
        seconds,
        "fleet",
        "one NOTE",
        0.87,
    )


def _flat(ticks: int, spill: Path | None) -> Iterator[Figure]:
    model, state = _resnet("resnet20")
    with _folder(spill) as folder, _filled(model, state, 10_000, folder) as many:
        calls = {
            "10,000": _mixed(many, ids_of("skewed", 10_000, ticks)),
            "100": _mixed(_filled(model, state, 100), ids_of("skewed", 100, ticks)),
        }
        seconds = _side_by_side(calls, ([0] for _ in range(ticks)))
        yield _rate(
            f"skewed mix: samples/s with 10,000 streams, {RESIDENT:,} of them in memory ÷ with 100",
            seconds,
            "10,000",
            "100",
            0.8,
        )


def _against_separate_methods(ticks: int) -> Iterator[Figure]:
    model, state = _resnet("resnet20")
    source, note = tta.Source(model), _continued(tta.NOTE(model), state, 0)
    contenders: dict[str, Call] = {
        "fleet": _filled(model, state, 16),
        "separate": one_by_one(_separate(model, state, 16)),
        "one NOTE": lambda _, x: note(x),
        "source": lambda _, x: source(x),
    }
    seconds = _side_by_side(contenders, ids_of("uniform", 16, ticks))
    name = "16 streams, uniform: samples/s of the fleet ÷"
    yield _rate(f"{name} separate methods one by one", seconds, "fleet", "separate", 1.5)
    yield _rate(f"{name} Source", seconds, "fleet", "source", None)
    limit = "samples/s of one NOTE at B=64, the limit, ÷ 16 separate methods"
    yield _rate(limit, seconds, "one NOTE", "separate", None)


def _fair(ticks: int) -> Iterator[Figure]:
    """What others see of a stream that sends half of the rows: how long a call takes, at its slowest.

    A call has as many rows in both mixes, and in the long run one update. Calls are timed once updates of all streams
    are under way. A thread that works on updates goes on in the turns of the other mix, in both alike.
    """
    model, state = _resnet("resnet20")
    for delay in (0, 64):
        calls = {
            mix: _mixed(_filled(model, state, 64, delay=delay), ids_of(mix, 64, WARM_UP + ticks, seed=1))
            for mix in ("uniform", "half")
        }
        timed = _side_by_side(calls, ([0] for _ in range(WARM_UP + ticks)))
        seconds = {mix: times[WARM_UP:] for mix, times in timed.items()}
        tails = {mix: quantile(times, 0.99) for mix, times in seconds.items()}
        value = tails["half"] / tails["uniform"]
        detail = {mix: _milliseconds(times) for mix, times in seconds.items()}
        name = f"64 streams, delay={delay}: p99 of a call with half of the rows from one stream ÷ an even mix"
        yield Figure(f"ResNet-20, {name}", value, value, value, 2.0, detail=dict(detail))


def _bytes(streams: int) -> Iterator[Figure]:
    """Memory of the process for each stream more, on a ResNet-18 whose inputs are images of bytes."""
    model, state = _resnet("resnet18")
    few = 10
    held = {
        "fleet": _made(_filled, model, state, streams)[1] / streams,
        "methods that share the model": _made(_separate, model, state, few)[1] / few,
        "copies": _made(_separate, model, state, few, copies=True)[1] / few,
    }
    for name, value in held.items():
        bar = 0.5 if name == "fleet" else None
        yield Figure(f"ResNet-18, {name}: memory per stream", *[value / 1e6] * 3, bar, unit="MB")
    record = Codec().encode(_live(model, state))
    yield Figure("ResNet-18: a stream's record in the folder", *[len(record) / 1e6] * 3, unit="MB")


def _stores(streams: int) -> Iterator[Figure]:
    """Replacing records of a ResNet-18: the database against a file per stream."""
    state = _live(*_resnet("resnet18"))
    seconds: dict[str, list[float]] = {"database": [], "files": [], "read": []}
    with tempfile.TemporaryDirectory() as name, Store(name) as store:
        folder = Path(name, "files")
        folder.mkdir()
        for _ in range(3):
            start = time.perf_counter()
            for stream in range(streams):
                store.put(stream, state, None)
                if stream % TICK == TICK - 1:
                    store.commit()
            store.flush()
            seconds["database"].append((time.perf_counter() - start) / streams)
            start = time.perf_counter()
            for stream in range(streams):
                write_atomically(folder / f"{stream}.pt", store.codec.encode(state))
            seconds["files"].append((time.perf_counter() - start) / streams)
            start = time.perf_counter()
            for stream in range(streams):
                store.get(stream)
            seconds["read"].append((time.perf_counter() - start) / streams)
    for name, what in (("database", "written and on the disk"), ("read", "read")):
        low, middle, high = (1e3 * value for value in quartiles(seconds[name]))
        yield Figure(f"ResNet-18: a spilled stream {what}", middle, low, high, unit="ms")
    values = [a / b for a, b in zip(seconds["files"], seconds["database"], strict=True)]
    low, middle, high = quartiles(values)
    yield Figure("ResNet-18: a file per stream ÷ the database, seconds to replace", middle, low, high)


def _sizes(ticks: int, spill: Path | None) -> Iterator[Figure]:
    """Every mix at every number of streams, against one NOTE at B=64 in the same run."""
    model, state = _resnet("resnet20")
    note = _continued(tta.NOTE(model), state, 0)
    for streams in SIZES:
        with _folder(spill if streams == max(SIZES) else None) as folder:
            made: dict[str, tuple[Any, float]] = {
                "fleet": _made(_filled, model, state, streams, folder if streams > RESIDENT else None)
            }
            if streams <= 100:
                made["separate"] = _made(_separate, model, state, streams)
                made["copies"] = _made(_separate, model, state, streams, copies=True)
            calls = {name: one if name == "fleet" else one_by_one(one) for name, (one, _) in made.items()}
            calls["one NOTE"] = lambda _, x: note(x)
            mixes: dict[str, dict[str, dict[str, float]]] = {}
            for mix in MIXES:
                seconds = _side_by_side(calls, ids_of(mix, streams, ticks))
                alone = sum(seconds["one NOTE"])
                mixes[mix] = {
                    name: {
                        "samples/s ÷ one NOTE's": round(alone / sum(seconds[name]), 3),
                        "memory, MB": round(size / 1e6, 2),
                        **_milliseconds(seconds[name]),
                    }
                    for name, (_, size) in made.items()
                }
            made["fleet"][0].close()
            del made, calls
        values = [of["fleet"]["samples/s ÷ one NOTE's"] for of in mixes.values()]
        name = f"{streams:,} streams: samples/s of the fleet ÷ one NOTE at B=64, lowest of {len(MIXES)} mixes"
        yield Figure(
            f"ResNet-20, {name}",
            min(values),
            min(values),
            max(values),
            detail={"streams": streams, "mixes": mixes},
        )


def _resnet(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """A network and the state of a stream on it after two updates, its memory full."""
    torch.manual_seed(0)
    model = tta.convert_iabn(build_model(name, 10)).eval()
    note = tta.NOTE(model)
    for _ in range(2):
        note(_images())
    return model, note.state_dict()


def _images() -> Tensor:
    return torch.randint(256, (TICK, 3, 32, 32)) / 255


def _continued(method: tta.NOTE, state: dict[str, Any], phase: float) -> tta.NOTE:
    method.load_state_dict(_at(state, phase))
    return method


def _at(state: dict[str, Any], phase: float, delay: int = 0) -> dict[str, Any]:
    """The state at a share of its interval: streams of one age would all learn in one call."""
    parts = state["parts"] | {"schedule": {"progress": int(phase * TICK) % TICK, "pending": None}}
    return state | {"parts": parts, "settings": state["settings"] | {"delay": delay}}


def _filled(
    model: nn.Module, state: dict[str, Any], streams: int, spill: Path | None = None, delay: int = 0
) -> tta.Fleet:
    room = RESIDENT if spill is not None else streams
    fleet = tta.Fleet(model, lambda m: tta.NOTE(m, delay=delay), max_resident=room, spill=spill)
    for stream in range(min(streams, room) if len(fleet) < streams else 0):
        fleet.load_state_dict(stream, _at(state, stream / min(streams, TICK), delay))
    if len(fleet) < streams:  # the others are the same: they are written without coming into memory first
        live, store = fleet.method(0).live_state(), fleet._streams.store
        for stream in range(room, streams):
            store.put(stream, _at(live, stream / TICK, delay), (3, 32, 32))
            if stream % 256 == 0:
                store.commit()
        store.flush()
    for stream in reversed(range(min(streams, room))):  # those that a skewed mix has most of come last
        fleet.method(stream)
    return fleet


def _live(model: nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """A state as a fleet writes it."""
    return _filled(model, state, 1).method(0).live_state()


def _separate(
    model: nn.Module, state: dict[str, Any], streams: int, *, copies: bool = False
) -> list[tta.NOTE]:
    return [
        _continued(tta.NOTE(copy.deepcopy(model) if copies else model), state, stream / min(streams, TICK))
        for stream in range(streams)
    ]


def _mixed(fleet: tta.Fleet, mixes: Iterator[list[int]]) -> Call:
    """Calls of a fleet with a mix of its own."""
    return lambda _, x: fleet(next(mixes), x)


def _side_by_side(contenders: dict[str, Call], mixes: Iterator[list[int]]) -> dict[str, list[float]]:
    """Seconds of each call; contenders take turns with the same samples."""
    return side_by_side(contenders, ((ids, _images()) for ids in mixes))


def _rate(name: str, seconds: dict[str, list[float]], ours: str, theirs: str, bar: float | None) -> Figure:
    """How many times as many samples per second, with quartiles over blocks of calls."""
    blocks = [
        sum(seconds[theirs][at : at + BLOCK]) / sum(seconds[ours][at : at + BLOCK])
        for at in range(0, len(seconds[ours]), BLOCK)
    ]
    low, _, high = quartiles(blocks)
    value = sum(seconds[theirs]) / sum(seconds[ours])
    detail = {name: _milliseconds(times) for name, times in seconds.items()}
    return Figure(f"ResNet-20, {name}", value, low, high, bar, at_most=False, detail=detail)


def _milliseconds(times: list[float]) -> dict[str, float]:
    return {f"p{round(100 * share)}": round(1e3 * quantile(times, share), 2) for share in (0.5, 0.99)}


def quantile(values: list[float], share: float) -> float:
    """The value that this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _made(make: Callable[..., Any], *arguments: Any, **keywords: Any) -> tuple[Any, float]:
    """Something, and the bytes by which the process has grown when it was made."""
    before = _resident_bytes()
    made = make(*arguments, **keywords)
    return made, _resident_bytes() - before


def _resident_bytes() -> int:
    gc.collect()
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def _folder(path: Path | None) -> Iterator[Path]:
    """A folder for streams: the given one, which stays, or one that goes."""
    if path is not None:
        yield path
    else:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
