"""The order of a program: pieces of independent work, emitted in about the order in which the machine could run them.

Every engine takes its commands in the order of the program, so what should run side by side must be emitted side by side. A
work (:mod:`gradloom.host.order.pieces`) yields pieces; their tasks know what must have been emitted before them
(:mod:`gradloom.host.order.dependences`), so that a layer follows the one before it range by range. :class:`ListScheduler` emits
the pieces of all works one after the other: it knows from the program's clock (:mod:`gradloom.host.cost_model.clock`) when the
engines would be finished with what they have, and takes the first piece for which the array would not wait, or else the one that
can start first. What only the A-Core works at goes where the A-Core has time.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from gradloom.contracts.engines import Unit
from gradloom.host.knobs import DEFAULT_KNOBS, Knobs
from gradloom.host.order.accesses import row_access
from gradloom.host.order.acore_turns import AcoreWork, Turn, acore_turn
from gradloom.host.order.pieces import BoundEngine, Known, Piece, Work
from gradloom.host.order.synchronize import Recorder

__all__ = ["Deadlock", "ListScheduler"]

_LATENCY = 60
"""Cycles of a load beside its beats, about."""
_NEVER = 1 << 62


_ARRAY_WAIT = 100
"""Cycles that the array may wait for a piece rather than take one of a later work. With images one by one each layer waits for the
one before, and later works would come between (ResNet20 at batch 1: 4 % fewer cycles than without); else it hardly matters."""


class Deadlock(RuntimeError):
    """The works of a program wait for each other."""


@dataclasses.dataclass(eq=False)
class _Stream:
    """A work under way: its next piece, and when what that needs is there."""

    work: Work
    line: str
    place: float
    head: Piece
    ready: int | None = None
    awaited: Iterator[Known] = dataclasses.field(default_factory=lambda: iter(()))
    """Tasks that its piece comes after and that have not been asked for: what has been emitted need not be asked for again."""
    awaits: Known | None = None
    """The one of them that had not been emitted when it was asked for last."""
    closing: str = ""
    """The queue that loses its oldest operands with the last of the pieces that go on with each other."""


def _awaited(piece: Piece) -> Iterator[Known]:
    if piece.task is not None:
        # The last ones are there last.
        yield from reversed(piece.task.gated)
        yield from piece.task.after


def _work_of(stream: _Stream, ready: int) -> AcoreWork:
    piece = stream.head
    kind = Turn.PASS if piece.passes_first else Turn.SCALARS if piece.late else Turn.UPDATE if piece.update else Turn.SWEEP
    return AcoreWork(kind, ready, piece.cycles)


def _may_interleave(stream: _Stream) -> bool:
    """Whether its piece may come between the commands of a tile: only gradients, which do not add to partial sums."""
    return bool(stream.line) and stream.head.long_sweep


class ListScheduler:
    """Emits works side by side (:meth:`add`, then :meth:`finish`).

    Parameters
    ----------
    recorder : :class:`~gradloom.host.order.synchronize.Recorder`
        Where they emit.
    loaders : dict
        The Loader of each of the array's buffers.
    knobs : :class:`~gradloom.host.knobs.Knobs`
        How finely planes are cut, and which works come earlier or later than they are added.
    """

    def __init__(self, recorder: Recorder, loaders: dict[str, Unit], knobs: Knobs = DEFAULT_KNOBS) -> None:
        self._recorder, self._loaders, self._knobs = recorder, loaders, knobs
        self._added = 0
        self._streams: list[_Stream] = []
        self._open: Counter[str] = Counter()
        self._inside: list[_Stream] = []
        """Those whose next piece goes on with a tile of the array that has begun."""
        self._under_way: _Stream | None = None
        self._lanes = 0
        """When the A-Core's lanes are through with what they have to sweep."""
        self._filled: _Stream | None = None
        self._crowded = False
        """Whether A-Core's work waits for room in a buffer."""
        self._swept = 0
        """When the results of the last piece with long sweeps have left the array, about."""

    def add(self, *works: Work, line: str = "", name: str = "") -> None:
        """Emit works among the others.

        Parameters
        ----------
        name : :class:`str`
            Under which the knobs may move them in the order of service. Works that others add while they are emitted stand there.
        line : :class:`str`
            Works of one line run one after the other, and only where the array would wait for works that are in none. Of several
            lines the first one in the alphabet is served first.
        """
        for number, work in enumerate(works):
            head = next(work, None)
            if head is not None:
                self._added += 1
                place = self._added + self._knobs.order.get(name, 0) if self._under_way is None else self._under_way.place
                self._streams.append(self._reach(_Stream(work, f"{line} {number}" if line else "", place, head), head))
        self._streams.sort(key=lambda stream: stream.place)

    def wgrad_waits(self) -> bool:
        """Whether a piece could come now that had better come between the commands of others."""
        return any(stream.ready is not None and _may_interleave(stream) for stream in self._streams)

    def finish(self) -> None:
        """Emit all that has been added."""
        while self._streams:
            self._emit(self._choose())

    def _reach(self, stream: _Stream, head: Piece) -> _Stream:
        """A stream comes to its next piece."""
        stream.head, stream.ready = head, None
        stream.awaited = _awaited(head)
        stream.awaits = next(stream.awaited, None)
        if head.inside and head.lane == BoundEngine.ARRAY:
            self._inside.append(stream)
        return stream

    def _emit(self, stream: _Stream) -> None:
        """The stream's present piece."""
        clock = self._recorder.clock
        acore = clock.free(Unit.ACORE)
        first = len(self._recorder.instructions)
        self._under_way = stream
        piece, head = stream.head, next(stream.work, None)
        self._under_way = None
        closes = piece.closes
        if not piece.inside:
            stream.closing, closes = closes, ""
        if head is None or not head.inside:
            closes = stream.closing
        if piece.lane == BoundEngine.ACORE and not (piece.passes_first or piece.late):
            self._lanes = clock.free(Unit.ACORE)
        if piece.task and piece.lane == BoundEngine.LOAD:
            # Its loads take several channels: the last command need not be the last one that is done.
            piece.task.through = clock.through(first)
        if piece.lane != BoundEngine.LOAD and (not piece.long_sweep or acore != clock.free(Unit.ACORE)):
            # One with long sweeps is part of a set, whose last one gives the A-Core its work.
            self._filled = stream if stream.line else None
        if piece.long_sweep:
            self._swept = clock.free(Unit.CCORE) + piece.sweeps
        self._open[piece.opens] += 1
        self._open[closes] -= 1
        if stream in self._inside:
            self._inside.remove(stream)
        if head is None:
            self._streams.remove(stream)
        else:
            self._reach(stream, head)

    # Choice

    def _choose(self) -> _Stream:
        """The stream whose piece comes next."""
        found = self._candidates()
        clock = self._recorder.clock
        now = clock.free(Unit.CCORE)
        arrays = found[BoundEngine.ARRAY]
        if not self._knobs.subtile_beats and all(stream.line for stream in arrays) and self._acore_bound(found[BoundEngine.ACORE]):
            # The array waits for the A-Core, which would be kept from its work by what leaves the array slowly.
            arrays = [stream for stream in arrays if not stream.head.long_sweep]
        starts = [(self._start(stream, now), n) for n, stream in enumerate(arrays)]
        if self._knobs.subtile_beats:
            # Gradients do not keep waiting what others wait for.
            limit = min((time for time, n in starts if not arrays[n].line), default=_NEVER) + _ARRAY_WAIT
            starts = [(time, n) for time, n in starts if not arrays[n].line or time + arrays[n].head.cycles <= limit]
        # Results that leave the array more slowly than it makes them go between what leaves none.
        eager = (pair for pair in starts if pair[0] <= now and arrays[pair[1]].head.long_sweep)
        soon = (pair for pair in starts if pair[0] <= now + _ARRAY_WAIT)
        first = min(starts, default=None)
        chosen = next(itertools.chain(eager, soon), first)
        loads = [(self._load_start(stream), n) for n, stream in enumerate(found[BoundEngine.LOAD])]
        if loads:
            time, n = min(loads)
            if chosen is None or time <= chosen[0]:
                return found[BoundEngine.LOAD][n]
        if self._knobs.subtile_beats:
            piece = self._acore_turn(found[BoundEngine.ACORE], _NEVER if chosen is None else chosen[0])
            if piece is not None:
                return piece
        limit, urgent = _NEVER, -1
        if chosen is not None:
            stream = arrays[chosen[1]]
            # With nothing but fillers left for the array, others wait for the A-Core: fillers take turns with them.
            limit = chosen[0] + stream.head.lag
            if stream.head.silent:
                # It takes no turns, but does not go on behind the time at which the A-Core could begin.
                urgent = chosen[0] + stream.head.cycles
            elif stream is self._filled:
                urgent = max(chosen[0], clock.free(Unit.ACORE))
        waits = chosen is None or chosen[0] > now
        acore = None if self._knobs.subtile_beats else self._acore(found[BoundEngine.ACORE], limit, urgent, waits)
        if acore is not None:
            return acore
        if chosen is not None:
            return arrays[chosen[1]]
        if any(stream.ready is not None and stream.head.relief.give() for stream in self._streams):
            return self._choose()
        raise Deadlock("the works of a program wait for each other")

    def _acore_turn(self, streams: list[_Stream], limit: int) -> _Stream | None:
        """What the A-Core does next, if it can begin until ``limit``, where it takes everything in small pieces."""
        if not streams:
            return None
        clock = self._recorder.clock
        turn = acore_turn(
            [_work_of(stream, self._loaded_at(stream)) for stream in streams],
            clock.accepts(Unit.ACORE),
            clock.free(Unit.ACORE),
            self._lanes,
            crowded=self._crowded,
        )
        return streams[turn[1]] if turn[0] <= limit else None

    def _acore_bound(self, streams: list[_Stream]) -> bool:
        """Whether the A-Core has more to do that others wait for as soon as it is through with what it has."""
        free = self._recorder.clock.free(Unit.ACORE)
        return any(not stream.head.late and (stream.ready or 0) <= free for stream in streams)

    def _acore(self, streams: list[_Stream], limit: int, urgent: int, waits: bool) -> _Stream | None:
        """What the A-Core does next, if it is through with it at ``limit`` or can start until ``urgent``.

        Of several that could start, the first one in the order of the program, or, if the array ``waits`` for any, the last one, as
        that is nearest to the array's next tile.
        """
        times = [(self._acore_start(stream), -n if waits else n, stream) for n, stream in enumerate(streams)]
        # Others may wait for the room that what is late takes.
        first = min((entry for entry in times if self._crowded or not entry[2].head.late), default=None)
        late = min((entry for entry in times if entry[2].head.late), default=None)
        if late and late[0] + late[2].head.cycles <= min(limit, first[0] if first else limit):
            return late[2]
        return first[2] if first and (first[0] + first[2].head.cycles <= limit or first[0] <= urgent) else None

    def _loaded_at(self, stream: _Stream) -> int:
        """When a piece of the A-Core has what it needs: that is loaded when it is in memory."""
        there, head = stream.ready or 0, stream.head
        waits = head.task and (head.task.gated or (head.task.after and not head.inside))
        if there and waits and head.loads:
            there += _LATENCY + head.cycles
        return there

    def _acore_start(self, stream: _Stream) -> int:
        """When the A-Core could begin with a piece."""
        there = self._loaded_at(stream)
        return max(self._recorder.clock.free(Unit.ACORE), there)

    def _candidates(self) -> dict[BoundEngine, list[_Stream]]:
        """Streams whose next piece may come now; those of a line last."""
        found: list[_Stream] = []
        lines, waiting = set[str](), set[str]()
        inside = self._inside
        gap = self._gap(inside)
        self._crowded = False
        for stream in self._streams:
            if not stream.line or stream.line in lines:
                # Most wait, and keep no others of their line from coming.
                other = stream.awaits
                if other is not None and (not other.emitted or self._waits(stream)):
                    continue
            piece = stream.head
            results = piece.results
            outside = inside and piece.lane == BoundEngine.ARRAY and not (
                piece.inside or _may_interleave(stream) or (results and results.disjoint()) or self._fits(stream, gap))
            if outside or (results and any(self._recorder.waits_for_use(access) for access in results.unused())):
                (lines if stream.line and piece.holds else waiting).add(stream.line)
                continue
            if stream.line and stream.line in waiting and not piece.passes:
                continue
            if inside and piece.lane == BoundEngine.LOAD and piece.weights:
                # The weights of the commands that are still to come lie on chip.
                continue
            if stream.line:
                if stream.line in lines:
                    continue
                lines.add(stream.line)
            if not self._there(stream) or not (results is None or all(task.emitted for task in results.readers())):
                continue
            if piece.opens and self._open[piece.opens] >= (piece.ahead or self._knobs.prefetch_depth):
                continue
            if piece.task and any(self._recorder.waits_for_use(access) for access in piece.task.taken()):
                continue
            if all(pool.find(count) is not None for pool, count in piece.room):
                found.append(stream)
            elif piece.lane == BoundEngine.ACORE:
                self._crowded = True
        # Those in no line have an empty one, and so come first.
        found.sort(key=lambda stream: stream.line)
        return {lane: [stream for stream in found if stream.head.lane == lane] for lane in BoundEngine}

    def _there(self, stream: _Stream) -> bool:
        """Whether what a stream's piece needs has been emitted; ``ready`` says when it is there."""
        if stream.ready is None and not self._waits(stream):
            task, times = stream.head.task, list[int]()
            if task is not None:
                times += (other.through for other in task.after)
                times += (self._recorder.when(access) for access in task.read())
            stream.ready = max(times, default=0)
        return stream.ready is not None

    def _waits(self, stream: _Stream) -> bool:
        """Whether a task that a stream's piece comes after has not been emitted."""
        while (other := stream.awaits) is not None:
            if not other.emitted:
                return True
            stream.awaits = next(stream.awaited, None)
        return False

    def _gap(self, inside: Sequence[_Stream]) -> int:
        """When the array can go on with pieces that leave it to gradients until then; 0 if there are none."""
        now = self._recorder.clock.free(Unit.CCORE)
        return min((self._start(stream, now) for stream in inside if stream.head.idle and self._there(stream)), default=0)

    def _fits(self, stream: _Stream, gap: int) -> bool:
        """Whether a piece of gradients is through before a gap ends."""
        if not stream.line or not self._there(stream):
            return False
        return self._start(stream, self._recorder.clock.free(Unit.CCORE)) + stream.head.cycles <= gap

    def _load_start(self, stream: _Stream) -> int:
        """When a Loader could begin with a piece."""
        start = stream.ready or 0
        for pool, count in stream.head.room:
            first = pool.find(count) or 0
            free = self._recorder.when(row_access(pool.name, first, count), write=True)
            start = max(start, free, self._recorder.clock.free(self._loaders[pool.name]))
        return start

    def _start(self, stream: _Stream, now: int) -> int:
        """When the array could begin with a piece."""
        start, piece = max(now, stream.ready or 0), stream.head
        if piece.long_sweep:
            start = max(start, self._swept - piece.cycles)
        if piece.results and (place := piece.results.place()):
            start = max(start, self._recorder.when(place, write=True))
        if piece.weights:
            start = max(start, self._recorder.clock.free(self._loaders["WBUF"]) + piece.weights + _LATENCY)
        return start
