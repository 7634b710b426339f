"""The C-Core's operand buffers: row banks (IBUF, EBUF) and weight banks (WBUF), ``docs/machine.md`` section 3."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from gradloom.contracts.config import WEIGHT_BANKS, Config
from gradloom.contracts.engines import load_channels
from gradloom.contracts.isa import Dest
from gradloom.rtl.memories import BLOCK_WORDS, memory_apart
from gradloom.rtl.memory_path.buses import LoadBus

__all__ = ["RowBanks", "WeightBanks", "address_bits"]


def address_bits(depth: int) -> int:
    """Address bits of a memory of ``depth`` entries, at least one."""
    return max(1, (depth - 1).bit_length())


def _registered(m: Module, load: Sequence[LoadBus], beat: data.StructLayout) -> list[data.View]:
    """What is on the buses, one cycle later."""
    buses = [Signal(beat, name=f"bus{n}", reset_less=True) for n in range(len(load))]
    for held, bus in zip(buses, load, strict=True):
        m.d.sync += [held.data.eq(bus.data), held.addr.eq(bus.addr)]
        if "sub" in beat.members:
            m.d.sync += held.sub.eq(bus.sub)
    return buses


def _arrival(m: Module, load: Sequence[LoadBus], dest: Dest, bank: int) -> tuple[Signal, Signal]:
    """One cycle later: whether a beat for a bank has come, and the number of its bus, so that a bit of four buses is one LUT6."""
    hits = [bus.valid & (bus.dest == dest) & (bus.bank == bank) for bus in load]
    write, which = Signal(name=f"write{bank}"), Signal(range(len(load)), name=f"which{bank}", reset_less=True)
    m.d.sync += [write.eq(Cat(hits).any()),
                 *(which[bit].eq(Cat(hit for n, hit in enumerate(hits) if n >> bit & 1).any()) for bit in range(len(which)))]
    return write, which


def _chosen(which: Signal, buses: Sequence[ValueLike]) -> ValueLike:
    """What lies on one of the buses."""
    if len(buses) == 1:
        return buses[0]
    bit = (len(buses) - 1).bit_length() - 1
    return Mux(which[bit], _chosen(which, buses[1 << bit:]), _chosen(which, buses[:1 << bit]))


class RowBanks(wiring.Component):
    """``3 wpus`` banks of ``depth`` beats, all read at once (IBUF or EBUF).

    The load bus is registered: a beat is in its bank two cycles after the cycle it was on the bus, in time for an engine that
    starts one cycle after the Loader's ``done`` and reads one cycle after its own start.

    Members
    -------
    load : ``In(LoadBus).array(n)``
        Of the channels that fill it. Beats for ``dest`` are written; never two for one bank in one cycle.
    addr : ``In(ArrayLayout(16, 3 wpus))``
        Address per bank; bits above the depth's width are ignored.
    q : ``Out(ArrayLayout(16 G, 3 wpus))``
        The beats, one cycle after ``addr``.
    """

    def __init__(self, config: Config, *, depth: int, dest: Dest) -> None:
        self.config = config
        self.depth = depth
        self.dest = dest
        banks = config.row_banks
        super().__init__({"load": In(LoadBus(config)).array(len(load_channels(config, dest))),
                          "addr": In(data.ArrayLayout(16, banks)),
                          "q": wiring.Out(data.ArrayLayout(16 * config.group, banks))})

    def elaborate(self, platform) -> Module:
        m = Module()
        beat = data.StructLayout({"data": 16 * self.config.group, "addr": address_bits(self.depth)})
        buses = _registered(m, self.load, beat)
        for bank in range(self.config.row_banks):
            write, which = _arrival(m, self.load, self.dest, bank)
            taken = Signal(beat, name=f"taken{bank}")
            m.d.comb += [taken.eq(_chosen(which, buses)), self.q[bank].eq(self._bank(m, bank, write, taken))]
        return m

    def _bank(self, m: Module, bank: int, write: Value, taken: data.View) -> Value:
        """Entries beyond a multiple of a block RAM's depth may be distributed RAM. Returns the beat that is read."""
        rest = self.depth % BLOCK_WORDS
        whole = self.depth - rest
        address = self.addr[bank][:address_bits(self.depth)]
        reads = []
        for name, depth, mine in (("", whole, lambda of: of < whole), ("_rest", rest, lambda of: of >= whole)):
            if not depth:
                continue
            m.submodules[f"bank{bank}{name}"] = memory = memory_apart(
                16 * self.config.group, depth, self.config.family, lutram_bits=self.config.lutram_bits)
            to, of = memory.write_port(), memory.read_port()
            m.d.comb += [to.en.eq(write & (mine(taken.addr) if whole and rest else 1)), to.addr.eq(taken.addr),
                         to.data.eq(taken.data), of.en.eq(1), of.addr.eq(address)]
            reads.append(of.data)
        if len(reads) == 1:
            return reads[0]
        beyond = Signal(name=f"beyond{bank}", reset_less=True)
        m.d.sync += beyond.eq(address >= whole)
        return Mux(beyond, reads[1], reads[0])


