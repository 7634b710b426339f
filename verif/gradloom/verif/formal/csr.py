"""Specification of the registers as an AXI4-Lite subordinate, from the table of gradloom.contracts.regmap."""

import dataclasses
import functools
import operator
import types

from amaranth.hdl import Assert, Assume, Cat, Const, Cover, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.contracts.config import PRESETS
from gradloom.contracts.regmap import REGISTERS, TOTALS, Access, register
from gradloom.rtl.registers import csr
from gradloom.verif.formal.inside import add_opened
from gradloom.verif.formal.statements import constant, held, past

__all__ = ["CsrSpec"]

_CONFIG = PRESETS["nano"]
_OKAY, _SLVERR = 0, 2
_READ_CYCLES = 6
"""From a read's address to its answer; its value is taken two cycles before the last of them."""
_WRITE = {Access.RW, Access.RW_IDLE, Access.IDLE}
_WRITE_IDLE = {Access.RW_IDLE, Access.IDLE}
_READ_IDLE = {Access.IDLE, Access.RO_IDLE}
_LITE = {"awaddr": 10, "awvalid": 1, "wdata": 32, "wstrb": 4, "wvalid": 1, "bready": 1, "araddr": 10, "arvalid": 1, "rready": 1}
_SIDE = {"running": 1, "status": 32, "error": 32, "error_offset": 32, "error_state": 32, "position": 32, "loop": 1, "base_write": 1,
         "base_index": 3, "base_value": 32, "hyper_write": 1, "hyper": 32, "exp_e": 16, "stat": 64, "perf_value": 48, "cycles": 48}


