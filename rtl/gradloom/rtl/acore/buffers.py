"""The A-Core's on-chip memories with their Loader and Storer sides (docs/machine.md section 3)."""

from typing import NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.engines import load_channels, store_channel
from gradloom.contracts.isa import Dest, Source
from gradloom.rtl.acore.buffer_ports import (
    FirstPassReads,
    MemoryRead,
    ParameterWrite,
    ResultWrite,
    ResultWrites,
    SharedRead,
    StreamAddresses,
    StreamData,
    result_bits,
)
from gradloom.rtl.acore.turns import COLUMNS, Turns
from gradloom.rtl.memories import make_memory
from gradloom.rtl.memory_path.buses import LoadBus, StoreBus

__all__ = ["Buffers"]


class _Read(NamedTuple):
    """How a memory is read: the data of an address follow it by a cycle."""

    addr: Signal
    data: Value


def _written(result: ResultWrite) -> tuple[Value, Value, Value]:
    """Enables, address and data of an output."""
    return result.we, result.addr, result.data


class Buffers(wiring.Component):
    """AA, AB, AM, XIN, LABEL (from the Loader), OA, OB, OM, XOUT, LOGIT (for the Storer) and PBUF (both).

    A block RAM has one side that reads. Where two parts of the machine read a memory, one of them goes first, and the other one
    can wait: the lanes' sweep before the first pass at the even, resp. odd, addresses of AA and of AB, a Storer before the
    A-Core at PBUF and LOGIT. Only AM, which is small, is there twice.

    Members
    -------
    load, store : ``In(LoadBus).array(load_channels)``, ``In(StoreBus).array(store_channels)``
        A memory listens to the bus of its channel (:mod:`gradloom.contracts.engines`).
    addresses : ``In(StreamAddresses())``, streams : ``Out(StreamData(config))``
        Read side of the lanes.
    first : ``In(FirstPassReads(config))``
        Read side of the first pass.
    labels : ``In(MemoryRead(16))``
    logits : ``In(SharedRead(ArrayLayout(signed(32), G)))``
        Its data come two cycles after the address.
    parameters : ``In(SharedRead(64 G))``, parameter_writes : ``In(ParameterWrite(config))``
        PBUF.
    results : ``In(ResultWrites(config))``
        Of the lanes; of softmax, too, those to OA.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.turns = config, Turns(config)
        self.widths = result_bits(config) | {"p": 32 * config.beat_bytes}
        super().__init__({
            "load": In(LoadBus(config)).array(config.load_channels), "store": In(StoreBus(config)).array(config.store_channels),
            "addresses": In(StreamAddresses()), "streams": Out(StreamData(config)), "first": In(FirstPassReads(config)),
            "labels": In(MemoryRead(16)), "logits": In(SharedRead(ArrayLayout(signed(32), config.group))),
            "parameters": In(SharedRead(64 * config.group)), "parameter_writes": In(ParameterWrite(config)),
            "results": In(ResultWrites(config))})

    def elaborate(self, platform) -> Module:
        m = Module()
        self._loaded(m)
        stored = self._stored(m)
        shared = {"p": self.parameters, "logit": self.logits}
        sources = {"oa": Source.OA, "ob": Source.OB, "om": Source.OM, "p": Source.PBUF, "xout": Source.XOUT,
                   "logit": Source.LOGIT}
        for channel, bus in enumerate(self.store):
            mine = {name: number for name, number in sources.items()
                    if name in stored and store_channel(self.config, number) == channel}
            for name, number in mine.items():
                addr: Value = bus.addr
                if name in shared:
                    read = shared[name]
                    m.d.comb += read.free.eq(~(bus.en & (bus.src == number)))
                    addr = Mux(read.free, read.addr, bus.addr)
                m.d.comb += stored[name].addr.eq(addr)
            self._store_side(m, bus, {name: (number, stored[name].data) for name, number in mine.items()})
        m.d.comb += self.parameters.data.eq(stored["p"].data)
        m.d.sync += self.logits.data.as_value().eq(stored["logit"].data)
        return m

    def _loaded(self, m: Module) -> None:
        """The memories that the A-Core only reads."""
        config, beat = self.config, self.config.beat_bytes * 8
        at, of, first = self.addresses, self.streams, self.first
        rest = _Read(at.rest, of.rest)
        self._stream(m, "aa", Dest.AA, _Read(at.aa, of.aa), _Read(first.aa.addr, first.aa.data), rest)
        self._stream(m, "ab", Dest.AB, _Read(at.ab, of.ab), _Read(first.ab.addr, first.ab.data))
        am = _Read(at.am, of.am), _Read(first.am.addr, first.am.data)
        for name, dest, depth, readers in (("am", Dest.AM, config.mbuf_depth, am),
                                           ("xin", Dest.XIN, config.export_depth, (_Read(at.xin, of.xin),)),
                                           ("label", Dest.LABEL, config.max_planes, (_Read(self.labels.addr, self.labels.data),))):
            if not depth:
                continue
            width = len(readers[0].data)
            made = self._memory(m, name, width, depth)
            for reader in readers:
                port = made.read_port()
                m.d.comb += [port.addr.eq(reader.addr), reader.data.eq(port.data)]
            write = made.write_port(granularity=min(width, beat))
            load = self._loader(dest)
            taken = load.valid & (load.dest == dest)
            m.d.comb += [write.addr.eq(load.addr), write.en.eq(taken << (load.sub[:3] if dest == Dest.XIN else 0)),
                         write.data.eq(load.data[:width] if width <= beat else load.data.replicate(width // beat))]

    def _stored(self, m: Module) -> dict[str, _Read]:
        """The memories that a Storer reads, with their sides that write; how each is read."""
        config, beat = self.config, self.config.beat_bytes * 8
        read: dict[str, _Read] = {}
        results = self.results
        for name, depth, result in (("ob", config.abuf_depth, results.ob), ("om", config.mbuf_depth, results.om),
                                    ("xout", config.export_depth, results.xout), ("logit", config.logit_depth, results.logit)):
            if depth:
                made = self._memory(m, name, self.widths[name], depth)
                self._write(m, name, made, result.we, result.addr, result.data)
                port = made.read_port()
                read[name] = _Read(port.addr, port.data)
        return read | {"p": self._sums(m, beat), "oa": self._codes(m)}

    def _sums(self, m: Module, beat: int) -> _Read:
        """PBUF, which the Loader writes as well."""
        config, load, put = self.config, self._loader(Dest.PBUF), self.parameter_writes
        made = self._memory(m, "p", self.widths["p"], config.pbuf_depth)
        to_p = Signal()
        part = min(beat, 64)  # bits of an entry that can be written alone: a Loader's beat, or a channel
        write, port = made.write_port(granularity=part), made.read_port()
        channels = Cat(bit.replicate(64 // part) for bit in Mux(put.valid, put.channel, 0))
        whole = ((1 << beat // part) - 1) << (load.sub[:2] * (beat // part))
        m.d.comb += [to_p.eq(load.valid & (load.dest == Dest.PBUF)), put.ready.eq(~to_p),
                     write.addr.eq(Mux(to_p, load.addr, put.addr)), write.en.eq(Mux(to_p, whole, channels)),
                     write.data.eq(Mux(to_p, load.data.replicate(4), put.data.replicate(config.group)))]
        return _Read(port.addr, port.data)

    def _codes(self, m: Module) -> _Read:
        """OA. A code goes first: a rest comes with one, and to the other half."""
        addr, odd = Signal(16, name="oa_addr"), Signal(name="oa_odd", reset_less=True)
        m.d.sync += odd.eq(addr[0])
        codes, rests = self.results.oa, self.results.rest
        reads = []
        for side, half in enumerate(self._halves(m, "oa")):
            mine = codes.addr[0] == side
            we, waddr, data = (Mux(mine, code, rest) for code, rest in zip(_written(codes), _written(rests), strict=True))
            self._write(m, "oa", half, we, waddr[1:], data)
            port = half.read_port()
            m.d.comb += port.addr.eq(addr[1:])
            reads.append(port.data)
        return _Read(addr, Mux(odd, reads[1], reads[0]))

    def _memory(self, m: Module, name: str, width: int, depth: int) -> Memory:
        m.submodules[name] = made = make_memory(width, max(depth, 2), self.config.lutram_bits)
        return made

    def _halves(self, m: Module, name: str) -> list[Memory]:
        """One for the even and one for the odd addresses."""
        return [self._memory(m, f"{name}_{side}", self.config.beat_bytes * 8, -(-self.config.abuf_depth // 2))
                for side in ("even", "odd")]

    def _stream(self, m: Module, name: str, dest: Dest, lanes: _Read, first: _Read, rests: _Read | None = None) -> None:
        """One memory for the even and one for the odd addresses of a stream: the lanes read the one, the first pass, or with
        ``rests`` the lanes as well, the other."""
        load, en = self._loader(dest), self.addresses.en
        readers = {name: lanes, f"first_{name}": first} | ({"rest": rests} if rests else {})
        beside = Mux(en & self.addresses.rests_en, rests.addr, first.addr) if rests else first.addr
        reads = []
        for odd, half in enumerate(self._halves(m, name)):
            write, port = half.write_port(), half.read_port()
            m.d.comb += [write.addr.eq(load.addr[1:]), write.data.eq(load.data),
                         write.en.eq(load.valid & (load.dest == dest) & (load.addr[0] == odd)),
                         port.addr.eq(Mux(en & (lanes.addr[0] == odd), lanes.addr, beside)[1:])]
            reads.append(port.data)
        for reader, read in readers.items():
            odd = Signal(name=f"{reader}_odd", reset_less=True)
            m.d.sync += odd.eq(read.addr[0])
            m.d.comb += read.data.eq(Mux(odd, reads[1], reads[0]))

    def _write(self, m: Module, name: str, memory: Memory, we: Value, addr: Value, data: Value) -> None:
        """To ``memory``: of a beat in turns the parts of a turn."""
        whole_beats = name == "om" or self.turns.count == 1
        port = memory.write_port(granularity=None if whole_beats else self._value_bits(name))
        enable = we if whole_beats else Cat(we[part] for part in self.turns.parts()[:len(port.en)])
        m.d.comb += [port.addr.eq(addr), port.en.eq(enable), port.data.eq(data)]

    def _value_bits(self, name: str) -> int:
        """Bits of a value of an output, all of whose entries but LOGIT's have both columns."""
        return self.widths[name] // (self.config.group * (1 if name == "logit" else COLUMNS))

    def _loader(self, dest: Dest) -> LoadBus:
        """The bus of the one channel that fills a memory."""
        channel, = load_channels(self.config, dest)
        return self.load[channel]

    def _store_side(self, m: Module, store: StoreBus, read: dict[str, tuple[Source, Value]]) -> None:
        """What one Storer has read from its memories."""
        beat = self.config.beat_bytes * 8
        source = Signal(4)
        sub = Signal(3)
        m.d.sync += [source.eq(store.src), sub.eq(store.sub)]
        with m.Switch(source):
            for name, (number, data) in read.items():
                beats = self.widths[name] // beat
                with m.Case(number):
                    m.d.sync += store.data.eq(
                        data.word_select(sub[:(beats - 1).bit_length()], beat) if beats > 1 else data)
