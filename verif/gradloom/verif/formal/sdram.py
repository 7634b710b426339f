"""Specifications of the SDRAM controller: legal commands, and refreshes in time, for all time; data once, in order, at their place.

A part with small times that all differ in what they forbid: tRC is more than tRAS + tRP, and tRRD more than a cycle after tRCD.
"""

import dataclasses
import types

from amaranth.hdl import Array, Assert, Assume, Cat, Cover, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from gradloom.contracts.sdram_timing import SdramPart
from gradloom.rtl.board.memory import sdram
from gradloom.verif.formal.run import planted_bug
from gradloom.verif.formal.statements import past

__all__ = ["CLOCK", "PART", "SdramCommandSpec", "SdramDataSpec", "quick"]

CLOCK = 10**9
"""A cycle is a nanosecond."""
PART = SdramPart(name="tiny", word_bits=16, columns=4, rows=2, banks=2, t_rp=2, t_rcd=2, t_ras=4, t_rc=8, t_rfc=3, t_rrd=4, t_wr=3,
                 mrd_clocks=4, t_ck={2: 1}, t_ac=0, t_oh=0, t_hz=0, retention=40, power_up=20, init_refreshes=2)
_TIMES = PART.timing(CLOCK)
_QUICK = dataclasses.replace(PART, t_rp=1, t_rcd=1, t_ras=2, t_rc=3, t_rfc=1, t_rrd=1, t_wr=1, mrd_clocks=1, retention=30)
_WORDS = exact_log2(PART.columns * PART.rows * PART.banks)
_LENGTH = 3
"""Bits of a burst's length."""


class _Pins:
    """The command that the pins show."""

    def __init__(self, m: Module, dut: wiring.Component) -> None:
        code = Cat(dut.we_n, dut.cas_n, dut.ras_n)
        selected = ~dut.cs_n & dut.cke
        self.any = selected & (code != 7)
        self.mode, self.refresh, self.precharge, self.activate, self.write, self.read, self.stop = (
            selected & (code == n) for n in range(7))
        self.all = self.precharge & dut.a[10]


def _age(m: Module, event: Value, name: str, init: int = 15) -> tuple[Signal, Value]:
    """Cycles since the pins showed an event, up to 15: as before this cycle's command, and after it."""
    age = Signal(4, name=f"age_{name}", init=init)
    now = Mux(event, 0, age)
    m.d.sync += age.eq(Mux(now == 15, 15, now + 1))
    return age, now