class WeightBanks(wiring.Component):
    """3 banks of ``wbuf_depth`` weight blocks [G out][G in], what a lap takes of one block of each bank a cycle (WBUF).

    A bank is some memories side by side, so that a load bus writes one beat without byte enables.

    A lap takes ``cols`` input channels of all clusters: the whole block, or of the four quadrants of one [``cols`` out][``cols``
    in] the two of its input channels, with ``transpose`` the two of its output channels. Quadrant (a, b), of the output channels
    of half a and the input channels of half b, lies in store a xor b at address 2 block + a, so that both are read from
    two stores, and a beat, which has rows of two quadrants of one a, is written to both.

    Members
    -------
    load : ``In(LoadBus).array(n)``
        Of the channels that fill WBUF, registered once as in :class:`RowBanks`. Beats for WBUF are written; never two
        for one bank in one cycle.
    addr : ``In(ArrayLayout(16, 3))``
        Block per bank.
    lap, transpose : ``In(1)``
        With ``addr``.
    q : ``Out(ArrayLayout(8 G cols, 3))``
        One cycle later for each ``cols`` clusters a quadrant, byte ``gout * cols + gin``.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({
            "load": In(LoadBus(config)).array(len(load_channels(config, Dest.WBUF))),
            "addr": In(data.ArrayLayout(16, WEIGHT_BANKS)), "lap": In(1), "transpose": In(1),
            "q": wiring.Out(data.ArrayLayout(8 * config.group * config.cols, WEIGHT_BANKS))})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        size = data.StructLayout({"data": 16 * config.group, "addr": address_bits(config.wbuf_depth), "sub": 4})
        buses = _registered(m, self.load, size)
        late = Signal(name="late_lap", reset_less=True)
        m.d.sync += late.eq(self.lap)
        for bank in range(WEIGHT_BANKS):
            write, which = _arrival(m, self.load, Dest.WBUF, bank)
            taken = Signal(size, name=f"taken{bank}")
            m.d.comb += taken.eq(_chosen(which, buses))
            stores = [self._store(m, bank, store, write, taken) for store in range(config.laps)]
            if config.laps > 1:
                stores = [Mux(late, stores[half ^ 1], stores[half]) for half in range(config.laps)]
            m.d.comb += self.q[bank].eq(Cat(stores))
        return m

    def _store(self, m: Module, bank: int, number: int, write: Value, taken: data.View) -> Value:
        """One of a bank's stores; returns the quadrant (of one lap: the block) that is read."""
        config, block = self.config, self.addr[bank]
        subs = config.block_beats // config.laps
        bits = (subs - 1).bit_length()
        place, of, beat = taken.addr, block, taken.data
        if config.laps > 1:
            half = taken.sub[bits]
            rows = [[taken.data.word_select(row * config.laps + side, 8 * config.cols) for row in range(2)] for side in range(2)]
            place, beat = Cat(half, taken.addr), Mux(half ^ number, Cat(rows[1]), Cat(rows[0]))
            of = Cat(Mux(self.transpose, self.lap, self.lap ^ number), block)
        reads = []
        for sub in range(subs):
            m.submodules[f"bank{bank}_{number}_{sub}"] = memory = memory_apart(
                unsigned(16 * config.cols), config.laps * config.wbuf_depth, config.family)
            to, read = memory.write_port(), memory.read_port()
            m.d.comb += [to.en.eq(write & ((taken.sub[:bits] == sub) if bits else 1)), to.addr.eq(place), to.data.eq(beat),
                         read.en.eq(1), read.addr.eq(of)]
            reads.append(read.data)
        return Cat(reads)
