"""The streams of a fleet: the ones used last in memory, all of them in a folder."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..methods import states
from ..methods.interval import IntervalMethod
from ..methods.method import Method
from ..methods.packed import Packed, plain
from .store import Id, Store


class Stream:
    """A stream in memory.

    Args:
        name: Its id.
        method: Its method.
        stored: Whether the folder has a state of it.
    """

    __slots__ = ("changed", "inner", "method", "name", "saved_samples", "saved_updates", "stored")

    def __init__(self, name: Id, method: Method, *, stored: bool) -> None:
        self.name = name
        self.method: Any = method
        self.inner: IntervalMethod = method.inner  # type: ignore[assignment]
        self.stored = stored
        self.changed = False
        self.saved_samples = method.counters["samples"] if stored else 0
        self.saved_updates = method.counters["updates"] if stored else 0


class Residents:
    """Streams by id. At most `room` are in memory; the least recently used wait in the folder.

    Args:
        template: The method of a new stream: each begins as a fork of it.
        room: Streams kept in memory.
        spill: The folder; None where there is none.
        checkpoint_every: A stream is due to be written after so many updates.
    """

    def __init__(self, template: Method, room: int, spill: str | Path | None, checkpoint_every: int) -> None:
        self.template = template
        self.room = room
        self.checkpoint_every = checkpoint_every
        self.store = None if spill is None else _claimed(Store(spill), template)
        self.in_memory: OrderedDict[Id, Stream] = OrderedDict()
        self._shapes = set() if self.store is None else self.store.shapes()

    def acquire(self, name: Id) -> Stream:
        """A stream, in memory from now on: it was there, is read from the folder, or begins."""
        if name in self.in_memory:
            self.in_memory.move_to_end(name)
            return self.in_memory[name]
        method = self.template.fork()
        stored = self.store is not None and name in self.store
        if stored:
            state = self.spilled(name)
            if state["version"] == states.VERSION:
                method.continue_from(state)
            else:
                method.load_state_dict(plain(state))
        return self._place(Stream(name, method, stored=stored))

    def replace(self, name: Id, method: Method) -> None:
        """Let a stream, new or known, go on as this method."""
        self.check_room([name])
        stream = Stream(name, method, stored=self.store is not None and name in self.store)
        self.in_memory.pop(name, None)
        shape = self._place(stream).inner.memory.sample_shape
        if shape is not None:
            self._shapes.add(shape)
        self.keep(stream)

    def remove(self, name: Id) -> None:
        """Forget a stream."""
        self.check_known(name)
        if self.store is not None:
            self.store.remove(name)
            self.store.commit()
        self.in_memory.pop(name, None)

    def spilled(self, name: Id) -> dict[str, Any]:
        """The state of a stream that is in the folder, in tensors of its own."""
        self.check_known(name)
        assert self.store is not None
        return self.store.get(name)

    def due(self, stream: Stream) -> bool:
        """Whether as many updates have passed since a stream was written as there may be."""
        updates: int = stream.method.counters["updates"]
        return self.store is not None and updates - stream.saved_updates >= self.checkpoint_every

    def write(self, stream: Stream) -> None:
        """Write a stream to the folder; it stays there after `commit`."""
        assert self.store is not None
        self.store.put(stream.name, stream.method.live_state(), stream.inner.memory.sample_shape)
        stream.stored, stream.changed = True, False
        stream.saved_samples = stream.method.counters["samples"]
        stream.saved_updates = stream.method.counters["updates"]

    def keep(self, stream: Stream) -> None:
        """Let a change that somebody asked for outlive the process, where there is a folder."""
        stream.changed = True
        if self.store is not None:
            self.write(stream)
            self.store.commit()

    def flush(self) -> None:
        """Write every stream that changed, and wait until it is on the disk."""
        if self.store is None:
            raise ValueError("this fleet keeps its streams in memory: give it a folder, spill=…")
        for stream in self.in_memory.values():
            if stream.changed:
                self.write(stream)
        self.store.flush()

    def check_known(self, name: Id) -> None:
        """Refuse an id of no stream."""
        if name not in self:
            raise KeyError(f"there is no stream {name!r} in this fleet")

    def check_room(self, names: Iterable[Id]) -> None:
        """Refuse more streams than fit, where none can be spilled."""
        count = len(self.in_memory.keys() | set(names))
        if self.store is None and count > self.room:
            raise ValueError(
                f"{count} streams do not fit: max_resident is {self.room}. Give a folder for the others, spill=…, "
                "or a larger max_resident"
            )

    def check_shape(self, names: Iterable[Id], shape: tuple[int, ...]) -> None:
        """Refuse samples of another shape than one of the streams has."""
        for name in dict.fromkeys(names) if self._shapes - {shape} else ():
            held = self._shape(name)
            if held is not None and held != shape:
                raise ValueError(
                    f"the memory of stream {name!r} holds samples of shape {held}, got {shape}: "
                    "a stream keeps one shape"
                )
        self._shapes.add(shape)

    def __contains__(self, name: Id) -> bool:
        return name in self.in_memory or (self.store is not None and name in self.store)

    def __iter__(self) -> Iterator[Id]:
        new = [stream.name for stream in self.in_memory.values() if not stream.stored]
        return iter(new if self.store is None else [*self.store, *new])

    def __len__(self) -> int:
        new = sum(not stream.stored for stream in self.in_memory.values())
        return new if self.store is None else new + len(self.store)

    def _place(self, stream: Stream) -> Stream:
        """Take a stream into memory; the least recently used one makes room for it."""
        while self.store is not None and len(self.in_memory) >= self.room:
            oldest = next(iter(self.in_memory.values()))
            if oldest.changed:
                self.write(oldest)
            del self.in_memory[oldest.name]
        stream.inner.label = f"stream {stream.name!r}"
        stream.inner._warned = self.template.inner._warned
        self.in_memory[stream.name] = stream
        return stream

    def _shape(self, name: Id) -> tuple[int, ...] | None:
        if name in self.in_memory:
            return self.in_memory[name].inner.memory.sample_shape
        return None if self.store is None else self.store.shape(name)


def _claimed(store: Store, template: Method) -> Store:
    """The folder, unless it holds streams of another model or method."""
    backbone = template.backbone
    mine = {"method": _names(template), "model": backbone.fingerprint, "layers": str(backbone.layers)}
    try:
        for name, value in mine.items():
            theirs = store.note(name) or store.note(name, value)
            if theirs != value:
                raise ValueError(
                    f"{store.folder} holds streams of another {name}, {theirs:.80}; here it is {value:.80}: "
                    "give this fleet a folder of its own"
                )
    except BaseException:
        store.close()
        raise
    tensors = template.inner.tensors
    assert isinstance(tensors, Packed)
    store.codec.spell(tensors.layout)
    return store


def _names(method: Any) -> str:
    """What a stream is made of: `TemporalFilter(NOTE)`."""
    inside = vars(method).get("method")
    return type(method).__name__ + (f"({_names(inside)})" if isinstance(inside, Method) else "")