class CsrSpec(wiring.Component):
    """One answer for each access, held until it is taken; SLVERR for a write with partial strobes, to a register that is read-only
    or needs an idle machine, or to none, and for a read of none or of one that needs an idle machine; nothing else changes then.
    Reads give what was written last, by host or machine; pulses, halves and indices as the register map says. By induction, for all
    time and every register. Of the base registers, which are a memory, it is any one that is watched.

    Parameters
    ----------
    counters : :class:`str`
        Those of the machine; registers of the others take the same accesses and read 0.
    cover : :class:`bool`
        Reaches instead: a register read back, a refused write and a refused read.
    """

    def __init__(self, design: types.ModuleType = csr, *, counters: str = "all", cover: bool = False) -> None:
        self.design, self.cover = design, cover
        self.config = dataclasses.replace(_CONFIG, counters=counters)
        self.totalled, self.tables = counters != "none", counters == "all"
        super().__init__({name: In(width) for name, width in (_LITE | _SIDE | {"total": 48, "watched": 3, "base_at": 3}).items()})
        # Different counters, from one free input.
        self.totals = [self.total ^ (n << 32 | n) for n in range(len(TOTALS))]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        dut = self.design.Csr(self.config)
        opened = ("write_address", "data", "strobes", "decoded", "known", "always", "address", "wait", "latch", "taken",
                  "permitted_then", "permitted", "part0", "part1", "part2", "part3", "part4")
        (self.write_address, self.data, self.strobes, self.decoded, self.known, self.always,
         self.read_address, self.wait, self.latch, self.taken, self.given, self.permitted,
         *self.parts) = add_opened(m, platform, dut, *opened)
        m.d.comb += [
            *(getattr(dut, f"s_axil_{name}").eq(getattr(self, name)) for name in _LITE),
            *(port.eq(getattr(self, name)) for name, port in self._side(dut).items()),
            *(dut.counters.totals[n].eq(value) for n, value in enumerate(self.totals)),
            dut.bases.at[0].eq(self.watched), dut.bases.at[1].eq(self.base_at),
            Assume(~ResetSignal()),
            # The Sequencer writes while a program runs, and then only.
            Assume(self.running | ~(self.loop | self.base_write | self.hyper_write)),
        ]
        constant(m, self.watched)
        for channel, payload in (("aw", [self.awaddr]), ("w", [self.wdata, self.wstrb]), ("ar", [self.araddr])):
            held(m, getattr(self, f"{channel}valid"), getattr(dut, f"s_axil_{channel}ready"), payload, channel, Assume)
        held(m, dut.s_axil_bvalid, self.bready, [dut.s_axil_bresp], "b")
        held(m, dut.s_axil_rvalid, self.rready, [dut.s_axil_rdata, dut.s_axil_rresp], "r")
        kept = {entry.name: Signal(32, init=entry.reset, name=entry.name.lower()) for entry in REGISTERS
                if entry.stored or entry.name == "STEP"}
        kept |= {"EXP_INDEX": Signal(11, name="exp_index"), "PERF_INDEX": Signal(20, name="perf_index"),
                 "IRQ": Signal(name="irq"), "HYPER": Signal(17, name="hyper_kept"), "LATCH": Signal(16, name="latch")}
        base = Signal(32, name="base_kept")
        with m.If(self.base_write & (self.base_index == self.watched)):
            m.d.sync += base.eq(self.base_value)
        with m.If(self.hyper_write):
            m.d.sync += kept["HYPER"].eq(Cat(self.hyper[:8], self.hyper[16:24], self.hyper[24:] == 255))
        m.d.sync += kept["STEP"].eq(kept["STEP"] + self.loop)
        written, w_address, w_data = self._writes(m, dut, kept)
        with m.If(written & (w_address == self._base_address)):
            m.d.sync += base.eq(w_data)
        read, r_address = self._reads(m, dut, kept, base)
        # Both directions at once: what an index then is nobody says.
        indexed = [register(name).offset >> 2 for name in ("EXP_INDEX", "EXP_VALUE", "PERF_INDEX", "PERF_HIGH")]
        m.d.comb += Assume(~(written & read & Cat(w_address == index for index in indexed).any()))
        plain = {entry.name.lower(): kept[entry.name] for entry in REGISTERS if entry.stored}
        plain |= {"step": kept["STEP"], "irq_enable": kept["IRQ"]}
        m.d.comb += [*(Assert(getattr(dut, name) == value) for name, value in plain.items()),
                     Assert(dut.scale.tid == kept["EXP_INDEX"]), Assert(dut.counters.tag == kept["PERF_INDEX"][:16]),
                     Assert(dut.counters.table == kept["PERF_INDEX"][16:]), Assert(dut.hyper.lm == kept["HYPER"][:8]),
                     Assert(dut.hyper.momentum == kept["HYPER"][8:16]), Assert(dut.hyper.decay_off == kept["HYPER"][16]),
                     Assert(dut.bases.read[0] == base), Assert((self.base_at != self.watched) | (dut.bases.read[1] == base))]
        if self.cover:
            wrote = Signal()
            m.d.sync += wrote.eq(wrote | (written & (w_address == self._base_address)))
            m.d.comb += [
                Cover(wrote & dut.s_axil_rvalid & (r_address == self._base_address) & (dut.s_axil_rdata == 0x1234567)),
                Cover(dut.s_axil_bvalid & (dut.s_axil_bresp == _SLVERR)), Cover(dut.s_axil_rvalid & (dut.s_axil_rresp == _SLVERR)),
            ]
        return m

    @staticmethod
    def _side(dut: wiring.Component) -> dict[str, Value]:
        """The ports towards the machine, by the names of this specification's inputs."""
        bundled = {"base_write": dut.bases.write, "base_index": dut.bases.index, "base_value": dut.bases.value,
                   "hyper": dut.hyper_word, "exp_e": dut.scale.e, "stat": dut.scale.stat, "perf_value": dut.counters.value}
        return {name: bundled[name] if name in bundled else getattr(dut, name) for name in _SIDE}

    @property
    def _base_address(self) -> Value:
        """Word address of the base register that is watched."""
        return (register("BASE0").offset >> 2) + self.watched

    def _writes(self, m: Module, dut: wiring.Component, kept: dict[str, Signal]) -> tuple[Signal, Signal, Signal]:
        """``1`` in the cycle in which a write takes effect, its word address and its data."""
        addressed, filled, answering = Signal(), Signal(), Signal()
        address, data, strobes = Signal(14, name="w_address"), Signal(32, name="w_data"), Signal(4)
        complete, decoded, execute, allowed, perform = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.sync += decoded.eq(complete & ~decoded)
        m.d.comb += [
            Assert(dut.s_axil_awready == ~addressed), Assert(dut.s_axil_wready == ~filled), Assert(dut.s_axil_bvalid == answering),
            # For the induction: what waits in the unit is what was accepted.
            Assert(self.write_address == address), Assert(self.data == data),
            Assert(self.strobes == strobes), Assert(self.decoded == decoded),
            # And what was decoded a cycle before is what still waits.
            Assert(~decoded | complete),
            Assert(~decoded | (self.known == ((strobes == 0b1111) & self._among(address, _WRITE)))),
            Assert(~decoded | (self.always == self._among(address, {Access.RW}))),
            complete.eq(addressed & filled & ~answering), execute.eq(complete & decoded), perform.eq(execute & allowed),
            allowed.eq((strobes == 0b1111) & self._among(address, _WRITE)
                       & ~(self.running & self._among(address, _WRITE_IDLE))),
            Assert(~past(m, execute, "executed") | (dut.s_axil_bresp == Mux(past(m, allowed, "allowed_before"), _OKAY, _SLVERR))),
        ]
        m.d.sync += [addressed.eq((addressed | self.awvalid) & ~execute), filled.eq((filled | self.wvalid) & ~execute),
                     answering.eq(execute | (answering & ~self.bready))]
        with m.If(self.awvalid & ~addressed):
            m.d.sync += address.eq(self.awaddr[2:])
        with m.If(self.wvalid & ~filled):
            m.d.sync += [data.eq(self.wdata), strobes.eq(self.wstrb)]

        def at(name: str) -> Value:
            return perform & (address == register(name).offset >> 2)

        for name, place in kept.items():
            if name in ("LATCH", "HYPER") or (name == "PERF_INDEX" and not self.tables):
                continue
            with m.If(at("CONTROL" if name == "IRQ" else name)):
                m.d.sync += place.eq(data[8] if name == "IRQ" else data)
        with m.If(at("EXP_VALUE")):
            m.d.sync += kept["EXP_INDEX"].eq(kept["EXP_INDEX"] + 1)
        m.d.comb += [
            Assert(dut.start == (at("CONTROL") & data[0] & ~self.running)), Assert(dut.abort == (at("CONTROL") & data[1])),
            Assert(~dut.start | (dut.clear == data[2])), Assert(dut.irq_acknowledge == (at("STATUS") & data[5])),
            Assert(dut.scale.write == at("EXP_VALUE")), Assert(~dut.scale.write | (dut.scale.value == data[:16].as_signed())),
            Assert(dut.scale.clear == at("STAT_LOW")),
        ]
        return perform, address, data

    def _reads(self, m: Module, dut: wiring.Component, kept: dict[str, Signal], base: Signal) -> tuple[Signal, Signal]:
        """``1`` in the cycle in which a read takes effect, and its word address."""
        age = Signal(range(_READ_CYCLES + 1))
        address, value = Signal(14, name="r_address"), Signal(32)
        allowed, effect = Signal(), Signal()
        answering = Signal()
        answer, taken = age == _READ_CYCLES - 1, age == _READ_CYCLES - 3
        ready = (age == 0) & ~answering
        m.d.comb += [
            Assert(dut.s_axil_arready == ready), Assert(dut.s_axil_rvalid == answering), effect.eq(taken & allowed),
            Assert(age < _READ_CYCLES), Assert((age == 0) | ~answering), Assert(self.read_address == address),
            Assert(self.wait == Mux(age == 0, 0, _READ_CYCLES - age)), Assert(self.latch == kept["LATCH"]),
            allowed.eq(self._among(address, set(Access)) & ~(self.running & self._among(address, _READ_IDLE))),
        ]
        m.d.sync += [age.eq(Mux(age == 0, ready & self.arvalid, Mux(answer, 0, age + 1))),
                     answering.eq(answer | (answering & ~self.rready))]
        with m.If(ready & self.arvalid):
            m.d.sync += address.eq(self.araddr[2:])
        pairs = {"CYCLES": self.cycles, **{name: self.totals[n] for n, name in enumerate(TOTALS) if self.totalled}}
        values: dict[str, Value] = {name: place for name, place in kept.items() if name not in ("LATCH", "IRQ")}
        values |= {entry.name: Const(entry.constant(self.config), 32) for entry in REGISTERS if entry.constant}
        values |= {f"{name}_LOW": pair[:32] for name, pair in pairs.items()} | {f"{name}_HIGH": kept["LATCH"] for name in pairs}
        values |= {"CONTROL": kept["IRQ"] << 8, "STATUS": self.status, "ERROR": self.error, "ERROR_OFFSET": self.error_offset,
                   "ERROR_STATE": self.error_state, "OFFSET": self.position, "EXP_VALUE": self.exp_e.as_signed(),
                   "STAT_LOW": self.stat[:32], "STAT_HIGH": self.stat[32:], "PERF_LOW": self.perf_value[:32],
                   "PERF_HIGH": self.perf_value[32:]}
        if not self.tables:
            values |= dict.fromkeys(("PERF_LOW", "PERF_HIGH"), Const(0))
        values |= {f"{name}_{half}": Const(0) for name in TOTALS if name not in pairs for half in ("LOW", "HIGH")}
        with m.Switch(address):
            for entry in REGISTERS:
                with m.Case(entry.offset >> 2):
                    m.d.comb += value.eq(base if entry.name.startswith("BASE") else values[entry.name])
        # Of a base register that is not watched nothing is said: each of them is the one that is.
        said = ~((address[3:] == register("BASE0").offset >> 5) & (address != self._base_address))
        for name, pair in pairs.items():
            with m.If(effect & (address == register(f"{name}_LOW").offset >> 2)):
                m.d.sync += kept["LATCH"].eq(pair[32:])
        with m.If(effect & (address == register("EXP_VALUE").offset >> 2)):
            m.d.sync += kept["EXP_INDEX"].eq(kept["EXP_INDEX"] + 1)
        with m.If(effect & self.tables & (address == register("PERF_HIGH").offset >> 2)):
            m.d.sync += kept["PERF_INDEX"][:16].eq(kept["PERF_INDEX"][:16] + 1)
        before, allowed_before = past(m, value, "value_before"), past(m, allowed, "allowed_to_read")
        given, fine = past(m, before, "value_given"), past(m, allowed_before, "allowed_to_give")
        said_before = past(m, said, "said_before")
        said_given = past(m, said_before, "said_given")
        m.d.comb += [Assert(~said_before | (functools.reduce(operator.or_, self.parts) == before)),
                     Assert(self.permitted == allowed_before),
                     Assert(~said_given | (self.taken == given)), Assert(self.given == fine)]
        told, answered = past(m, fine, "readable"), past(m, given, "value_taken")
        said_of_taken = past(m, said_given, "said_of_taken")
        with m.If(past(m, answer, "answered")):
            m.d.comb += [Assert(dut.s_axil_rresp == Mux(told, _OKAY, _SLVERR)),
                         Assert(~said_of_taken | (dut.s_axil_rdata == Mux(told, answered, 0)))]
        return effect, address

    @staticmethod
    def _among(address: Value, kinds: set[Access]) -> Value:
        """Whether a register with such an access is at that word address."""
        return Cat(address == entry.offset >> 2 for entry in REGISTERS if entry.access in kinds).any()
