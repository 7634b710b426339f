"""The registers that the host sees on AXI4-Lite (:mod:`gradloom.contracts.regmap`)."""

import functools
import operator
from collections.abc import Callable

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.regmap import REGISTERS, TOTALS, Access, register
from gradloom.rtl.memory_path.axi import lite_members
from gradloom.rtl.registers.register_ports import BASE_BITS, BASE_READS, COUNTER_WIDTH, BaseAccess, CounterRead, Hyperparameters
from gradloom.rtl.tensor_ports import HostScale

__all__ = ["Csr"]

OKAY, SLVERR = 0, 2
_PARTS = 4
"""Into which the choice of a register to read is split."""
READ_WAIT = 3
"""Cycles from a read's address until its value is taken: memories behind an index register answer two cycles after it changed."""
BASES = 1 << BASE_BITS
"""Base registers."""


def _is_base(address: Value) -> Value:
    """Whether the address of a word is that of a base register; its low bits are the number."""
    return address[BASE_BITS:] == register("BASE0").offset >> 2 + BASE_BITS


class Csr(wiring.Component):
    """AXI4-Lite subordinate and every register that the host or the Sequencer writes.

    One access of each direction at a time. A read is answered READ_WAIT + 3 cycles after its address, a write 3 cycles
    after address and data; a refused one with SLVERR. A read takes two cycles for the choice among all registers, which lie all
    over the machine, a write one, and either one for what follows from it.

    Members
    -------
    s_axil_*
        AXI4-Lite, see :func:`gradloom.rtl.memory_path.axi.lite_members`.
    start, clear, abort, irq_acknowledge : ``Out(1)``
        Writes to CONTROL and STATUS, one cycle; ``clear`` comes with ``start``.
    irq_enable : ``Out(1)``
    running : ``In(1)``
        Registers that need an idle machine refuse the host.
    status, error, error_offset, error_state, position : ``In(32)``
        Values of STATUS, ERROR, ERROR_OFFSET, ERROR_STATE, OFFSET.
    program, steps, seed, window_base, window_limit, watchdog : ``Out(32)``
        Stored registers.
    step : ``Out(32)``, loop : ``In(1)``
        STEP, counted up by ``loop``.
    bases : ``In(BaseAccess())``
        The Sequencer's side of the base registers; it writes while ``running``.
    hyper_write : ``In(1)``, hyper_word : ``In(32)``
        The hyperparameters of the step change: first word of a table entry (docs/machine.md, section 2).
    hyper : ``Out(Hyperparameters())``
    scale : ``Out(HostScale())``
        Exponent and statistic of the tensor in EXP_INDEX.
    counters : ``Out(CounterRead())``
        Totals, and the entry of a table by tag in PERF_INDEX.
    cycles : ``In(48)``
        CYCLES.

    Registers of counters that the configuration lacks (``config.counters``) take every access that they take elsewhere, and read 0.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.totalled = TOTALS if config.counters != "none" else ()
        self.tables = config.counters == "all"
        self.stored = [entry for entry in REGISTERS if entry.stored]
        super().__init__(lite_members() | {
            "start": Out(1), "clear": Out(1), "abort": Out(1), "irq_acknowledge": Out(1), "irq_enable": Out(1),
            "running": In(1),
            "status": In(32), "error": In(32), "error_offset": In(32), "error_state": In(32), "position": In(32),
            **{entry.name.lower(): Out(32, init=entry.reset) for entry in self.stored},
            "step": Out(32), "loop": In(1),
            "bases": In(BaseAccess()), "hyper_write": In(1), "hyper_word": In(32), "hyper": Out(Hyperparameters()),
            "scale": Out(HostScale()), "counters": Out(CounterRead()), "cycles": In(COUNTER_WIDTH),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.step.eq(self.step + self.loop)
        with m.If(self.hyper_write):
            m.d.sync += [self.hyper.lm.eq(self.hyper_word[:8]), self.hyper.momentum.eq(self.hyper_word[16:24]),
                         self.hyper.decay_off.eq(self.hyper_word[24:] == 255)]
        address, data, host_writes = self._writes(m)
        read = self._base_registers(m, address, data, host_writes)
        self._reads(m, read)
        return m

    def _base_registers(self, m: Module, address: Value, data: Value, host_writes: Value) -> Callable[[Value], Value]:
        """Returns what gives the value of a number. They lie in distributed memory: as flip-flops, all their bits went to a choice
        of eight for the host and to two for the Sequencer, and no other wires were as dense. What was there before a reset does not
        count."""
        m.submodules.bases = memory = Memory(shape=32, depth=BASES, init=[])
        write, written = memory.write_port(), Signal(BASES)
        m.d.comb += [write.en.eq(self.bases.write | (host_writes & _is_base(address))),
                     write.addr.eq(Mux(self.running, self.bases.index, address[:BASE_BITS])),
                     write.data.eq(Mux(self.running, self.bases.value, data))]
        with m.If(write.en):
            m.d.sync += written.bit_select(write.addr, 1).eq(1)

        def read(number: Value) -> Value:
            port = memory.read_port(domain="comb")
            m.d.comb += port.addr.eq(number)
            return Mux(written.bit_select(number, 1), port.data, 0)

        m.d.comb += [self.bases.read[n].eq(read(self.bases.at[n])) for n in range(BASE_READS)]
        return read

    def _writes(self, m: Module) -> tuple[Value, Value, Value]:
        """Address of a word, data, and whether they are written in this cycle."""
        have_address, have_data = Signal(), Signal()
        address, data, strobes = Signal(14, name="write_address"), Signal(32, name="data"), Signal(4, name="strobes")
        m.d.comb += [self.s_axil_awready.eq(~have_address), self.s_axil_wready.eq(~have_data)]
        with m.If(self.s_axil_awvalid & self.s_axil_awready):
            m.d.sync += [have_address.eq(1), address.eq(self.s_axil_awaddr[2:])]
        with m.If(self.s_axil_wvalid & self.s_axil_wready):
            m.d.sync += [have_data.eq(1), data.eq(self.s_axil_wdata), strobes.eq(self.s_axil_wstrb)]
        with m.If(self.s_axil_bvalid & self.s_axil_bready):
            m.d.sync += self.s_axil_bvalid.eq(0)

        complete, execute, perform, allowed = Signal(), Signal(), Signal(), Signal()
        # Of the address and the strobes, a cycle later: whether there is such a write, and one whatever the machine does.
        decoded = Signal()
        known = Signal()
        always = Signal()
        m.d.comb += [complete.eq(have_address & have_data & ~self.s_axil_bvalid), execute.eq(complete & decoded),
                     allowed.eq(known & (always | ~self.running)), perform.eq(execute & allowed)]
        m.d.sync += [decoded.eq(complete & ~decoded), known.eq(0), always.eq(0)]
        with m.If(execute):
            m.d.sync += [have_address.eq(0), have_data.eq(0), self.s_axil_bvalid.eq(1),
                         self.s_axil_bresp.eq(Mux(allowed, OKAY, SLVERR))]

        control, status = register("CONTROL"), register("STATUS")
        effects = {entry.name: [getattr(self, entry.name.lower()).eq(data)] for entry in self.stored}
        effects |= {f"BASE{n}": [] for n in range(BASES)}
        effects |= {
            "STEP": [self.step.eq(data)],
            "EXP_INDEX": [self.scale.tid.eq(data)],
            "PERF_INDEX": [Cat(self.counters.tag, self.counters.table).eq(data)] if self.tables else [],
            "CONTROL": [self.irq_enable.eq(data[control.field("irq_enable").lsb])],
            "EXP_VALUE": [self.scale.tid.eq(self.scale.tid + 1)],
            "STATUS": [],
            "STAT_LOW": [],
        }
        whole = strobes.all()
        with m.Switch(address):
            for entry in REGISTERS:
                if entry.access in (Access.RO, Access.RO_IDLE):
                    continue
                with m.Case(entry.offset >> 2):
                    m.d.sync += [known.eq(whole), always.eq(entry.access == Access.RW)]
                    if effects[entry.name]:
                        with m.If(perform):
                            m.d.sync += effects[entry.name]

        def pulse(name: str) -> ValueLike:
            return perform & (address == register(name).offset >> 2)

        m.d.comb += [
            self.start.eq(pulse("CONTROL") & data[control.field("start").lsb] & ~self.running),
            self.clear.eq(data[control.field("clear").lsb]),
            self.abort.eq(pulse("CONTROL") & data[control.field("abort").lsb]),
            self.irq_acknowledge.eq(pulse("STATUS") & data[status.field("irq").lsb]),
            self.scale.write.eq(pulse("EXP_VALUE")),
            self.scale.value.eq(data[:16]),
            self.scale.clear.eq(pulse("STAT_LOW")),
        ]
        return address, data, perform

    def _reads(self, m: Module, base: Callable[[Value], Value]) -> None:
        address = Signal(14)
        wait = Signal(range(READ_WAIT + 3))
        m.d.comb += self.s_axil_arready.eq((wait == 0) & ~self.s_axil_rvalid)
        with m.If(self.s_axil_arvalid & self.s_axil_arready):
            m.d.sync += [address.eq(self.s_axil_araddr[2:]), wait.eq(READ_WAIT + 2)]
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.If(self.s_axil_rvalid & self.s_axil_rready):
            m.d.sync += self.s_axil_rvalid.eq(0)

        latch = Signal(COUNTER_WIDTH - 32)
        wide = {"CYCLES": self.cycles, **{name: self.counters.totals[n] for n, name in enumerate(self.totalled)}}
        values: dict[str, ValueLike] = {entry.name: getattr(self, entry.name.lower()) for entry in self.stored}
        values |= {f"{name}_LOW": counter[:32] for name, counter in wide.items()}
        values |= {f"{name}_HIGH": latch for name in wide}
        values |= {f"{name}_{half}": 0 for name in TOTALS if name not in wide for half in ("LOW", "HIGH")}
        values |= {
            "CONTROL": self.irq_enable << register("CONTROL").field("irq_enable").lsb,
            "STATUS": self.status, "ERROR": self.error, "ERROR_OFFSET": self.error_offset,
            "ERROR_STATE": self.error_state, "OFFSET": self.position, "STEP": self.step,
            "EXP_INDEX": self.scale.tid, "EXP_VALUE": Cat(self.scale.e, self.scale.e[15].replicate(16)),
            "STAT_LOW": self.scale.stat[:32], "STAT_HIGH": self.scale.stat[32:],
            "PERF_INDEX": Cat(self.counters.tag, self.counters.table),  # 0 without tables, as nothing writes it
            "PERF_LOW": self.counters.value[:32] if self.tables else 0, "PERF_HIGH": self.counters.value[32:] if self.tables else 0,
            "HYPER": Cat(self.hyper.lm, self.hyper.momentum, self.hyper.decay_off),
        }
        effects = {f"{name}_LOW": [latch.eq(counter[32:])] for name, counter in wide.items()}
        effects["EXP_VALUE"] = [self.scale.tid.eq(self.scale.tid + 1)]
        if self.tables:
            effects["PERF_HIGH"] = [self.counters.tag.eq(self.counters.tag + 1)]

        sample, allowed, permitted_then = Signal(), Signal(), Signal()
        taken = Signal(32)
        m.d.comb += sample.eq(wait == 3)
        with m.Switch(address):
            for entry in REGISTERS:
                with m.Case(entry.offset >> 2):
                    m.d.comb += allowed.eq(~self.running if entry.access in (Access.IDLE, Access.RO_IDLE) else 1)
                    if entry.name in effects:
                        with m.If(sample & allowed):
                            m.d.sync += effects[entry.name]
        # A part of the registers each, 0 where the register is not among them; those in memory are a part of their own.
        chosen = [entry for entry in REGISTERS if entry.name in values or entry.constant]
        parts = [Signal(32, name=f"part{n}") for n in range(_PARTS + 1)]
        for n, part in enumerate(parts[:_PARTS]):
            value = Signal(32, name=f"value{n}")
            with m.Switch(address):
                for entry in chosen[n::_PARTS]:
                    with m.Case(entry.offset >> 2):
                        m.d.comb += value.eq(entry.constant(self.config) if entry.constant else values[entry.name])
            m.d.sync += part.eq(value)
        m.d.sync += parts[_PARTS].eq(Mux(_is_base(address), base(address[:BASE_BITS]), 0))
        permitted = Signal()
        m.d.sync += [permitted.eq(allowed), permitted_then.eq(permitted), taken.eq(functools.reduce(operator.or_, parts))]
        with m.If(wait == 1):
            m.d.sync += [self.s_axil_rvalid.eq(1), self.s_axil_rdata.eq(Mux(permitted_then, taken, 0)),
                         self.s_axil_rresp.eq(Mux(permitted_then, OKAY, SLVERR))]
