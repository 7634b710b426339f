"""The A-Core's on-chip memories with their Loader and Storer sides (docs/machine.md section 3)."""

from typing import NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.engines import load_channels, store_channel
from gradloom.contracts.isa import Dest, Source
from gradloom.rtl.acore.turns import COLUMNS, Turns
from gradloom.rtl.memories import make_memory
from gradloom.rtl.memory_path.buses import LoadBus, StoreBus

__all__ = ["Buffers"]


class _Read(NamedTuple):
    """How a memory is read: the data of an address follow it by a cycle."""

    addr: Signal
    data: Value


class Buffers(wiring.Component):
    """AA, AB, AM, XIN, LABEL (from the Loader), OA, OB, OM, XOUT, LOGIT (for the Storer) and PBUF (both).

    Every ``*_data`` output follows its address by one cycle, ``logit_data`` by two. Addresses beyond a memory wrap.

    A block RAM has one side that reads. Where two parts of the machine read a memory, one of them goes first, and the other one
    can wait: the lanes' sweep before the first pass at the even, resp. odd, addresses of AA and of AB, a Storer before the
    A-Core at PBUF and LOGIT. Only AM, which is small, is there twice.

    Members
    -------
    load, store : ``In(LoadBus).array(load_channels)``, ``In(StoreBus).array(store_channels)``
        A memory listens to the bus of its channel (:mod:`gradloom.contracts.engines`).
    streams_en : ``In(1)``, aa_addr, ab_addr, am_addr : ``In(16)`` -> ``*_data`` ``Out(16 G)``
        Read side of the lanes.
    rests_en : ``In(1)``, rest_addr : ``In(16)`` -> rest_data ``Out(16 G)``
        Another address of AA, of the other parity than ``aa_addr``, in a cycle of ``streams_en`` and of no read of the first pass.
    first_aa_addr, first_ab_addr, first_am_addr : ``In(16)`` -> ``*_data`` ``Out(16 G)``
        Read side of the first pass; in a cycle of ``streams_en`` not at addresses of AA and AB of the same parity as the lanes'.
    xin_addr : ``In(16)`` -> ``xin_data`` ``Out(128 G)``
    label_addr : ``In(16)`` -> ``label_data`` ``Out(16)``
    logit_addr : ``In(16)`` -> ``logit_data`` ``Out(32 G)``, in a cycle of ``logit_free`` ``Out(1)``
    p_addr : ``In(16)`` -> ``p_data`` ``Out(64 G)``, in a cycle of ``p_free`` ``Out(1)``
        ``*_free``: no Storer reads the memory in this cycle (it cannot wait, the A-Core can).
    p_we, p_waddr, p_wdata : ``In(G)``, ``In(16)``, ``In(64)``
        Write channels of a PBUF entry, in a cycle of ``p_ready``.
    p_ready : ``Out(1)``
        The Loader is not writing PBUF in this cycle (it cannot wait, the A-Core can).
    oa, rest, ob, om, xout, logit : ``*_we``, ``*_waddr``, ``*_wdata`` ``In``
        ``*_we`` but for om: a bit for each turn of a beat, whose parts are written (:class:`gradloom.rtl.acore.turns.Turns`).
        Rests go to OA, too, with codes at an address of the other parity.
    xin, xout
        Not there if ``export_depth`` is 0: reads are 0, writes are lost.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.turns = config, Turns(config)
        beat = config.beat_bytes * 8
        self.widths = {"oa": beat, "rest": beat, "ob": beat, "om": beat, "xout": 8 * beat, "logit": 2 * beat, "p": 4 * beat}
        members = {"load": In(LoadBus(config)).array(config.load_channels),
                   "store": In(StoreBus(config)).array(config.store_channels), "streams_en": In(1), "rests_en": In(1),
                   "p_ready": Out(1), "p_free": Out(1), "logit_free": Out(1)}
        for name, width in (("aa", beat), ("rest", beat), ("ab", beat), ("am", beat), ("first_aa", beat), ("first_ab", beat),
                            ("first_am", beat), ("xin", 8 * beat), ("label", 16), ("logit", 2 * beat), ("p", 4 * beat)):
            members |= {f"{name}_addr": In(16), f"{name}_data": Out(width)}
        for name, width in self.widths.items():
            enables = {"p": config.group, "om": 1}.get(name, self.turns.count)
            members |= {f"{name}_we": In(enables), f"{name}_waddr": In(16),
                        f"{name}_wdata": In(64 if name == "p" else width)}
        super().__init__(members)

    def elaborate(self, platform) -> Module:
        m = Module()
        self._loaded(m)
        stored = self._stored(m)
        sources = {"oa": Source.OA, "ob": Source.OB, "om": Source.OM, "p": Source.PBUF, "xout": Source.XOUT,
                   "logit": Source.LOGIT}
        for channel, bus in enumerate(self.store):
            mine = {name: number for name, number in sources.items()
                    if name in stored and store_channel(self.config, number) == channel}
            for name, number in mine.items():
                addr: Value = bus.addr
                if name in ("p", "logit"):
                    free = getattr(self, f"{name}_free")
                    m.d.comb += free.eq(~(bus.en & (bus.src == number)))
                    addr = Mux(free, getattr(self, f"{name}_addr"), bus.addr)
                m.d.comb += stored[name].addr.eq(addr)
            self._store_side(m, bus, {name: (number, stored[name].data) for name, number in mine.items()})
        m.d.comb += self.p_data.eq(stored["p"].data)
        m.d.sync += self.logit_data.eq(stored["logit"].data)
        return m

    def _loaded(self, m: Module) -> None:
        """The memories that the A-Core only reads."""
        config, beat = self.config, self.config.beat_bytes * 8
        for name, dest in (("aa", Dest.AA), ("ab", Dest.AB)):
            self._stream(m, name, dest, self._halves(m, name), rests=name == "aa")
        for name, dest, depth in (("am", Dest.AM, config.mbuf_depth), ("xin", Dest.XIN, config.export_depth),
                                  ("label", Dest.LABEL, config.max_planes)):
            if not depth:
                continue
            width = len(getattr(self, f"{name}_data"))
            made = self._memory(m, name, width, depth)
            for reader in (name, "first_am") if name == "am" else (name,):
                port = made.read_port()
                m.d.comb += [port.addr.eq(getattr(self, f"{reader}_addr")), getattr(self, f"{reader}_data").eq(port.data)]
            write = made.write_port(granularity=min(width, beat))
            load = self._loader(dest)
            taken = load.valid & (load.dest == dest)
            m.d.comb += [write.addr.eq(load.addr), write.en.eq(taken << (load.sub[:3] if dest == Dest.XIN else 0)),
                         write.data.eq(load.data[:width] if width <= beat else load.data.replicate(width // beat))]

    def _stored(self, m: Module) -> dict[str, _Read]:
        """The memories that a Storer reads, with their sides that write; how each is read."""
        config, beat = self.config, self.config.beat_bytes * 8
        read: dict[str, _Read] = {}
        for name, depth in (("ob", config.abuf_depth), ("om", config.mbuf_depth), ("xout", config.export_depth),
                            ("logit", config.logit_depth)):
            if depth:
                made = self._memory(m, name, self.widths[name], depth)
                self._write(m, name, made, *self._written(name))
                port = made.read_port()
                read[name] = _Read(port.addr, port.data)
        return read | {"p": self._sums(m, beat), "oa": self._codes(m)}

    def _sums(self, m: Module, beat: int) -> _Read:
        """PBUF, which the Loader writes as well."""
        config, load = self.config, self._loader(Dest.PBUF)
        made = self._memory(m, "p", self.widths["p"], config.pbuf_depth)
        to_p = Signal()
        part = min(beat, 64)  # bits of an entry that can be written alone: a Loader's beat, or a channel
        write, port = made.write_port(granularity=part), made.read_port()
        channels = Cat(bit.replicate(64 // part) for bit in self.p_we)
        whole = ((1 << beat // part) - 1) << (load.sub[:2] * (beat // part))
        m.d.comb += [to_p.eq(load.valid & (load.dest == Dest.PBUF)), self.p_ready.eq(~to_p),
                     write.addr.eq(Mux(to_p, load.addr, self.p_waddr)), write.en.eq(Mux(to_p, whole, channels)),
                     write.data.eq(Mux(to_p, load.data.replicate(4), self.p_wdata.replicate(config.group)))]
        return _Read(port.addr, port.data)

    def _codes(self, m: Module) -> _Read:
        """OA. A code goes first: a rest comes with one, and to the other half."""
        addr, odd = Signal(16, name="oa_addr"), Signal(name="oa_odd", reset_less=True)
        m.d.sync += odd.eq(addr[0])
        reads = []
        for side, half in enumerate(self._halves(m, "oa")):
            mine = self.oa_waddr[0] == side
            we, waddr, data = (Mux(mine, code, rest) for code, rest in zip(self._written("oa"), self._written("rest"), strict=True))
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

    def _stream(self, m: Module, name: str, dest: Dest, halves: list[Memory], *, rests: bool) -> None:
        """One memory for the even and one for the odd addresses of a stream: the lanes read the one, the first pass, or with
        ``rests`` the lanes as well, the other."""
        load = self._loader(dest)
        lanes, first = getattr(self, f"{name}_addr"), getattr(self, f"first_{name}_addr")
        readers = {name: lanes, f"first_{name}": first} | ({"rest": self.rest_addr} if rests else {})
        beside = Mux(self.streams_en & self.rests_en, self.rest_addr, first) if rests else first
        reads = []
        for odd, half in enumerate(halves):
            write, port = half.write_port(), half.read_port()
            m.d.comb += [write.addr.eq(load.addr[1:]), write.data.eq(load.data),
                         write.en.eq(load.valid & (load.dest == dest) & (load.addr[0] == odd)),
                         port.addr.eq(Mux(self.streams_en & (lanes[0] == odd), lanes, beside)[1:])]
            reads.append(port.data)
        for reader, addr in readers.items():
            odd = Signal(name=f"{reader}_odd", reset_less=True)
            m.d.sync += odd.eq(addr[0])
            m.d.comb += getattr(self, f"{reader}_data").eq(Mux(odd, reads[1], reads[0]))

    def _written(self, name: str) -> tuple[Value, Value, Value]:
        """Enables, address and data of an output."""
        return getattr(self, f"{name}_we"), getattr(self, f"{name}_waddr"), getattr(self, f"{name}_wdata")

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
