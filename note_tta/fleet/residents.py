"""The streams of a fleet: the most recently used ones are in memory, all of them are in a folder."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..methods import states
from ..methods.interval import IntervalMethod
from ..methods.method import Method
from ..methods.packed import Packed, plain
from .store import Id, Store


class Saved(NamedTuple):
    """How many samples and updates a state includes."""

    samples: int
    updates: int

    @classmethod
    def of(cls, method: Method) -> Saved:
        """Return those of a method's present state."""
        return cls(method.counters["samples"], method.counters["updates"])


class Stream:
    """A stream in memory.

    Args:
        name: Its id.
        method: Its method.
        saved: What the folder holds of it; None if it holds nothing.
    """

    __slots__ = ("changed", "inner", "method", "name", "saved")

    def __init__(self, name: Id, method: Method, saved: Saved | None) -> None:
        self.name = name
        self.method: Any = method
        self.inner: IntervalMethod = method.inner  # type: ignore[assignment]
        self.saved = saved
        self.changed = False


class Residents:
    """Streams by id. At most `room` are in memory; the least recently used ones are only in the folder.

    Args:
        template: The method that each new stream is forked from.
        room: How many streams are kept in memory.
        spill: The folder, or None.
        checkpoint_every: A stream is written after this many updates.
    """

    def __init__(self, template: Method, room: int, spill: str | Path | None, checkpoint_every: int) -> None:
        self.template = template
        self.room = room
        self.checkpoint_every = checkpoint_every
        self.store: Store | None = None
        self._shapes: set[tuple[int, ...]] = set()
        if spill is not None:
            self.store, self._shapes = _claimed(Store(spill), template)
        self.in_memory: OrderedDict[Id, Stream] = OrderedDict()
        self._leaving: dict[Id, Stream] = {}  # moved out of memory since the last commit
        self._written: list[tuple[Stream, Saved | None]] = []  # since then, with what was saved before

    def acquire(self, name: Id) -> Stream:
        """Return a stream from memory; if needed, read it from the folder or begin it first."""
        if name in self.in_memory:
            self.in_memory.move_to_end(name)
            return self.in_memory[name]
        if name in self._leaving:
            return self._place(self._leaving[name])
        method = self.template.fork()
        if self.store is None or name not in self.store:
            saved = None
        else:
            state = self.spilled(name)
            if state["version"] == states.VERSION:
                method.continue_from(state)
            else:
                method.load_state_dict(plain(state))
            saved = Saved.of(method)
        return self._place(Stream(name, method, saved))

    def replace(self, name: Id, method: Method) -> None:
        """Let a new or existing stream continue with this method."""
        self.check_room([name])
        stream = Stream(name, method, Saved(0, 0) if self.store is not None and name in self.store else None)
        before = self.in_memory.pop(name, None)
        try:
            self._place(stream)
        except BaseException:
            if before is not None:
                self.in_memory[name] = before
            raise
        shape = stream.inner.memory.sample_shape
        if shape is not None:
            self.expect_shape(shape)
        self.keep(stream)

    def remove(self, name: Id) -> None:
        """Delete a stream."""
        self.check_known(name)
        if self.store is not None:
            self.commit()
            if name in self.in_memory:
                self.in_memory[name].saved = None  # the folder may lose it, even if this is interrupted
            self.store.remove(name)
            self.commit()
        self.in_memory.pop(name, None)

    def spilled(self, name: Id) -> dict[str, Any]:
        """Read the state of a stream from the folder, into newly allocated tensors."""
        self.check_known(name)
        assert self.store is not None
        return self.store.get(name)

    def due(self, stream: Stream) -> bool:
        """Whether a stream has had `checkpoint_every` updates since it was last written."""
        updates: int = stream.method.counters["updates"]
        saved = 0 if stream.saved is None else stream.saved.updates
        return self.store is not None and updates - saved >= self.checkpoint_every

    def write(self, stream: Stream) -> None:
        """Write a stream to the folder; the next `commit` makes this permanent."""
        assert self.store is not None
        self._check_kept()
        try:
            self.store.put(stream.name, stream.method.live_state(), stream.inner.memory.sample_shape)
        except BaseException:
            self._undo()
            raise
        self._written.append((stream, stream.saved))
        stream.saved, stream.changed = Saved.of(stream.method), False

    def commit(self) -> None:
        """Make what was written permanent. If this fails, for example because the disk is full, nothing is lost."""
        assert self.store is not None
        self._check_kept()
        try:
            self.store.commit()
        except BaseException:
            self._undo()
            raise
        self._written.clear()
        self._leaving.clear()

    def keep(self, stream: Stream) -> None:
        """Mark a stream as changed and, if there is a folder, write it at once."""
        stream.changed = True
        if self.store is not None:
            self.write(stream)
            self.commit()

    def flush(self) -> None:
        """Write every changed stream and wait until all is on disk."""
        if self.store is None:
            raise ValueError("this fleet keeps its streams in memory: give it a folder with spill=…")
        self._check_kept()
        for stream in list(self.in_memory.values()):
            if stream.changed or stream.saved is None:
                self.write(stream)
        self.commit()
        self.store.flush()

    def check_known(self, name: Id) -> None:
        """Raise `KeyError` if there is no such stream."""
        if name not in self:
            raise KeyError(f"there is no stream {name!r} in this fleet")

    def check_room(self, names: Iterable[Id]) -> None:
        """Without a folder, refuse more streams than fit into memory."""
        count = len(self.in_memory.keys() | set(names))
        if self.store is None and count > self.room:
            raise ValueError(
                f"{count} streams do not fit: max_resident is {self.room}. Give a folder for the others with spill=…, "
                "or raise max_resident"
            )

    def load(self, names: Iterable[Id]) -> None:
        """Read streams from the folder, as many as fit into memory; refuse any whose record is damaged."""
        if self.store is None:
            return
        known = [name for name in dict.fromkeys(names) if name in self]
        try:
            for name in known[: self.room]:
                self.acquire(name)
            for name in known[self.room :]:
                if name not in self.in_memory:
                    self.spilled(name)
        finally:
            self.commit()  # what was written to make room

    def check_shape(self, names: Iterable[Id], shape: tuple[int, ...]) -> None:
        """Refuse samples whose shape differs from that of the samples in a stream's memory."""
        for name in dict.fromkeys(names) if self._shapes - {shape} else ():
            held = self._shape(name)
            if held is not None and held != shape:
                raise ValueError(
                    f"the memory of stream {name!r} holds samples of shape {held}, got {shape}: "
                    "a stream keeps one shape"
                )

    def expect_shape(self, shape: tuple[int, ...]) -> None:
        """Remember that streams may hold samples of this shape."""
        self._shapes.add(shape)

    def __contains__(self, name: Id) -> bool:
        if not isinstance(name, str | int):
            return False
        self._check_kept()
        return name in self.in_memory or (self.store is not None and name in self.store)

    def __iter__(self) -> Iterator[Id]:
        return iter([*(() if self.store is None else self.store), *self._new()])

    def __len__(self) -> int:
        return len(self._new()) + (0 if self.store is None else len(self.store))

    def _new(self) -> list[Id]:
        """Return the streams that the folder does not have."""
        self._check_kept()
        new = [stream.name for stream in self.in_memory.values() if stream.saved is None]
        return new if self.store is None else [name for name in new if name not in self.store]

    def _place(self, stream: Stream) -> Stream:
        """Put a stream into memory; if memory is full, move out the least recently used one."""
        while self.store is not None and len(self.in_memory) >= self.room:
            oldest = next(iter(self.in_memory.values()))
            if oldest.changed or oldest.saved is None:
                self.write(oldest)
            self._leaving[oldest.name] = oldest
            del self.in_memory[oldest.name]
        stream.inner.label = f"stream {stream.name!r}"
        stream.inner._warned = self.template.inner._warned
        self.in_memory[stream.name] = stream
        self._leaving.pop(stream.name, None)
        return stream

    def _check_kept(self) -> None:
        """Take back what was written if SQLite has given it up after an error."""
        if self._written and self.store is not None and not self.store.has_changes:
            self._undo()

    def _undo(self) -> None:
        """Forget what was written since the last commit, and take the streams back that had left memory."""
        assert self.store is not None
        self.store.roll_back()
        for stream, saved in reversed(self._written):
            stream.saved, stream.changed = saved, True
        self.in_memory.update({name: s for name, s in self._leaving.items() if name not in self.in_memory})
        self._written.clear()
        self._leaving.clear()

    def _shape(self, name: Id) -> tuple[int, ...] | None:
        if name in self.in_memory:
            return self.in_memory[name].inner.memory.sample_shape
        return None if self.store is None else self.store.shape(name)


def _claimed(store: Store, template: Method) -> tuple[Store, set[tuple[int, ...]]]:
    """Return the store and the sample shapes in it; refuse one that holds streams of another model or method."""
    backbone = template.backbone
    mine = {"method": _names(template), "model": backbone.fingerprint, "layers": str(backbone.layers)}
    try:
        for name, value in mine.items():
            theirs = store.note(name) or store.note(name, value)
            if theirs != value:
                raise ValueError(
                    f"{store.folder} holds streams of another {name}, {theirs:.80}; this fleet has {value:.80}: "
                    "give this fleet its own folder"
                )
        shapes = store.shapes()
    except BaseException:
        with suppress(OSError, ValueError):
            store.close()
        raise
    tensors = template.inner.tensors
    assert isinstance(tensors, Packed)
    store.codec.spell(tensors.layout)
    return store, shapes


def _names(method: Any) -> str:
    """The class names of a method and of what it wraps, such as `TemporalFilter(NOTE)`."""
    inside = vars(method).get("method")
    return type(method).__name__ + (f"({_names(inside)})" if isinstance(inside, Method) else "")
