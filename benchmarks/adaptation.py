"""NOTE on a stream, against the arithmetic it cannot do without, other methods and a research loop."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, ModuleType

import torch
from torch import Tensor, nn
from torch.fx.experimental.optimization import fuse
from torch.nn.modules.batchnorm import _BatchNorm

import note_tta as tta
from note_tta.models import build_model

from .baselines import Arithmetic, CountingPBRS, ResearchLoop, plain_iabn
from .measure import Figure, quartiles, ratio_figure, ratios, side_by_side, take_turns

BATCH = 64


def parts(repeats: int, samples: int) -> dict[str, Callable[[], Iterator[Figure]]]:
    """What can be measured, by name; `samples` is the length of the stream, half of it for the slow research loop."""
    return {
        "methods": partial(_streams, samples // 2),
        "resnet18": partial(_against_source, "resnet18", samples, (3.3, 1.8)),
        "resnet20": partial(_against_source, "resnet20", samples, (3.6, 2.2)),
        "layouts": partial(_channels_last, samples),
        "single": partial(_latency, repeats),
        "prepacked": partial(_prepacked, repeats),
        "memories": partial(_memories, repeats),
        "wrapping": partial(_wrapping, repeats),
    }


def networks() -> tuple[nn.Module, nn.Module]:
    """The same ResNet-18 with BatchNorm and with IABN."""
    torch.manual_seed(0)
    plain = build_model("resnet18", 10)
    return plain, tta.convert_iabn(copy.deepcopy(plain))


def _stream(samples: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    for _ in range(0, samples, BATCH):
        yield (
            torch.rand(BATCH, 3, 32, 32, generator=generator),
            torch.randint(10, (BATCH,), generator=generator),
        )


def _streams(samples: int) -> Iterator[Figure]:
    """Every contender takes the whole stream; after each batch the next contender has its turn with it."""
    bn, iabn = networks()
    note, tent, source = tta.NOTE(iabn), tta.TENT(copy.deepcopy(bn)), tta.Source(copy.deepcopy(bn))
    arithmetic, research = Arithmetic(copy.deepcopy(bn)), ResearchLoop(plain_iabn(copy.deepcopy(bn)))
    contenders: dict[str, Callable[[Tensor, Tensor], object]] = {
        "source": lambda x, y: source(x),
        "tent": lambda x, y: tent(x),
        "arithmetic": lambda x, y: arithmetic(x),
        "note": lambda x, y: note(x),
        "research": research,
    }
    seconds = _in_turns(contenders, samples)
    total: dict[str, object] = {name: round(sum(s), 3) for name, s in seconds.items()}
    took = {name: ratios(seconds["note"], s) for name, s in seconds.items()}
    stream = f"{samples} samples at B={BATCH}"
    yield ratio_figure(f"NOTE ÷ its arithmetic, {stream}", [took["arithmetic"]], 1.15, detail=total)
    yield ratio_figure(f"NOTE ÷ TENT, {stream}", [took["tent"]], 1.5)
    rounds = [ratios(seconds["research"], seconds["note"])]
    yield ratio_figure(f"research-style loop ÷ NOTE, {stream}", rounds, 3.8, at_most=False)


def _against_source(network: str, samples: int, bars: tuple[float, float]) -> Iterator[Figure]:
    """NOTE beside Source, learning from all of its memory and from a quarter of it."""
    torch.manual_seed(0)
    model = build_model(network, 10)
    source, converted = tta.Source(model), tta.convert_iabn(copy.deepcopy(model))
    note, quarter = tta.NOTE(converted), tta.NOTE(converted, learn_from=16)
    seconds = _in_turns(
        {
            "source": lambda x, y: source(x),
            "note": lambda x, y: note(x),
            "quarter": lambda x, y: quarter(x),
        },
        samples,
    )
    for name, label, bar in (("note", "NOTE", bars[0]), ("quarter", "NOTE with learn_from=16", bars[1])):
        rounds = [ratios(seconds[name], seconds["source"])]
        yield ratio_figure(f"{label} ÷ Source, {network}, {samples} samples at B={BATCH}", rounds, bar)


def _channels_last(samples: int) -> Iterator[Figure]:
    """What another layout of the weights, which the caller chooses, does for a small network."""
    torch.manual_seed(0)
    model = tta.convert_iabn(build_model("resnet20", 10))
    contiguous = tta.NOTE(model)
    last = tta.NOTE(copy.deepcopy(model).to(memory_format=torch.channels_last))
    seconds = _in_turns({"contiguous": lambda x, y: contiguous(x), "last": lambda x, y: last(x)}, samples)
    name = f"NOTE on a channels-last ResNet-20 ÷ on a contiguous one, {samples} samples at B={BATCH}"
    yield ratio_figure(name, [ratios(seconds["last"], seconds["contiguous"])], None)


def _in_turns(
    contenders: dict[str, Callable[[Tensor, Tensor], object]], samples: int
) -> dict[str, list[float]]:
    """Seconds per batch of a stream that every contender takes whole, batch after batch in turns."""
    warm, label = torch.rand(BATCH, 3, 32, 32), torch.zeros(BATCH, dtype=torch.long)
    for call in contenders.values():
        call(warm, label)
    return side_by_side(contenders, _stream(samples))


def _latency(repeats: int) -> Iterator[Figure]:
    """Single samples between two updates, beside Source and beside BatchNorm folded into the convolutions."""
    bn, iabn = networks()
    x = torch.rand(1, 3, 32, 32)
    folded = fuse(bn.eval())
    compiled = torch.compile(folded)
    note, source = tta.NOTE(iabn, interval=1_000_000), tta.Source(bn)  # no update falls in
    calls = {"source": lambda: source(x), "note": lambda: note(x), "folded": lambda: folded(x)}
    calls["compiled"] = lambda: compiled(x)
    seconds, detail = _one_by_one(calls, repeats)
    name = "NOTE's single-sample latency between updates ÷"
    yield ratio_figure(f"{name} Source's", [ratios(seconds["note"], seconds["source"])], 1.15, detail=detail)
    yield ratio_figure(f"{name} a folded model's", [ratios(seconds["note"], seconds["folded"])], 1.12)
    yield ratio_figure(
        f"{name} a folded and compiled model's", [ratios(seconds["note"], seconds["compiled"])], None
    )


def _prepacked(repeats: int) -> Iterator[Figure]:
    """The same with prepacked convolutions, which the caller chooses, also in the folded model."""
    bn, iabn = networks()
    x = torch.rand(1, 3, 32, 32)
    folded = fuse(bn.eval())
    packed = tta.prepack_convolutions(copy.deepcopy(folded))
    note = tta.NOTE(tta.prepack_convolutions(iabn), interval=1_000_000)
    source = tta.Source(bn)
    calls = {"source": lambda: source(x), "note": lambda: note(x), "folded": lambda: folded(x)}
    calls["packed"] = lambda: packed(x)
    seconds, detail = _one_by_one(calls, repeats)
    name = "NOTE's single-sample latency on a prepacked model ÷"
    rounds = {other: [ratios(seconds["note"], seconds[other])] for other in ("source", "folded", "packed")}
    yield ratio_figure(f"{name} Source's on a plain one", rounds["source"], None, detail=detail)
    yield ratio_figure(f"{name} a folded model's", rounds["folded"], None)
    yield ratio_figure(f"{name} a folded and prepacked model's", rounds["packed"], None)


def _one_by_one(
    calls: dict[str, Callable[[], object]], repeats: int
) -> tuple[dict[str, list[float]], dict[str, object]]:
    """Seconds of calls on single samples, and their medians in milliseconds."""
    with torch.no_grad():
        seconds = take_turns(calls, 4 * repeats)
    return seconds, {name: round(1e3 * quartiles(s)[1], 3) for name, s in seconds.items()}


def _memories(repeats: int) -> Iterator[Figure]:
    """What PBRS takes per sample, and what it would take without keeping the slots of each class."""
    x = torch.rand(3, 32, 32)
    labels = torch.randint(10, (10_000,), generator=torch.Generator().manual_seed(0)).tolist()
    for capacity, bar in ((64, 15.0), (4096, 30.0)):
        memories: dict[str, tta.Memory] = {"pbrs": tta.PBRS(capacity), "counting": CountingPBRS(capacity)}
        for memory in memories.values():
            for label in labels:
                memory.add(x, label)

        def add(memory: tta.Memory) -> None:
            for label in labels[:2000]:
                memory.add(x, label)

        seconds = take_turns({name: partial(add, memory) for name, memory in memories.items()}, repeats)
        low, middle, high = quartiles([value / 2000 * 1e6 for value in seconds["pbrs"]])
        yield Figure(f"PBRS add, capacity {capacity:,}", middle, low, high, bar, unit="µs")
        name = f"PBRS that counts the memory for each sample ÷ PBRS, capacity {capacity:,}"
        yield ratio_figure(name, [ratios(seconds["counting"], seconds["pbrs"])], None)


def _wrapping(repeats: int) -> Iterator[Figure]:
    """What it costs to make a method of a model: time, and bytes beyond those that the model has."""
    _, model = networks()
    times = [1e3 * s for s in take_turns({"wrap": lambda: tta.NOTE(model)}, repeats)["wrap"]]
    low, middle, high = quartiles(times)
    yield Figure("wrapping a ResNet-18", middle, low, high, 15.0, unit="ms")
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    adapted = sum(t.nbytes for layer in layers for t in (*layer.parameters(), *layer.buffers()))
    value = _beyond(model, tta.NOTE(model)) / adapted
    yield Figure("bytes a wrapped ResNet-18 adds ÷ those of its adapted tensors", value, value, value, 3.0)
    yield _held()


def _beyond(model: nn.Module, method: tta.Method) -> int:
    """Bytes of the tensors that a method holds and its model does not."""
    own = {t.untyped_storage().data_ptr() for t in model.state_dict().values()}
    return sum(size for at, size in _reachable(method).items() if at not in own)


def _held() -> Figure:
    """Bytes of the tensors that NOTE keeps after some updates, beyond the model and its 64 samples."""
    _, model = networks()
    batch = torch.rand(BATCH, 3, 32, 32)
    method = tta.NOTE(model)
    for _ in range(3):
        method(batch)
    samples = method.memory.capacity * batch[0].nbytes
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    held = _beyond(model, method) - samples + gradients
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    moments = 2 * sum(p.nbytes for layer in layers for p in layer.parameters())
    limit = 2 * moments + 1e6
    return Figure(
        "memory NOTE holds between calls", held / 1e3, held / 1e3, held / 1e3, limit / 1e3, unit="kB"
    )


def _reachable(thing: object) -> dict[int, int]:
    """Bytes of every tensor storage that can be reached from `thing`, by address."""
    found: dict[int, int] = {}
    seen: set[int] = set()
    waiting = [thing]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(thing))
        if isinstance(thing, Tensor):
            found[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
        waiting.extend(gc.get_referents(thing))
    return found
