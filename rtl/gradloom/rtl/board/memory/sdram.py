"""SDR SDRAM controller: an AXI4 subordinate with pages left open and a column command a cycle."""

import dataclasses

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gradloom.contracts.sdram_timing import SdramPart
from gradloom.rtl.board.memory.axi_bus import DECERR, LENGTH_BITS, OKAY, AxiSignature
from gradloom.rtl.fifo import Fifo

__all__ = ["READ_WORDS", "RefreshTimer", "SdramController", "pin_members"]

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


class RefreshTimer(wiring.Component):
    """Power-up and refreshes. First the time with a stable clock, counted in intervals of refreshes; then the refreshes of power-up
    and the mode register; then a refresh is wanted each interval, at fixed times.

    Parameters
    ----------
    interval : :class:`int`
        Cycles from one refresh to the next.
    power_up : :class:`int`
        Cycles before the first command, at least.
    refreshes : :class:`int`
        Refreshes before the mode register.

    Members
    -------
    wanted : ``Out(1)``
        A refresh is due; no other command may begin.
    refresh : ``In(1)``
        It is given in this cycle.
    idle : ``In(1)``
        A command may be given in this cycle.
    load_mode : ``Out(1)``
        The mode register is to be loaded in this cycle.
    ready : ``Out(1)``
        From the cycle after that on.
    """

    def __init__(self, *, interval: int, power_up: int, refreshes: int) -> None:
        self.interval, self.first = interval, -(-power_up // interval)
        super().__init__({"wanted": Out(1), "refresh": In(1), "idle": In(1), "load_mode": Out(1), "ready": Out(1)})
        self.left = Signal(range(interval), init=interval - 1)
        self.waits = Signal(range(self.first + 1), init=self.first)
        self.initial = Signal(range(refreshes + 1), init=refreshes)
        self.due = Signal()
        """Cycles of this interval, intervals before the first command, and refreshes of power-up to come; one is due."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        elapsed, powered = self.left == 0, ~self.waits.any()
        m.d.sync += self.left.eq(Mux(elapsed, self.interval - 1, self.left - 1))
        with m.If(elapsed & ~powered):
            m.d.sync += self.waits.eq(self.waits - 1)
        with m.If(self.refresh):
            m.d.sync += self.due.eq(0)
            with m.If(self.initial.any()):
                m.d.sync += self.initial.eq(self.initial - 1)
        with m.If(elapsed & powered):
            m.d.sync += self.due.eq(1)
        m.d.comb += [
            self.wanted.eq(powered & (self.due | self.initial.any())),
            self.load_mode.eq(powered & ~self.wanted & ~self.ready & self.idle),
        ]
        with m.If(self.load_mode):
            m.d.sync += self.ready.eq(1)
        return m


class SdramController(wiring.Component):
    """One word a cycle in rows that are open: each READ and WRITE is of one word (burst length 1), so bursts of any length
    follow one another without a gap, stall anywhere, and are cut by a REFRESH anywhere.

    Bursts are served one after the other, reads and writes in turns where both wait. A byte address is, from its low end: byte of
    the word, column, bank, row; so a stream opens a row in another bank every ``columns`` words. A burst beyond the memory is
    answered with DECERR and gives the memory no command.

    Refreshes are due at fixed times, each after what the open rows still need, so that all rows are refreshed within the part's
    retention time. After power-up (and after a reset) nothing is taken before the part is initialised.

    The first word of a read whose row is open comes ``cas`` + ``capture`` + 4 cycles after its address. Clock 1:1: every pin
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
    pad_registers : :class:`bool`
        The registers of the pins lie outside, in the pads (:class:`amaranth.lib.io.FFBuffer`): the outputs here go into them, and
        ``dq_i`` comes out of them. With them all is as without.

    Members
    -------
    bus : ``In(AxiSignature(part.word_bytes, length_bits=length_bits))``
    cke, cs_n, ras_n, cas_n, we_n, ba, a, dqm, dq_o, dq_oe : ``Out``
    dq_i : ``In(part.word_bits)``
    ready : ``Out(1)``
        The part is initialised.

    Raises
    ------
    :exc:`~gradloom.contracts.config.ConfigError`
        If the part cannot run at this clock.
    """

    def __init__(self, part: SdramPart, clock: int, *, capture: int = 0, length_bits: int = LENGTH_BITS,
                 pad_registers: bool = False) -> None:
        if capture not in (0, 1):
            raise ValueError(f"capture must be 0 or 1, not {capture!r}")
        self.part, self.capture, self.length_bits, self.pad_registers = part, capture, length_bits, pad_registers
        timing = part.timing(clock)
        # With these tRC and tRRD need no counters: a bank is closed after tRAS, and opened tRP after that; another bank is opened
        # after a READ or WRITE, tRCD after the ACTIVATE before.
        self.timing = timing = dataclasses.replace(timing, ras=max(timing.ras, timing.rc - timing.rp),
                                                   rcd=max(timing.rcd, timing.rrd - 1))
        self.refresh_delay = max(timing.ras, timing.wr, timing.rcd, timing.rp, timing.mrd, timing.rfc) + timing.rp + 1
        """Cycles from when a REFRESH is due to its command, at most."""
        self.refresh_interval = (timing.retention - self.refresh_delay) // part.rows
        """Cycles from one to the next that is due."""
        self.refreshes = RefreshTimer(interval=self.refresh_interval, power_up=timing.power_up, refreshes=timing.init_refreshes)
        super().__init__({"bus": In(AxiSignature(part.word_bytes, length_bits=length_bits)), **pin_members(part), "ready": Out(1)})

        word_bits = exact_log2(part.rows) + exact_log2(part.banks) + exact_log2(part.columns)
        burst = StructLayout({"address": word_bits + 1, "left": length_bits, "write": 1})
        self.current, self.following = Signal(burst), Signal(burst)
        """The burst that is served, and the one after it. The highest bit of an address: beyond the memory."""
        self.serving, self.waiting = Signal(), Signal()
        """They are there."""
        self.busy = Signal(range(max(timing.rp, timing.rcd, timing.rfc, timing.mrd)))
        self.active, self.recovery, self.turn = Signal(range(timing.ras)), Signal(range(timing.wr)), Signal(range(timing.cas + 2))
        """Cycles for which earlier commands still forbid: any command; PRECHARGE (tRAS); PRECHARGE (tWR); WRITE (read data)."""
        self.open_banks = Signal(part.banks)
        self.open_rows = [Signal(exact_log2(part.rows), name=f"row{n}", reset_less=True) for n in range(part.banks)]
        self.closed = Signal()
        """All banks were precharged, and none opened since."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        part, timing, bus = self.part, self.timing, self.bus
        column_bits, bank_bits = exact_log2(part.columns), exact_log2(part.banks)
        word_bits = exact_log2(part.rows) + bank_bits + column_bits
        low = exact_log2(part.word_bytes)

        m.submodules.refreshes = refreshes = self.refreshes
        current, following, serving, waiting = self.current, self.following, self.serving, self.waiting
        step, finish, last_write = Signal(), Signal(), Signal()
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

        busy, active, recovery, turn = self.busy, self.active, self.recovery, self.turn
        for left in (busy, active, recovery, turn):
            with m.If(left.any()):
                m.d.sync += left.eq(left - 1)

        # Commands of this cycle, at most one; the pins' registers show it in the next.
        read, write, activate, precharge, precharge_all, refresh, load_mode = (Signal(name=name) for name in (
            "read", "write", "activate", "precharge", "precharge_all", "refresh", "load_mode"))
        open_banks, open_rows, closed = self.open_banks, Array(self.open_rows), self.closed
        is_open = open_banks.bit_select(bank, 1)
        same_row = open_rows[bank] == row
        space = Signal(range(READ_WORDS + 1), init=READ_WORDS)
        go = Signal()
        may_close = ~busy.any() & ~active.any() & ~recovery.any()
        flows = Mux(current.write, bus.w.valid & ~turn.any() & ~(bus.b.valid & (current.left == 0)), space.any())
        m.d.comb += [
            self.ready.eq(refreshes.ready),
            refreshes.idle.eq(~busy.any()),
            refreshes.refresh.eq(refresh),
            load_mode.eq(refreshes.load_mode),
            go.eq(serving & ~refreshes.wanted & ~busy.any()),
            step.eq(go & flows & ((is_open & same_row) | beyond)),
            bus.w.ready.eq(step & current.write),
            read.eq(step & ~current.write & ~beyond),
            write.eq(step & current.write & ~beyond),
            activate.eq(go & ~is_open & ~beyond),
            precharge.eq(go & is_open & ~same_row & ~beyond & may_close),
            precharge_all.eq(refreshes.wanted & ~closed & may_close),
            refresh.eq(refreshes.wanted & closed & ~busy.any()),
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

    def _pins(self, m: Module, *, column: Value, bank: Value, row: Value, read: Value, write: Value, activate: Value,
              precharge: Value, precharge_all: Value, refresh: Value, load_mode: Value) -> None:
        """What the registers of the pins take. Without a command the memory is not selected."""
        bus, width = self.bus, len(self.a)
        mode = Mux(load_mode, self.timing.cas << 4, 0)  # burst length 1, sequential
        address = Mux(activate, row, Cat(column, Const(0, width - len(column))) | mode)
        domain = m.d.comb if self.pad_registers else m.d.sync
        domain += [
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
        captured = Signal(self.part.word_bits, reset_less=not self.pad_registers)
        now: Value = Cat(asked, last, beyond)
        for n in range(self.timing.cas + self.capture + 1):
            stage = Signal(word, name=f"read{n}")
            m.d.sync += stage.as_value().eq(now)
            now = stage.as_value()
        domain = m.d.comb if self.pad_registers else m.d.sync
        domain += captured.eq(self.dq_i)
        m.d.sync += space.eq(space - asked + (self.bus.r.valid & self.bus.r.ready))
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
