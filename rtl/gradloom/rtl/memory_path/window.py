"""The address window: the only memory that the machine may touch."""

from amaranth.hdl import Value, ValueLike

__all__ = ["in_window"]


def in_window(*, base: ValueLike, limit: ValueLike, address: ValueLike, end: ValueLike) -> Value:
    """1 if all of ``address .. end - 1`` lies in ``[base, limit)``.

    The end is one bit wider than the address, so a range that would wrap around 2^32 lies outside. With ``limit <= base`` nothing
    lies inside. ``end`` is above ``address``.
    """
    return (Value.cast(address) >= base) & (Value.cast(end) <= limit)
