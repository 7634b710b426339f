"""Addresses of on-chip memories: rings, which hand them out round and round, and pools, in which they stay taken.

Neither waits for anybody: the recorder (:mod:`gradloom.host.order.synchronize`) orders the reuse of an address behind its users.
"""

from collections.abc import Hashable, Sequence

__all__ = ["CachedRing", "FreeListAllocator", "LruSlots", "RingAllocator"]


class RingAllocator:
    """Addresses of an on-chip memory, handed out round and round; the recorder orders their reuse.

    What is taken begins at a multiple of ``grain`` behind ``first``.

    Parameters
    ----------
    name : of a memory where nothing may be taken as long as something there has not been used; else empty
    """

    def __init__(self, size: int, *, first: int = 0, grain: int = 1, name: str = "") -> None:
        self.size, self.first, self.grain, self.name = size, first, grain, name
        self._next = 0

    def find(self, count: int) -> int:
        """What :meth:`take` would return."""
        if not 0 < count <= self.size:
            raise ValueError(f"{count} addresses do not fit in a memory of {self.size}")
        return self.first + (0 if self._next + count > self.size else self._next)

    def ahead(self, counts: Sequence[int]) -> list[int]:
        """What :meth:`take` would return for each of several, taken one after the other."""
        before, found = self._next, [self.take(count) for count in counts]
        self._next = before
        return found

    def turn(self, count: int) -> None:
        """Begin anew unless so many addresses lie ahead: what is taken next, up to ``count`` in all, does not meet itself."""
        if self._next + count > self.size:
            self._next = 0

    def align(self, grain: int) -> None:
        """From now on hand out ``grain`` addresses at a time, in places for so many side by side from the first address on."""
        self.grain = grain
        place = -(-self._next // grain) * grain
        self._next = place if place + grain <= self.size else 0

    def take(self, count: int) -> int:
        """First of ``count`` successive addresses."""
        start = self.find(count)
        self._next = -(-(start - self.first + count) // self.grain) * self.grain
        return start

    def held(self, key: Hashable) -> int | None:
        """First address of what was taken for ``key``, if all of it still lies there and the ring knows: this one never does."""
        return None

    def take_for(self, key: Hashable, count: int) -> int:
        """First of ``count`` successive addresses for ``key``."""
        return self.take(count)


class CachedRing(RingAllocator):
    """A ring that knows what lies where until something else takes its addresses, so that it need not be loaded again."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._held: dict[Hashable, tuple[int, int]] = {}

    def held(self, key: Hashable) -> int | None:
        return self._held[key][0] if key in self._held else None

    def take_for(self, key: Hashable, count: int) -> int:
        start = self.take(count)
        self._held = {
            other: (first, last) for other, (first, last) in self._held.items() if last <= start or start + count <= first
        }
        self._held[key] = start, start + count
        return start


class LruSlots(RingAllocator):
    """Places for up to ``slot`` addresses that keep what lies there; what has not been used for longest gives way."""

    def __init__(self, slots: int, slot: int, *, first: int = 0) -> None:
        super().__init__(slots * slot, first=first)
        self._slot = slot
        self._held: dict[Hashable, int] = {}
        self._free = [first + n * slot for n in range(slots)]

    def held(self, key: Hashable) -> int | None:
        start = self._held.pop(key, None)
        if start is not None:
            self._held[key] = start
        return start

    def take_for(self, key: Hashable, count: int) -> int:
        if count > self._slot:
            raise ValueError(f"{count} addresses do not fit in a place of {self._slot}")
        start = self._free.pop(0) if self._free else self._held.pop(next(iter(self._held)))
        self._held[key] = start
        return start


class FreeListAllocator:
    """Addresses of an on-chip memory that stay taken until they are given back; the recorder orders their reuse."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self._taken: dict[int, int] = {}
        self._next = 0

    def find(self, count: int) -> int | None:
        """First of ``count`` free successive addresses: behind the latest ones if possible, as these have been in use last."""
        if self._fits(self._next, count):
            return self._next
        return self._lowest(count)

    def _lowest(self, count: int) -> int | None:
        end = 0
        for start, length in sorted(self._taken.items()):
            if end + count <= start:
                return end
            end = start + length
        return end if end + count <= self.size else None

    def _fits(self, start: int, count: int) -> bool:
        return start + count <= self.size and all(
            start + count <= other or other + length <= start for other, length in self._taken.items()
        )

    def from_end(self) -> "FreeListAllocator":
        """The same addresses, handed out from the last one on."""
        return _FromEnd(self)

    def from_begin(self) -> "FreeListAllocator":
        """The same addresses, the first ones that are free."""
        return _FromBegin(self)

    def take(self, count: int) -> int:
        """First of ``count`` successive addresses that are taken now."""
        start = self.find(count)
        if start is None or count < 1:
            raise ValueError(f"{count} addresses do not fit in a memory of {self.size}")
        self._taken[start] = count
        self._next = start + count
        return start

    def give_back(self, start: int) -> None:
        """The addresses that were taken from ``start`` on are free."""
        del self._taken[start]


class _Shared(FreeListAllocator):
    def __init__(self, pool: FreeListAllocator) -> None:
        super().__init__(pool.name, pool.size)
        self._taken = pool._taken


class _FromBegin(_Shared):
    def find(self, count: int) -> int | None:
        return self._lowest(count)


class _FromEnd(_Shared):
    def find(self, count: int) -> int | None:
        ends = [self.size, *sorted(self._taken, reverse=True)]
        return next((end - count for end in ends if end >= count and self._fits(end - count, count)), None)
