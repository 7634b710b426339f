"""Performance counters: cycles by engine and tag in block RAM, and totals in registers, as far as the configuration has them."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.engines import LOAD_UNITS, STORE_UNITS, Unit, units
from gradloom.contracts.regmap import PERF_MAC_USE, TOTALS, perf_entries
from gradloom.rtl import shared_module
from gradloom.rtl.registers.register_ports import CounterRead, MacUse

__all__ = ["Counters"]

UNITS = len(Unit)
TABLE_WIDTH = 36
"""Bits of a table's entries: 343 s at 200 MHz, and half a block RAM of 512 entries."""
READ_PORTS, WRITE_PORTS = len(LOAD_UNITS), len(STORE_UNITS)
"""Most AXI4 ports."""


class TagTable(wiring.Component):
    """Cycles by tag: the cycles of a command are counted beside the memory and added to its tag's entry when it ends.

    Members
    -------
    count : ``In(1)``, finish : ``In(1)``, tag : ``In(width)``
        A cycle that counts (also in the cycle of ``finish``); the command of ``tag`` ends. At least one cycle lies
        between two ends of one tag.
    index : ``In(width)``, value : ``Out(36)``
        Readout in the next cycle, when no command ends.
    clear : ``In(1)``
        Set entry ``index`` to 0.
    drop : ``In(1)``
        Forget the cycles of an unfinished command.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__({"count": In(1), "finish": In(1), "tag": In(width),
                          "index": In(width), "value": Out(TABLE_WIDTH), "clear": In(1), "drop": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=TABLE_WIDTH, depth=2**self.width, init=[])
        read = memory.read_port()
        write = memory.write_port()
        elapsed = Signal(TABLE_WIDTH)
        ended = Signal(TABLE_WIDTH)
        add = Signal()
        tag = Signal(self.width)
        m.d.comb += [
            read.en.eq(1),
            read.addr.eq(Mux(self.finish, self.tag, self.index)),
            self.value.eq(read.data),
            write.en.eq(add | self.clear),
            write.addr.eq(Mux(add, tag, self.index)),
            write.data.eq(Mux(add, read.data + ended, 0)),
        ]
        m.d.sync += [
            elapsed.eq(Mux(self.finish | self.drop, 0, elapsed + self.count)),
            add.eq(self.finish),
            tag.eq(self.tag),
            ended.eq(elapsed + self.count),
        ]
        return m


class Counters(wiring.Component):
    """All counters but CYCLES, as many as ``config.counters`` says. They keep their values while no program runs.

    What an error cut short is not counted by tag: cycles of a command that has not ended, windows of one that has not taken all.

    Members
    -------
    busy, waiting, finish : ``In(9)``
        By :class:`gradloom.contracts.engines.Unit`: runs a command, waits for a semaphore, ends its command in this cycle.
        Engines that the configuration lacks count nothing.
    tag : ``In(ArrayLayout(16, 9))``
        Tag of the running command.
    macs : ``In(MacUse())``
    read_beat : ``In(4)``, write_beat : ``In(2)``
        By AXI4 port: a beat is transferred in this cycle.
    clear : ``In(1)``
        Start to clear; the totals are 0 in the next cycle, the tables at the end of ``clearing``.
    clearing : ``Out(1)``
    drop : ``In(1)``
        Forget the cycles of unfinished commands, and the windows of those that took their last one less than two cycles ago.
    read : ``In(CounterRead())``
    """

    def __init__(self, config: Config) -> None:
        self.kept = config.counters
        self.units = units(config)
        self.tag_width = (perf_entries(config) - 1).bit_length()
        super().__init__({
            "busy": In(UNITS), "waiting": In(UNITS), "finish": In(UNITS), "tag": In(ArrayLayout(16, UNITS)),
            "macs": In(MacUse()), "read_beat": In(READ_PORTS), "write_beat": In(WRITE_PORTS),
            "clear": In(1), "clearing": Out(1), "drop": In(1), "read": In(CounterRead()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.kept != "none":
            self._totals(m)
        if self.kept == "all":
            self._tables(m)
        return m

    def _totals(self, m: Module) -> None:
        events = {"READ_BEATS": sum(self.read_beat), "WRITE_BEATS": sum(self.write_beat), "MAC_USE": self.macs.use}
        for unit in self.units:
            events[f"BUSY_{unit.name}"] = self.busy[unit]
            events[f"WAIT_{unit.name}"] = self.waiting[unit]
        for n, name in enumerate(TOTALS):
            if name in events:
                m.d.sync += self.read.totals[n].eq(Mux(self.clear, 0, self.read.totals[n] + events[name]))

    def _tables(self, m: Module) -> None:
        entry = Signal(self.tag_width)
        with m.If(self.clear):
            m.d.sync += [self.clearing.eq(1), entry.eq(0)]
        with m.Elif(self.clearing):
            m.d.sync += entry.eq(entry + 1)
            with m.If(entry == 2**self.tag_width - 1):
                m.d.sync += self.clearing.eq(0)

        values = [0] * (PERF_MAC_USE + 2)
        for number in (*self.units, PERF_MAC_USE):
            table = shared_module.add(m, f"table{number}", "tag_table", TagTable(self.tag_width), self.tag_width)
            if number == PERF_MAC_USE:
                count, finish, tag = self._windows(m)
            else:
                count, finish, tag = self.busy[number], self.finish[number], self.tag[number]
            m.d.comb += [
                table.count.eq(count),
                table.finish.eq(finish),
                table.tag.eq(tag),
                table.index.eq(Mux(self.clearing, entry, self.read.tag)),
                table.clear.eq(self.clearing),
                table.drop.eq(self.drop),
            ]
            values[number] = table.value
        m.d.sync += self.read.value.eq(Array(values)[self.read.table])

    def _windows(self, m: Module) -> tuple[Value, Value, Value]:
        """``count``, ``finish`` and ``tag`` of the windows' table.

        Commands of one window may end in successive cycles. Where they have one tag, the table's end is that of the last of them.
        """
        use, last, tag = ([Signal(width, name=f"{name}{n}") for n in range(2)]
                          for name, width in (("use", 1), ("last", 1), ("tag", self.tag_width)))
        new = self.macs.tag[:self.tag_width]
        with m.If(self.drop):
            m.d.sync += Cat(use, last).eq(0)
        with m.Else():
            m.d.sync += [
                use[0].eq(self.macs.use), last[0].eq(self.macs.last),
                use[1].eq(use[0]), last[1].eq(last[0] & ~(self.macs.last & (new == tag[0]))),
            ]
        m.d.sync += [tag[0].eq(new), tag[1].eq(tag[0])]
        return use[1], last[1], tag[1]
