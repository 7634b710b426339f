"""The address window: the only memory that the machine may touch."""

from amaranth.hdl import Value, ValueLike

__all__ = ["in_window"]


def in_window(*, base: ValueLike, limit: ValueLike, address: ValueLike, size: ValueLike) -> Value:
    """1 if all of ``address .. address + size - 1`` lies in ``[base, limit)``.

    The end is computed one bit wider than the address, so a range that would wrap around 2^32 lies outside.
    With ``limit <= base`` nothing lies inside. ``size`` is at least 1.
    """
    address = Value.cast(address)
    end = address + Value.cast(size)
    return (address >= base) & (end <= limit)
