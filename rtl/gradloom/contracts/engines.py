"""Engines as built: the DMA channels, the memories that each serves, and the semaphores between engines.

A machine has one C-Core, one A-Core, ``load_channels`` Loaders and ``store_channels`` Storers, each with a command queue
of its own. Every on-chip memory is drained by one channel and filled by one, but the buffers of weights and of inputs, which
all channels fill where there are more than two. The Sequencer, the engines and the host all read the tables of this
module.
"""

import enum
import functools

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Dest, Engine, Opcode, Source
from gradloom.contracts.matrix_config import MatrixConfig

__all__ = ["LOAD_MAP", "LOAD_UNITS", "STORE_MAP", "STORE_UNITS", "TOKENS", "Unit", "engine_of", "load_channels",
           "semaphore", "store_channel", "unit_of", "units"]


class Unit(enum.IntEnum):
    """An engine of a machine; the number is that of ERROR, ERROR_STATE and PERF_INDEX, whatever channels exist.

    The first Loader and Storer have the numbers of :class:`gradloom.contracts.isa.Engine`.
    """

    SEQ = 0
    LOAD = 1
    CCORE = 2
    ACORE = 3
    STORE = 4
    LOAD1 = 5
    LOAD2 = 6
    STORE1 = 7
    LOAD3 = 8


LOAD_UNITS = (Unit.LOAD, Unit.LOAD1, Unit.LOAD2, Unit.LOAD3)
"""Loaders by channel."""
STORE_UNITS = (Unit.STORE, Unit.STORE1)
"""Storers by channel."""

_CCORE_INPUTS = (Dest.IBUF, Dest.EBUF, Dest.WBUF)
_ACORE_INPUTS = (Dest.AA, Dest.AB, Dest.AM, Dest.PBUF, Dest.XIN, Dest.LABEL)
_SHARED = (Dest.IBUF, Dest.WBUF)

LOAD_MAP: dict[int, tuple[tuple[Dest, ...], ...]] = {
    1: (tuple(Dest),),
    2: (_CCORE_INPUTS, _ACORE_INPUTS),
    3: (_SHARED, (*_SHARED, Dest.EBUF), (*_SHARED, *_ACORE_INPUTS)),
    4: (_SHARED, (*_SHARED, Dest.EBUF), (*_SHARED, Dest.AA, Dest.XIN, Dest.LABEL), (*_SHARED, Dest.AB, Dest.AM, Dest.PBUF)),
}
"""By ``load_channels``: the memories that each channel fills."""

STORE_MAP: dict[int, tuple[tuple[Source, ...], ...]] = {
    1: (tuple(Source),),
    2: ((Source.OA, Source.PBUF, Source.LOGIT), (Source.OB, Source.OM, Source.XOUT)),
}
"""By ``store_channels``: the memories that each channel drains."""


def load_channels(config: Config, dest: int) -> tuple[int, ...]:
    """Channels that fill memory ``dest``, in the order of ``way``: the lowest first, but for weights that of the errors. (0,) for a
    number that is no memory, which the Loader there refuses."""
    return _load_channels(config.load_channels, dest)


@functools.cache
def _load_channels(channels: int, dest: int) -> tuple[int, ...]:
    parts = LOAD_MAP[channels]
    found = [n for n in range(len(parts)) if dest in parts[n]] or [0]
    return tuple(sorted(found, key=lambda n: dest == Dest.WBUF and Dest.EBUF not in parts[n]))


def store_channel(config: Config, source: int) -> int:
    """Channel that drains memory ``source``; 0 for a number that is no memory."""
    return _store_channel(config.store_channels, source)


@functools.cache
def _store_channel(channels: int, source: int) -> int:
    return next((n for n, memories in enumerate(STORE_MAP[channels]) if source in memories), 0)


def units(config: Config) -> tuple[Unit, ...]:
    """The machine's engines beside the Sequencer, in the order of their queues and of every report."""
    cores = (Unit.CCORE,) if isinstance(config, MatrixConfig) else (Unit.CCORE, Unit.ACORE)
    return (*LOAD_UNITS[:config.load_channels], *cores, *STORE_UNITS[:config.store_channels])


def unit_of(config: Config, opcode: Opcode, memory: int = 0, way: int = 0) -> Unit:
    """The engine that executes a command.

    Parameters
    ----------
    memory : :class:`int`
        ``dest`` of a LOAD, ``src`` of a STORE.
    way : :class:`int`
        Of a LOAD; not looked at if one channel alone fills the memory.
    """
    if opcode == Opcode.LOAD:
        channels = load_channels(config, memory)
        return LOAD_UNITS[channels[way % len(channels)]]
    if opcode == Opcode.STORE:
        return STORE_UNITS[store_channel(config, memory)]
    return Unit(opcode >> 4)


def engine_of(unit: Unit) -> Engine:
    """What kind of engine it is."""
    if unit in LOAD_UNITS:
        return Engine.LOAD
    return Engine.STORE if unit in STORE_UNITS else Engine(unit)


def _tokens() -> tuple[tuple[Unit, Unit], ...]:
    """Cores and what fills or drains their memories in some machine, in either direction; Storers and the Loaders behind them; the
    A-Core, which alone uses exponents and statistics, and the Sequencer, which makes exponents of statistics."""
    pairs = [(Unit.CCORE, Unit.ACORE), *((store, Unit.ACORE) for store in STORE_UNITS)]
    for parts in LOAD_MAP.values():
        for load, memories in zip(LOAD_UNITS, parts, strict=False):
            cores = {Unit.CCORE if memory in _CCORE_INPUTS else Unit.ACORE for memory in memories}
            pairs += [(load, core) for core in sorted(cores) if (load, core) not in pairs]
    ahead = ((store, load) for store in STORE_UNITS for load in LOAD_UNITS)
    return (*pairs, *((core, unit) for unit, core in pairs), *ahead, (Unit.ACORE, Unit.SEQ))


TOKENS: tuple[tuple[Unit, Unit], ...] = _tokens()
"""(producer, consumer) by the number of their semaphore; the same in every machine. Any other two engines are ordered by tokens of
a third one, or else by a BARRIER: two Loaders write different memories, two Storers different tensors, the C-Core touches nothing
that a Storer touches, and a tensor is overwritten by what the cores have computed from what was loaded of it."""


_SEMAPHORES = {pair: number for number, pair in enumerate(TOKENS)}


def semaphore(producer: Unit, consumer: Unit) -> int | None:
    """Number of the semaphore with which ``producer`` lets ``consumer`` go on; :class:`None` if the two have none."""
    return _SEMAPHORES.get((producer, consumer))
