"""Drain of the weight gradients: sums over WPUs into the DW buffer (``docs/machine.md`` section 4)."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.rtl.banks import address_bits
from gradloom.rtl.command import decode
from gradloom.rtl.config import PE_ROWS, Config
from gradloom.rtl.isa import Opcode, Pattern
from gradloom.rtl.rowwalk import CONV_BITS
from gradloom.rtl.wpu import WPU_DSEL

__all__ = ["Drain"]


class Drain(wiring.Component):
    """Blocks (r, k), r outer, each ``block_beats`` beats, one beat a cycle; lane l of beat b is output channel 2 b + l.

    Members
    -------
    cmd : ``In(512)``
        CONV command, stable until ``done``.
    start : ``In(1)``
        The drain registers are stable from the next cycle on.
    done : ``Out(1)``
        The last beat is written in this cycle (or there is none).
    dsel : ``Out(WPU_DSEL)``
    d : ``In(ArrayLayout(ArrayLayout(ArrayLayout(signed(wg_width), G), wpus), clusters))``
        Drain registers, one cycle after ``dsel``.
    en, addr : ``In(1)``, ``In(16)``
        The A-Core's read.
    q : ``Out(ArrayLayout(ArrayLayout(signed(wg_width), G), 2))``
        Its beat two cycles later.
    ovf : ``Out(1)``
        A sum over WPUs overflowed.
    fault : ``Out(1)``
        A beat beyond the buffer was dropped.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        lane = data.ArrayLayout(signed(config.wg_width), config.group)
        super().__init__({
            "cmd": In(CONV_BITS), "start": In(1), "done": Out(1), "dsel": Out(WPU_DSEL),
            "d": In(data.ArrayLayout(data.ArrayLayout(lane, config.wpus), config.clusters)),
            "en": In(1), "addr": In(16), "q": Out(data.ArrayLayout(lane, 2)), "ovf": Out(1), "fault": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        g, width = config.group, config.wg_width
        f = decode(Opcode.CONV, self.cmd)

        rows = Signal(PE_ROWS)
        k1 = f.pattern == Pattern.K1
        m.d.comb += rows.eq(Cat(Mux(k1, limit != 0, f.nr > r) for r, limit in enumerate((f.rlim0, f.rlim1, f.rlim2))))

        running, r, k = Signal(), Signal(2), Signal(2)
        beat = Signal(range(max(2, config.block_beats)))
        address = Signal(16)
        beat_end, tap_end = Signal(), Signal()
        skip = ~Array((*rows, rows[0]))[r]
        issue, last = Signal(), Signal()
        m.d.comb += [beat_end.eq(beat == config.block_beats - 1), tap_end.eq(k + 1 == f.nk), issue.eq(running & ~skip),
                     last.eq(running & (r == PE_ROWS - 1) & (skip | (beat_end & tap_end))),
                     self.dsel.r.eq(r), self.dsel.k.eq(k)]
        with m.If(running):
            with m.If(skip | (beat_end & tap_end)):
                m.d.sync += [r.eq(r + 1), k.eq(0), beat.eq(0), running.eq(~last)]
            with m.Elif(beat_end):
                m.d.sync += [k.eq(k + 1), beat.eq(0)]
            with m.Else():
                m.d.sync += beat.eq(beat + 1)
        with m.If(issue):
            m.d.sync += address.eq(address + 1)
        with m.If(self.start):
            m.d.sync += [running.eq(1), r.eq(0), k.eq(0), beat.eq(0), address.eq(f.dwbase)]

        # Cycle 1: drain registers; cycle 2: the beat's clusters; cycle 3: their sums over WPUs are written.
        valid, lasts, addresses = [issue], [last], [address]
        for i in range(1, 4):
            valid.append(Signal(name=f"valid{i}"))
            lasts.append(Signal(name=f"last{i}"))
            addresses.append(Signal(16, name=f"address{i}", reset_less=True))
            m.d.sync += [valid[i].eq(valid[i - 1]), lasts[i].eq(lasts[i - 1]), addresses[i].eq(addresses[i - 1])]
        beat1 = Signal.like(beat, reset_less=True)
        m.d.sync += beat1.eq(beat)

        total = Signal(2 * g * width, reset_less=True)
        overflows = []
        for lane in range(min(2, g)):
            for c in range(g):
                terms = []
                for w in range(config.wpus):
                    term = Signal(signed(width), name=f"term{lane}_{c}_{w}", reset_less=True)
                    m.d.sync += term.eq(Array(self.d[2 * b + lane][w][c] for b in range(config.block_beats))[beat1])
                    terms.append(term)
                wide = Signal(signed(width + 2), name=f"wide{lane}_{c}")
                over = Signal(name=f"over{lane}_{c}", reset_less=True)
                m.d.comb += wide.eq(sum(terms[1:], terms[0]))
                m.d.sync += [total.word_select(lane * g + c, width).eq(wide[:width]),
                             over.eq(~(wide[width - 1:].all() | ~wide[width - 1:].any()))]
                overflows.append(over)

        m.submodules.memory = memory = Memory(shape=2 * g * width, depth=config.dw_depth, init=[])
        write, port = memory.write_port(), memory.read_port()
        bits = address_bits(config.dw_depth)
        fits = addresses[3] < config.dw_depth
        m.d.comb += [write.en.eq(valid[3] & fits), write.addr.eq(addresses[3][:bits]), write.data.eq(total),
                     port.en.eq(self.en), port.addr.eq(self.addr[:bits]), self.done.eq(lasts[3])]
        m.d.sync += [self.q.as_value().eq(port.data), self.ovf.eq(valid[3] & Cat(overflows).any()),
                     self.fault.eq(valid[3] & ~fits)]
        return m
