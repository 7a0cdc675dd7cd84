"""Many streams on one model: each adapts by itself, all are answered together."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..methods.delay import Workshop
from ..methods.interval import IntervalMethod
from ..methods.method import Method
from ..methods.note import NOTE
from ..methods.packed import Packed, plain
from ..methods.reach import finite_rows
from ..methods.settings import check_count
from .residents import Residents, Stream
from .rows import InTurn, Together, agrees
from .store import Id
from .workshop import SharedWorkshop

CHUNK = 64
"""Samples per pass; 32 to 64 were the fastest on two cores."""

Chunk = list[tuple[Stream, list[int]]]
"""Streams that are answered in one pass, each with the indices of its samples."""


class Fleet:
    """Many streams that share one model. Each adapts as if it had its own method; all are answered together.

    A stream begins with the first sample under its id. Its own state is small: the tensors of the norm layers, the
    state of the optimizer and the memory of samples for the next update.

    Args:
        model: The model that all streams share. It is never changed.
        method: Makes the method of a stream from the model: `tta.NOTE`, or with settings and wrappers
            `lambda model: tta.TemporalFilter(tta.NOTE(model, delay=64))`.
        max_resident: How many streams are kept in memory. When there are more, the least recently used ones are
            moved to `spill`.
        spill: A folder for the states of streams. Only one process at a time can use it. A later fleet on the same
            model continues these streams. With None, all streams stay in memory, and more than `max_resident`
            streams are an error.
        checkpoint_every: A stream is written to `spill` after this many updates. If the process is killed, the
            folder holds a complete state of every stream that is at most this many updates old. The state includes
            the sample counter, so a source that can replay samples knows where to continue.

    Example:
        >>> import note_tta as tta
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 10))
        >>> fleet = Fleet(tta.convert_iabn(model))
        >>> fleet(["cam-1", "cam-7", "cam-1"], torch.rand(3, 3, 8, 8)).shape
        torch.Size([3, 10])
        >>> fleet.counters("cam-1")["samples"], "cam-2" in fleet, len(fleet)
        (2, False, 2)
        >>> single = tta.NOTE(model)
        >>> single.load_state_dict(fleet.state_dict("cam-1"))
    """

    def __init__(
        self,
        model: nn.Module,
        method: Callable[[nn.Module], Method] = NOTE,
        max_resident: int = 1024,
        spill: str | Path | None = None,
        checkpoint_every: int = 1,
    ) -> None:
        check_count("max_resident", max_resident, 1)
        check_count("checkpoint_every", checkpoint_every, 1)
        template = method(model)
        self._inner = _suitable(template)
        self._source = Packed.of(self._inner.tensors)
        self._inner.tensors = self._source
        self._workshop = SharedWorkshop()
        self._inner.workshop = self._workshop
        self._streams = Residents(template, max_resident, spill, checkpoint_every)
        self._together, self._in_turn = Together(self._inner.backbone), InTurn(self._inner.backbone)
        self._fits: dict[tuple[int, ...], bool] = {}  # by sample shape, whether `_together` can answer
        self._lock = threading.RLock()
        weakref.finalize(self, self._workshop.stop)

    def __call__(self, ids: Sequence[Id], x: Tensor) -> Tensor:
        """Answer each sample as the next sample of its stream, and let the streams learn from them.

        Args:
            ids: The stream id of each sample, a string or an int. The samples of one stream are taken in order.
            x: Samples `[B, ...]`, as for a method.

        Returns:
            Logits `[B, K]`, the same as a separate method per stream would give. A sample that holds NaN or Inf is
            answered with NaN and does not affect the others.

        Raises:
            TypeError: An id is neither a string nor an int, or `x` is not a floating-point tensor.
            ValueError: The number of ids differs from the number of samples, the shape of the samples does not fit
                the model or a stream, there are too many streams, or the record of a stream in the folder is
                damaged. No stream has changed then. If the model itself fails on a sample, streams that had their
                turn before it have learned; `counters` tells how many samples of each.
            OSError: The folder cannot be written, for example because the disk is full. No stream is lost: those that
                could not be written stay in memory.
        """
        with self._lock, torch.inference_mode(False):
            ids = _checked_ids(ids)
            x = self._inner.checked(x)
            if len(ids) != len(x):
                raise ValueError(
                    f"x has {len(x)} samples and there are {len(ids)} ids: give one id per sample"
                )
            usable = finite_rows(x)
            clean = x if usable is None else x.masked_fill(~usable.view(-1, *[1] * (x.ndim - 1)), 0)
            self._streams.check_room(ids)
            self._streams.check_shape(ids, tuple(x.shape[1:]))
            rows = self._pass_for(clean)
            self._streams.expect_shape(tuple(x.shape[1:]))
            self._streams.load(ids)
            answers, order = [], list[int]()
            if not ids:  # not every model accepts an empty batch
                answers.append(rows.look(x.new_zeros(1, *x.shape[1:]), [self._source], [1.0])[0][:0])
            for chunk in self._chunks(ids):
                index = [row for _, own in chunk for row in own]
                tensors = [stream.inner.tensors for stream, own in chunk for _ in own]
                reach = [stream.inner.reach for stream, own in chunk for _ in own]
                with self._workshop.gate:
                    logits, near = rows.look(clean[index], tensors, reach)  # type: ignore[arg-type]
                if usable is not None:
                    logits = logits.masked_fill(~usable[index, None], torch.nan)
                answers.append(self._receive(chunk, x[index], logits, near))
                order += index
            logits = torch.cat(answers)
            in_order = torch.empty_like(logits)
            in_order[torch.tensor(order, dtype=torch.long, device=x.device)] = logits
            return in_order.to(self._inner.backbone.answer_dtype or logits.dtype)

    def state_dict(self, stream: Id) -> dict[str, Any]:
        """Return a stream's state. It can be loaded into a single method and into other fleets."""
        with self._lock, torch.inference_mode(False):
            self._streams.check_known(stream)
            if stream in self._streams.in_memory:
                state: dict[str, Any] = self._streams.in_memory[stream].method.state_dict()
                return state
            return plain(self._streams.spilled(stream))  # type: ignore[no-any-return]

    def load_state_dict(self, stream: Id, state: dict[str, Any]) -> None:
        """Let a new or existing stream continue from a state, which a fleet or a single method has saved.

        Raises:
            ValueError: The state belongs to another method or model, or to a newer version of the library. Nothing
                has changed then.
        """
        (stream,) = _checked_ids([stream])
        with self._lock, torch.inference_mode(False):
            method = self._streams.template.fork()
            method.load_state_dict(state)
            self._streams.replace(stream, method)

    def reset(self, stream: Id) -> None:
        """Start a stream again from the source model."""
        with self._lock, torch.inference_mode(False):
            self._streams.check_known(stream)
            self._streams.replace(stream, self._streams.template.fork())

    def drop(self, stream: Id) -> None:
        """Delete a stream from memory and from the folder."""
        with self._lock:
            self._streams.remove(stream)

    def counters(self, stream: Id) -> dict[str, int]:
        """Return a stream's counters: samples, updates, and what was rejected; see `Method`."""
        with self._lock:
            self._streams.check_known(stream)
            if stream in self._streams.in_memory:
                return dict(self._streams.in_memory[stream].method.counters)
            return dict(self._streams.spilled(stream)["counters"])

    def pause(self, stream: Id) -> None:
        """Stop a stream from learning: its samples are still answered and counted, but not stored."""
        self._change(stream, lambda method: method.pause())

    def resume(self, stream: Id) -> None:
        """Let a stream learn again."""
        self._change(stream, lambda method: method.resume())

    def roll_back(self, stream: Id) -> None:
        """Discard what a stream has learned, as `Method.roll_back` does; its counters are kept."""
        self._change(stream, lambda method: method.roll_back())

    def keep(self, stream: Id) -> None:
        """Write a stream to the folder now, without waiting for `checkpoint_every`; does nothing without a folder."""
        self._change(stream, lambda method: None)

    def durable(self, stream: Id) -> int | None:
        """Return how many samples a stream's state in the folder includes; None without a folder."""
        with self._lock:
            self._streams.check_known(stream)
            if self._streams.store is None:
                return None
            self._streams.commit()
            if stream in self._streams.in_memory:
                saved = self._streams.in_memory[stream].saved
                return 0 if saved is None else saved.samples
            return int(self._streams.spilled(stream)["counters"]["samples"])

    def method(self, stream: Id) -> Method:
        """Return the method object of a stream, after loading the stream into memory.

        Use it to inspect the stream between calls of the fleet. Do not call it, and do not keep it.
        """
        with self._lock, torch.inference_mode(False):
            self._streams.check_known(stream)
            method: Method = self._streams.acquire(stream).method
            if self._streams.store is not None:
                self._streams.commit()  # of the stream that made room
            return method

    def fork(self, stream: Id) -> Method:
        """Return an independent method in the state of a stream, on the same backbone; the stream is not affected."""
        with self._lock, torch.inference_mode(False):
            state = self.state_dict(stream)
            method = self._streams.template.fork()
            inner = _suitable(method)
            inner.tensors, inner.workshop = inner.backbone.clone_source(), Workshop()
            method.load_state_dict(state)
            return method

    def flush(self) -> None:
        """Write every changed stream and wait until all is on disk; only for a fleet with `spill`."""
        with self._lock, torch.inference_mode(False):
            self._streams.flush()

    def close(self) -> None:
        """Write what changed and release the folder, as a `with` block does; the fleet cannot be used afterwards.

        If something cannot be written, this raises `OSError` and the fleet stays open: make room and try again.
        """
        with self._lock:
            if self._streams.store is not None and self._streams.store.is_open:
                self.flush()
                self._streams.store.close()

    @property
    def model(self) -> nn.Module:
        """The model that was given and that all streams share; do not change it."""
        return self._inner.backbone.module

    @property
    def resident(self) -> list[Id]:
        """The ids of the streams in memory, the least recently used first."""
        with self._lock:
            return list(self._streams.in_memory)

    @property
    def waits(self) -> float:
        """How many seconds calls have waited for delayed updates, in total."""
        return self._workshop.waits

    def __contains__(self, stream: Id) -> bool:
        with self._lock:
            return stream in self._streams

    def __len__(self) -> int:
        with self._lock:
            return len(self._streams)

    def __iter__(self) -> Iterator[Id]:
        """The ids of all streams, in memory and in the folder."""
        with self._lock:
            return iter(self._streams)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        store = self._streams.store
        where = f"{len(self.resident)} in memory" + ("" if store is None else f", spilling to {store.folder}")
        method = "\n".join(f"  {line}" for line in repr(self._streams.template).splitlines()[:-2])
        return f"Fleet of {len(self)} streams, {where}, each\n{method}"

    def _chunks(self, ids: Sequence[Id]) -> Iterator[Chunk]:
        """Divide the samples into passes, round robin; each stream gives at most the samples before its next update."""
        waiting: OrderedDict[Id, deque[int]] = OrderedDict()
        for row, name in enumerate(ids):
            waiting.setdefault(name, deque()).append(row)
        while waiting:
            chunk: dict[Id, tuple[Stream, list[int]]] = {}
            left = CHUNK
            while waiting and left and len(chunk) < self._streams.room:
                name, rows = next(iter(waiting.items()))
                if name in chunk:
                    break
                stream = self._streams.acquire(name)
                stream.inner.settle()
                count = min(stream.method.room(), len(rows), left)
                chunk[name] = (stream, [rows.popleft() for _ in range(count)])
                left -= count
                waiting.move_to_end(name)
                if not rows:
                    del waiting[name]
            yield list(chunk.values())

    def _receive(self, chunk: Chunk, x: Tensor, logits: Tensor, near: Tensor) -> Tensor:
        """Let each stream of a chunk count, store and learn from its samples; write streams that are due."""
        self._workshop.rows += len(x)
        answers = []
        sizes = [len(own) for _, own in chunk]
        parts = zip(chunk, x.split(sizes), logits.split(sizes), near.split(sizes), strict=True)
        with self._workshop.taking_in():
            for (stream, own), samples, own_logits, own_near in parts:
                if self._streams.due(stream) and len(own) == stream.method.room():
                    self._streams.write(stream)  # before another update takes effect
                stream.changed = True
                answers.append(stream.method.receive(samples, own_logits, own_near))
        self._workshop.keep_up()
        if self._streams.store is not None:
            for stream, _ in chunk:
                if self._streams.due(stream) and not stream.inner.busy:
                    self._streams.write(stream)
            self._streams.commit()
        return torch.cat(answers)

    def _pass_for(self, x: Tensor) -> Together | InTurn:
        """Choose how samples of this shape are answered; a shape that the model rejects raises `ValueError`."""
        shape = tuple(x.shape[1:])
        if shape not in self._fits:
            samples = x if len(x) else x.new_zeros(1, *shape)
            self._fits[shape] = agrees(self._together, self._in_turn, samples, self._source)
            if not self._fits[shape]:
                self._inner.warn(
                    "in turn",
                    "this model cannot answer many streams in one pass: it uses tensors of norm layers elsewhere, "
                    "or reshapes the batch before a norm layer. Its streams run one after another, which is slower",
                )
        return self._together if self._fits[shape] else self._in_turn

    def _change(self, name: Id, change: Callable[[Method], None]) -> None:
        with self._lock, torch.inference_mode(False):
            self._streams.check_known(name)
            stream = self._streams.acquire(name)
            change(stream.method)
            self._streams.keep(stream)


def _suitable(template: Method) -> IntervalMethod:
    """Return the innermost method of a stream; refuse one that a fleet cannot run."""
    if not isinstance(template, Method):
        raise TypeError(f"method must return a method such as tta.NOTE(model), got {type(template).__name__}")
    inner = template.inner
    answers = ("__call__", "forward", "look", "predict", "answering_module")
    if not isinstance(inner, IntervalMethod) or any(
        getattr(type(inner), name) is not getattr(IntervalMethod, name) for name in answers
    ):
        raise ValueError(
            f"a fleet runs methods such as tta.NOTE, with or without wrappers; {type(inner).__name__} computes its "
            "answers differently: make one method per stream instead"
        )
    return inner


def _checked_ids(ids: Sequence[Id]) -> list[Id]:
    if isinstance(ids, str | bytes | int):
        raise TypeError(f"ids must be a list with one id per sample, got {ids!r:.40}")
    ids = list(ids)
    for name in ids:
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise TypeError(f"an id must be a string or an int, got {name!r:.40} ({type(name).__name__})")
    return ids
