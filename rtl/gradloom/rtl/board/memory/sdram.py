"""SDR SDRAM controller: an AXI4 subordinate with pages left open and a column command a cycle."""

import dataclasses

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gradloom.rtl.board.memory.axi_bus import DECERR, LENGTH_BITS, OKAY, AxiSignature
from gradloom.rtl.board.memory.sdram_timing import SdramPart
from gradloom.rtl.fifo import Fifo

__all__ = ["READ_WORDS", "SdramController", "pin_members"]

READ_WORDS = 16
"""Words of read data that the controller holds or has asked for: a distributed RAM, and more than the latency of READ to R."""
_ALL_BANKS = 10
"""A10: all banks of a PRECHARGE, auto precharge of a READ or WRITE (never asked for)."""


def pin_members(part: SdramPart) -> dict[str, wiring.Member]:
    """A controller's side of the pins of an SDRAM; its clock is not among them."""
    return {"cke": Out(1), "cs_n": Out(1, init=1), "ras_n": Out(1, init=1), "cas_n": Out(1, init=1), "we_n": Out(1, init=1),
            "ba": Out(exact_log2(part.banks)), "a": Out(max(exact_log2(part.rows), _ALL_BANKS + 1)),
            "dqm": Out(part.word_bytes, init=(1 << part.word_bytes) - 1), "dq_o": Out(part.word_bits), "dq_oe": Out(1),
            "dq_i": In(part.word_bits)}