class SdramCommandSpec(wiring.Component):
    """Every command on the pins is legal, and a refresh comes at the latest an interval and the stated delay after the one before:
    the rules of the data sheet, counted at the pins. By induction over one cycle; the assertions that tie the controller's counters
    to those ages are what makes it inductive.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: a WRITE after a READ, a PRECHARGE of one bank, and a refresh between the words of a burst.
    """

    def __init__(self, design: types.ModuleType = sdram, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({"ar": In(1), "aw": In(1), "w": In(1), "r": In(1), "b": In(1),
                          "read_address": In(5), "write_address": In(5), "length": In(_LENGTH), "strobes": In(2)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.SdramController(PART, CLOCK, length_bits=_LENGTH)
        self._environment(m, dut)
        pins = _Pins(m, dut)
        banks = [self._bank(m, dut, pins, n) for n in range(PART.banks)]
        self._all_banks(m, dut, pins, banks)
        self._power_up(m, dut, pins)
        refreshed = self._refreshes(m, dut, pins)
        if self.cover:
            read_before, mid = Signal(), Signal()
            m.d.sync += [read_before.eq(read_before | pins.read),
                         mid.eq(pins.refresh & dut.ready & dut.serving & (dut.current.left != self.length))]
            m.d.comb += [Cover(pins.write & read_before), Cover(pins.precharge & ~dut.a[10]), Cover(mid & (refreshed != 0))]
        return m

    def _environment(self, m: Module, dut: wiring.Component) -> None:
        m.d.comb += [
            dut.bus.ar.valid.eq(self.ar), dut.bus.ar.p.addr.eq(self.read_address << 1), dut.bus.ar.p.len.eq(self.length),
            dut.bus.aw.valid.eq(self.aw), dut.bus.aw.p.addr.eq(self.write_address << 1), dut.bus.aw.p.len.eq(self.length),
            dut.bus.w.valid.eq(self.w), dut.bus.w.p.strb.eq(self.strobes), dut.bus.r.ready.eq(self.r), dut.bus.b.ready.eq(self.b),
            Assume(~ResetSignal()),
        ]

    def _bank(self, m: Module, dut: wiring.Component, pins: _Pins, n: int) -> dict[str, Value]:
        """What concerns one bank; returns whether it is open and its ages after this cycle's command."""
        mine = dut.ba == n
        is_open, row = Signal(name=f"open{n}"), Signal(exact_log2(PART.rows), name=f"open_row{n}")
        activated, closed = pins.activate & mine, pins.all | (pins.precharge & mine)
        since_activate, act = _age(m, activated, f"activate{n}")
        since_precharge, pre = _age(m, closed, f"precharge{n}")
        since_write, wrote = _age(m, pins.write & mine, f"write{n}")
        open_now, row_now = Mux(activated, 1, Mux(closed, 0, is_open)), Mux(activated, dut.a[:len(row)], row)
        m.d.sync += [is_open.eq(open_now), row.eq(row_now)]
        m.d.comb += [
            Assert(~activated | (~is_open & (since_activate >= _TIMES.rc) & (since_precharge >= _TIMES.rp) & (dut.a < PART.rows))),
            Assert(~((pins.read | pins.write) & mine) | (is_open & (since_activate >= _TIMES.rcd) & (dut.a < PART.columns))),
            Assert(~(closed & is_open) | ((since_activate >= _TIMES.ras) & (since_write >= _TIMES.wr))),
            Assert(~(pins.refresh | pins.mode) | (~is_open & (since_precharge >= _TIMES.rp))),
            Assert(~pins.refresh | (since_activate >= _TIMES.rc)),
            # The controller's own state is that of the pins.
            Assert(dut.open_banks[n] == open_now), Assert(~open_now | (dut.open_rows[n] == row_now)),
            Assert(~(dut.closed & open_now)), Assert(~dut.closed | (dut.busy + pre >= _TIMES.rp - 1)),
            Assert(dut.active + act >= dut.timing.ras - 1), Assert(dut.recovery + wrote >= _TIMES.wr - 1),
            Assert(dut.busy + act >= dut.timing.rcd - 1), Assert(open_now | (dut.busy + act >= _TIMES.rc - 1)),
            Assert(open_now | (dut.busy + pre >= _TIMES.rp - 1)),
        ]
        return {"open": open_now, "row": row_now, "activate": act, "since": since_activate}

    def _all_banks(self, m: Module, dut: wiring.Component, pins: _Pins, banks: list[dict[str, Value]]) -> None:
        since_refresh, refreshed = _age(m, pins.refresh, "refresh")
        since_mode, loaded = _age(m, pins.mode, "mode")
        since_read, read = _age(m, pins.read, "read")
        for n in range(PART.banks):
            others = [other["since"] for k, other in enumerate(banks) if k != n]
            m.d.comb += [Assert(~(pins.activate & (dut.ba == n)) | (since >= _TIMES.rrd)) for since in others]
        ready_before = past(m, dut.ready, "ready_before")
        m.d.comb += [
            Assert(~pins.stop), Assert(~(pins.read | pins.write) | ~dut.a[10]), Assert(dut.cke | dut.cs_n),
            Assert(~pins.any | ((since_refresh >= _TIMES.rfc) & (since_mode >= _TIMES.mrd))),
            Assert(~pins.mode | ((dut.a == _TIMES.cas << 4) & (dut.ba == 0))),
            # A cycle lies between read data, on the pins up to CL after the READ, and the controller's own.
            Assert(dut.dq_oe == pins.write), Assert(~pins.write | (since_read >= _TIMES.cas + 2)),
            Assert(~(ready_before & ~pins.write) | (dut.dqm == 0)),
            Assert(dut.busy + refreshed >= _TIMES.rfc - 1), Assert(dut.busy + loaded >= _TIMES.mrd - 1),
            Assert(dut.turn + read >= _TIMES.cas + 1),
        ]
        # The bank of an ACTIVATE is used before another one is opened, so that tRRD needs no counter.
        column_bits = exact_log2(PART.columns)
        current = dut.current.address
        which, row, beyond = current[column_bits], current[column_bits + 1], current[column_bits + 2]
        hit = Mux(which, banks[1]["open"] & (banks[1]["row"] == row), banks[0]["open"] & (banks[0]["row"] == row))
        for n, bank in enumerate(banks):
            fresh = bank["activate"] < dut.timing.rcd
            m.d.comb += Assert(~fresh | (dut.serving & hit & ~beyond & (which == n)))

    def _power_up(self, m: Module, dut: wiring.Component, pins: _Pins) -> None:
        """No command before the clock was stable for long enough; then PRECHARGE ALL, the refreshes and the mode register."""
        timer = dut.refreshes
        since_power = Signal(6)
        m.d.sync += since_power.eq(Mux(since_power == 63, 63, since_power + 1))
        closed, count, loaded = Signal(), Signal(3), Signal()
        closed_now, count_now, loaded_now = closed | pins.all, Mux(count == 7, 7, count + pins.refresh), loaded | pins.mode
        m.d.sync += [closed.eq(closed_now), count.eq(count_now), loaded.eq(loaded_now)]
        m.d.comb += [
            Assert(~pins.any | (since_power >= _TIMES.power_up)),
            Assert(~pins.mode | (closed & (count >= _TIMES.init_refreshes))),
            Assert(~(pins.activate | pins.read | pins.write) | loaded),
            # Ties to the controller's state.
            Assert(timer.waits <= timer.first), Assert(timer.left < timer.interval),
            Assert(timer.initial <= _TIMES.init_refreshes),
            Assert(~timer.waits.any() | (since_power == (timer.first - timer.waits + 1) * timer.interval - 1 - timer.left)),
            Assert(timer.waits.any() | (since_power >= _TIMES.power_up)),
            Assert(~timer.waits.any() | (~dut.closed & ~timer.due & (timer.initial == _TIMES.init_refreshes))),
            Assert(~dut.closed | closed_now), Assert(~pins.refresh | closed),
            Assert(count_now + timer.initial >= _TIMES.init_refreshes), Assert((count_now == 0) | closed_now),
            Assert(dut.ready == loaded_now), Assert(~dut.ready | (~timer.initial.any() & ~timer.waits.any())),
            Assert(dut.ready | (~dut.serving & ~dut.waiting & ~dut.open_banks.any() & ~dut.current.as_value().any())),
        ]

    def _refreshes(self, m: Module, dut: wiring.Component, pins: _Pins) -> Value:
        """The time between refreshes, once the part is initialised."""
        timer = dut.refreshes
        most = timer.interval + dut.refresh_delay
        since, elapsed = Signal(range(most + 3)), Signal(range(timer.interval + 1))
        now = Mux(pins.refresh | pins.mode, 0, since)
        m.d.sync += since.eq(Mux(now == most + 2, most + 2, now + 1))
        longest = dut.refresh_delay - _TIMES.rp - 1  # of what a command may still forbid
        waits = Mux(dut.closed, dut.busy, _most(dut.busy, dut.active, dut.recovery) + _TIMES.rp)
        m.d.comb += [
            elapsed.eq(timer.interval - 1 - timer.left),
            Assert(~dut.ready | (now <= most)),
            Assert(~timer.due | (elapsed + waits <= longest + _TIMES.rp - 1)),
            Assert(~dut.ready | Mux(timer.due, now <= timer.interval + elapsed, now <= elapsed)),
            # A command's time is over before the next refresh is due, unless it is one of this cycle or the one before.
            Assert(dut.busy <= longest - 1), Assert(dut.active <= longest - 1), Assert(dut.recovery <= longest - 1),
        ]
        return now


def _spread(bits: Value) -> Value:
    """A word of two free bits, one in each byte: all 16 are too many for a bounded check, and simulation tells them apart."""
    return Cat(bits[0].replicate(8), bits[1].replicate(8))


def quick(*changes: str) -> types.ModuleType:
    """The controller without power-up and with room for 4 words of read data, and a planted bug."""
    return planted_bug("gradloom.rtl.board.memory.sdram", "init=self.first)", "init=0)", "init=refreshes)", "init=0)",
                       "READ_WORDS = 16", "READ_WORDS = 4", *changes)


class _Bursts:
    """Bursts that were taken and are not done, the oldest first; each a word of ``width`` bits. Of writes two at most are in the
    controller, and one may be on its way to the pins; of reads, as many as words of read data have room, too."""

    def __init__(self, m: Module, *, put: Value, value: Value, get: Value, width: int, name: str, size: int = 4) -> None:
        self.level = Signal(range(size + 1), name=f"{name}_level")
        entries = [Signal(width, name=f"{name}{n}") for n in range(size)]
        self.first = entries[0]
        left = Signal(range(size + 1), name=f"{name}_left")
        m.d.comb += [left.eq(self.level - get), Assert(~get | (self.level != 0)), Assert(~put | (left < size))]
        m.d.sync += self.level.eq(left + put)
        for n, entry in enumerate(entries):
            following = entries[n + 1] if n + 1 < size else entry
            m.d.sync += entry.eq(Mux(put & (left == n), value, Mux(get, following, entry)))


class SdramDataSpec(wiring.Component):
    """Words on the pins are those of the bursts, in the order in which they were taken, at their places, each once; write data with
    their strobes; read data as the pins had them after the CAS latency; an answer a burst, DECERR of those beyond the memory, which
    give no command. For bounded checks of :func:`quick` controllers.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: the end of a read beyond the memory after one of it, an answer to a write of two words, a word of read data
        that waited.
    """

    def __init__(self, design: types.ModuleType, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({"ar": In(1), "aw": In(1), "w": In(1), "r": In(1), "b": In(1), "follow": In(1),
                          "read_address": In(_WORDS + 1), "write_address": In(_WORDS + 1), "length": In(2), "data": In(2),
                          "strobes": In(2), "dq": In(2)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.SdramController(_QUICK, CLOCK, length_bits=2)
        bus, pins = dut.bus, _Pins(m, dut)
        m.d.comb += [
            bus.ar.valid.eq(self.ar), bus.ar.p.addr.eq(self.read_address << 1), bus.ar.p.len.eq(self.length),
            bus.aw.valid.eq(self.aw), bus.aw.p.addr.eq(self.write_address << 1), bus.aw.p.len.eq(self.length),
            bus.w.valid.eq(self.w), bus.w.p.data.eq(_spread(self.data)), bus.w.p.strb.eq(self.strobes), bus.r.ready.eq(self.r),
            bus.b.ready.eq(self.b), dut.dq_i.eq(_spread(self.dq)), Assume(~ResetSignal()),
            # A burst lies in the memory or beyond it.
            *(Assume(address[:_WORDS] + self.length < 1 << _WORDS) for address in (self.read_address, self.write_address)),
        ]
        read, write = bus.ar.valid & bus.ar.ready, bus.aw.valid & bus.aw.ready
        m.d.comb += Assert(~(read & write))
        self._places(m, dut, pins, read=read, write=write)
        self._writes(m, dut, pins, taken=write)
        self._reads(m, dut, pins, taken=read)
        return m

    def _places(self, m: Module, dut: wiring.Component, pins: _Pins, *, read: Value, write: Value) -> None:
        """Column commands are the words of the bursts inside the memory."""
        address = Mux(write, self.write_address, self.read_address)
        done, last = Signal(2), Signal()
        column = pins.read | pins.write
        bursts = _Bursts(m, put=(read | write) & ~address[_WORDS], value=Cat(address[:_WORDS], self.length, write),
                         get=column & last, width=_WORDS + 3, name="words")
        first, length, is_write = bursts.first[:_WORDS], bursts.first[_WORDS:_WORDS + 2], bursts.first[_WORDS + 2]
        rows = [Signal(exact_log2(PART.rows), name=f"row_of{n}") for n in range(PART.banks)]
        for n, row in enumerate(rows):
            with m.If(pins.activate & (dut.ba == n)):
                m.d.sync += row.eq(dut.a)
        place = Cat(dut.a[:exact_log2(PART.columns)], dut.ba, Array(rows)[dut.ba])
        m.d.comb += [last.eq(done == length),
                     Assert(~column | ((bursts.level != 0) & (is_write == pins.write) & (place == first + done)))]
        with m.If(column):
            m.d.sync += done.eq(Mux(last, 0, done + 1))

    def _writes(self, m: Module, dut: wiring.Component, pins: _Pins, *, taken: Value) -> None:
        bus = dut.bus
        moves = bus.w.valid & bus.w.ready
        done, last = Signal(2), Signal()
        bursts = _Bursts(m, put=taken, value=Cat(self.length, self.write_address[_WORDS]), get=moves & last, width=3, name="writes")
        beyond = bursts.first[2]
        m.d.comb += [
            last.eq(done == bursts.first[:2]),
            Assert(pins.write == past(m, moves & ~beyond, "wrote")),
            Assert(~pins.write | (dut.dq_o == past(m, _spread(self.data), "data_before"))),
            Assert(~pins.write | (dut.dqm == ~past(m, self.strobes, "strobes_before"))),
        ]
        with m.If(moves):
            m.d.sync += done.eq(Mux(last, 0, done + 1))
        answer = bus.b.valid & bus.b.ready
        answers = _Bursts(m, put=moves & last, value=Cat(beyond), get=answer, width=1, name="answers")
        m.d.comb += [Assert(bus.b.valid == (answers.level != 0)),
                     Assert(~bus.b.valid | (bus.b.p.resp == Mux(answers.first, 3, 0)))]
        if self.cover:
            m.d.comb += Cover(answer & ~answers.first & past(m, moves & last & (done == 1), "two"))

    def _reads(self, m: Module, dut: wiring.Component, pins: _Pins, *, taken: Value) -> None:
        bus = dut.bus
        moves = bus.r.valid & bus.r.ready
        done, last = Signal(2), Signal()
        bursts = _Bursts(m, put=taken, value=Cat(self.length, self.read_address[_WORDS]), get=moves & last, width=3,
                         name="reads", size=8)
        beyond = bursts.first[2]
        m.d.comb += [
            last.eq(done == bursts.first[:2]),
            Assert(~bus.r.valid | ((bursts.level != 0) & (bus.r.p.last == last) & (bus.r.p.resp == Mux(beyond, 3, 0)))),
        ]
        with m.If(moves):
            m.d.sync += done.eq(Mux(last, 0, done + 1))

        # One word of free choice is followed from its READ to R.
        under_way, ahead, followed, captured, word = Signal(4), Signal(4), Signal(), Signal(2), Signal(2)
        inside = moves & ~beyond
        m.d.sync += under_way.eq(under_way + pins.read - inside)
        latency = _QUICK.timing(CLOCK).cas - 1
        m.d.comb += Assert(~(bus.r.valid & ~beyond) | (under_way != 0))
        with m.If(pins.read & self.follow & ~followed):
            m.d.sync += [followed.eq(1), ahead.eq(under_way - inside), captured.eq(1)]
        with m.Elif(followed):
            m.d.sync += captured.eq(Mux(captured == 3, 3, captured + 1))
            with m.If(captured == latency):
                m.d.sync += word.eq(self.dq)
            with m.If(inside):
                m.d.sync += ahead.eq(ahead - 1)
                with m.If(ahead == 0):
                    m.d.comb += [Assert(captured > latency), Assert(bus.r.p.data == _spread(word))]
                    m.d.sync += followed.eq(0)
        if self.cover:
            m.d.comb += [Cover(moves & beyond & past(m, inside, "inside_before")),
                         Cover(inside & past(m, bus.r.valid & ~bus.r.ready, "waited") & (done == 1))]


def _most(*values: Value) -> Value:
    result = values[0]
    for value in values[1:]:
        result = Mux(value > result, value, result)
    return result