class SdramController(wiring.Component):
    """One word a cycle in rows that are open: each READ and WRITE is of one word (burst length 1), so bursts of any length
    follow one another without a gap, stall anywhere, and are cut by a REFRESH anywhere.

    Bursts are served one after the other, reads and writes in turns where both wait. A byte address is, from its low end: byte of
    the word, column, bank, row; so a stream opens a row in another bank every ``columns`` words. A burst beyond the memory is
    answered with DECERR and gives the memory no command.

    Refreshes are due at fixed times, each after what the open rows still need, so that all rows are refreshed within the part's
    retention time. After power-up (and after a reset) nothing is taken before the part is initialised.

    The first word of a read whose row is open comes ``cas`` + ``capture`` + 5 cycles after its address. Clock 1:1: every pin
    has its register, ``dq_i`` too. The command that the registers show in a cycle must reach the memory's clock edge within it or
    at its end, and the data of a READ in cycle t must be there at the end of cycle t + ``cas`` - 1 + ``capture``: ``capture`` is
    0 where the memory's clock edge is early in the controller's cycle (a phase of 90 degrees), 1 where it is late.

    A manager must take its responses and bring its write data without waiting for other bursts, else it holds up all.

    Parameters
    ----------
    part : :class:`SdramPart`
    clock : :class:`int`
        Hertz.
    capture : :class:`int`
        0 or 1.
    length_bits : :class:`int`
        Bits of the length of a burst.

    Members
    -------
    bus : ``In(AxiSignature(part.word_bytes, length_bits=length_bits))``
    cke, cs_n, ras_n, cas_n, we_n, ba, a, dqm, dq_o, dq_oe : ``Out``
    dq_i : ``In(part.word_bits)``
    ready : ``Out(1)``
        The part is initialised.

    Raises
    ------
    :exc:`~gradloom.rtl.config.ConfigError`
        If the part cannot run at this clock.
    """

    def __init__(self, part: SdramPart, clock: int, *, capture: int = 0, length_bits: int = LENGTH_BITS) -> None:
        if capture not in (0, 1):
            raise ValueError(f"capture must be 0 or 1, not {capture!r}")
        self.part, self.capture, self.length_bits = part, capture, length_bits
        timing = part.timing(clock)
        # With these tRC and tRRD need no counters: a bank is closed after tRAS, and opened tRP after that; another bank is opened
        # after a READ or WRITE, tRCD after the ACTIVATE before.
        self.timing = timing = dataclasses.replace(timing, ras=max(timing.ras, timing.rc - timing.rp),
                                                   rcd=max(timing.rcd, timing.rrd - 1))
        self.refresh_delay = max(timing.ras, timing.wr, timing.rcd, timing.mrd) + timing.rp + 1
        """Cycles from when a REFRESH is due to its command, at most."""
        self.refresh_interval = (timing.retention - self.refresh_delay) // part.rows
        """Cycles from one to the next that is due."""
        super().__init__({"bus": In(AxiSignature(part.word_bytes, length_bits=length_bits)), **pin_members(part), "ready": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        part, timing, bus = self.part, self.timing, self.bus
        column_bits, bank_bits = exact_log2(part.columns), exact_log2(part.banks)
        word_bits = exact_log2(part.rows) + bank_bits + column_bits
        low = exact_log2(part.word_bytes)

        # The burst that is served, and the one after it. The highest bit of an address: beyond the memory.
        burst = StructLayout({"address": word_bits + 1, "left": self.length_bits, "write": 1})
        current, following = Signal(burst), Signal(burst)
        serving, waiting, last_write = Signal(), Signal(), Signal()
        step, finish = Signal(), Signal()
        take_write = bus.aw.valid & (~bus.ar.valid | ~last_write)
        chosen = Mux(take_write, bus.aw.payload.as_value(), bus.ar.payload.as_value())
        address, length = chosen[:32], chosen[32:]
        m.d.comb += [
            bus.aw.ready.eq(self.ready & ~waiting & take_write),
            bus.ar.ready.eq(self.ready & ~waiting & ~take_write),
            finish.eq(step & (current.left == 0)),
        ]
        with m.If(~waiting):
            m.d.sync += [
                following.address.eq(Cat(address[low:low + word_bits], address[low + word_bits:].any())),
                following.left.eq(length),
                following.write.eq(take_write),
            ]
        with m.If(self.ready & ~waiting & (bus.aw.valid | bus.ar.valid)):
            m.d.sync += [waiting.eq(1), last_write.eq(take_write)]
        with m.If(step):
            m.d.sync += [current.address.eq(current.address + 1), current.left.eq(current.left - 1)]
        with m.If(finish | ~serving):
            m.d.sync += serving.eq(waiting)
            with m.If(waiting):
                m.d.sync += [current.eq(following), waiting.eq(0)]

        column = current.address[:column_bits]
        bank = current.address[column_bits:column_bits + bank_bits]
        row = current.address[column_bits + bank_bits:word_bits]
        beyond = current.address[word_bits]

        # What the commands so far still forbid: any command, PRECHARGE (tRAS, tWR), WRITE (read data on the pins).
        busy = self._timer(m, "busy", max(timing.rp, timing.rcd, timing.rfc, timing.mrd))
        active = self._timer(m, "active", timing.ras)
        recovery = self._timer(m, "recovery", timing.wr)
        turn = self._timer(m, "turn", timing.cas + 2)

        # Commands of this cycle, at most one; the pins' registers show it in the next.
        read, write, activate, precharge, precharge_all, refresh, load_mode = (Signal(name=name) for name in (
            "read", "write", "activate", "precharge", "precharge_all", "refresh", "load_mode"))
        refresh_wanted = self._refreshes(m, refresh=refresh, load_mode=load_mode, idle=~busy.any())

        open_banks = Signal(part.banks)
        open_rows = Array(Signal(exact_log2(part.rows), name=f"row{n}", reset_less=True) for n in range(part.banks))
        is_open = open_banks.bit_select(bank, 1)
        same_row = open_rows[bank] == row
        closed = Signal()
        space = Signal(range(READ_WORDS + 1), init=READ_WORDS)
        go = Signal()
        may_close = ~busy.any() & ~active.any() & ~recovery.any()
        flows = Mux(current.write, bus.w.valid & ~turn.any() & ~(bus.b.valid & (current.left == 0)), space.any())
        m.d.comb += [
            go.eq(serving & ~refresh_wanted & ~busy.any()),
            step.eq(go & flows & ((is_open & same_row) | beyond)),
            bus.w.ready.eq(step & current.write),
            read.eq(step & ~current.write & ~beyond),
            write.eq(step & current.write & ~beyond),
            activate.eq(go & ~is_open & ~beyond),
            precharge.eq(go & is_open & ~same_row & ~beyond & may_close),
            precharge_all.eq(refresh_wanted & ~closed & may_close),
            refresh.eq(refresh_wanted & closed & ~busy.any()),
        ]
        for command, counter, cycles in (
                (read, turn, timing.cas + 2), (write, recovery, timing.wr), (activate, active, timing.ras),
                (activate, busy, timing.rcd), (precharge, busy, timing.rp), (precharge_all, busy, timing.rp),
                (refresh, busy, timing.rfc), (load_mode, busy, timing.mrd)):
            with m.If(command):
                m.d.sync += counter.eq(cycles - 1)
        with m.If(activate):
            m.d.sync += [open_banks.bit_select(bank, 1).eq(1), open_rows[bank].eq(row), closed.eq(0)]
        with m.If(precharge):
            m.d.sync += open_banks.bit_select(bank, 1).eq(0)
        with m.If(precharge_all):
            m.d.sync += [open_banks.eq(0), closed.eq(1)]

        self._pins(m, column=column, bank=bank, row=row, read=read, write=write, activate=activate, precharge=precharge,
                   precharge_all=precharge_all, refresh=refresh, load_mode=load_mode)
        self._read_data(m, asked=step & ~current.write, last=finish, beyond=beyond, space=space)
        with m.If(bus.b.ready):
            m.d.sync += bus.b.valid.eq(0)
        with m.If(finish & current.write):
            m.d.sync += [bus.b.valid.eq(1), bus.b.p.resp.eq(Mux(beyond, DECERR, OKAY))]
        return m

    def _timer(self, m: Module, name: str, cycles: int) -> Signal:
        """Counts down to 0 and stays there; whoever sets it to n keeps a command off for n more cycles."""
        left = Signal(range(cycles + 1), name=name)
        with m.If(left.any()):
            m.d.sync += left.eq(left - 1)
        return left

    def _refreshes(self, m: Module, *, refresh: Value, load_mode: Signal, idle: Value) -> Signal:
        """Power-up and refresh: the time until the first command, counted in intervals of refreshes; then the refreshes of power-up
        and the mode register; then one refresh each interval. Returns whether one is wanted."""
        first = -(-self.timing.power_up // self.refresh_interval)
        interval = Signal(range(self.refresh_interval), init=self.refresh_interval - 1)
        waits = Signal(range(first + 1), init=first)
        left = Signal(range(self.timing.init_refreshes + 1), init=self.timing.init_refreshes)
        due, wanted = Signal(), Signal()
        elapsed = interval == 0
        m.d.sync += interval.eq(Mux(elapsed, self.refresh_interval - 1, interval - 1))
        with m.If(elapsed & waits.any()):
            m.d.sync += waits.eq(waits - 1)
        with m.If(refresh):
            m.d.sync += due.eq(0)
            with m.If(left.any()):
                m.d.sync += left.eq(left - 1)
        with m.If(elapsed & ~waits.any()):
            m.d.sync += due.eq(1)
        m.d.comb += [
            wanted.eq(~waits.any() & (due | left.any())),
            load_mode.eq(~waits.any() & ~wanted & ~self.ready & idle),
        ]
        with m.If(load_mode):
            m.d.sync += self.ready.eq(1)
        return wanted

    def _pins(self, m: Module, *, column: Value, bank: Value, row: Value, read: Value, write: Value, activate: Value,
              precharge: Value, precharge_all: Value, refresh: Value, load_mode: Value) -> None:
        """The registers of the pins. Without a command the memory is not selected."""
        bus, width = self.bus, len(self.a)
        mode = Mux(load_mode, self.timing.cas << 4, 0)  # burst length 1, sequential
        address = Mux(activate, row, Cat(column, Const(0, width - len(column))) | mode)
        m.d.sync += [
            self.cke.eq(1),
            self.cs_n.eq(~(read | write | activate | precharge | precharge_all | refresh | load_mode)),
            self.ras_n.eq(~(activate | precharge | precharge_all | refresh | load_mode)),
            self.cas_n.eq(~(read | write | refresh | load_mode)),
            self.we_n.eq(~(write | precharge | precharge_all | load_mode)),
            self.ba.eq(bank),
            self.a.eq(address | (precharge_all << _ALL_BANKS)),
            self.dqm.eq(Mux(write, ~bus.w.p.strb, (~self.ready).replicate(len(self.dqm)))),
            self.dq_o.eq(bus.w.p.data),
            self.dq_oe.eq(write),
        ]

    def _read_data(self, m: Module, *, asked: Value, last: Value, beyond: Value, space: Signal) -> None:
        """Read data from the pins to R, in order with those of addresses that no memory is behind. ``space`` counts the words that
        still have room."""
        word = StructLayout({"here": 1, "last": 1, "beyond": 1})
        m.submodules.words = words = Fifo(StructLayout({"data": self.part.word_bits, "last": 1, "beyond": 1}), READ_WORDS)
        captured = Signal(self.part.word_bits, reset_less=True)
        now: Value = Cat(asked, last, beyond)
        for n in range(self.timing.cas + self.capture + 1):
            stage = Signal(word, name=f"read{n}")
            m.d.sync += stage.as_value().eq(now)
            now = stage.as_value()
        m.d.sync += [captured.eq(self.dq_i), space.eq(space - asked + (self.bus.r.valid & self.bus.r.ready))]
        m.d.comb += [
            words.i.valid.eq(stage.here),
            words.i.p.data.eq(captured),
            words.i.p.last.eq(stage.last),
            words.i.p.beyond.eq(stage.beyond),
            self.bus.r.valid.eq(words.o.valid),
            self.bus.r.p.data.eq(words.o.p.data),
            self.bus.r.p.last.eq(words.o.p.last),
            self.bus.r.p.resp.eq(Mux(words.o.p.beyond, DECERR, OKAY)),
            words.o.ready.eq(self.bus.r.ready),
        ]
