"""Drain of the weight gradients: sums over WPUs into the DW buffer (``docs/machine.md`` section 4)."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.rtl.banks import address_bits
from gradloom.rtl.colwalk import token_layout
from gradloom.rtl.config import PE_ROWS, Config
from gradloom.rtl.wpu import WPU_DSEL

__all__ = ["Drain"]


class Drain(wiring.Component):
    """Blocks (r, k), r outer, each ``block_beats`` beats, one beat a cycle; lane l of beat b is output channel 2 b + l.

    The walk begins with the token and is delayed until its ``snap`` has reached the drain registers, so that tokens of the next
    tile follow while they are read.

    Parameters
    ----------
    latency : :class:`int`
        Cycles from a ``snap`` token to the first ``dsel`` that sees it.

    Members
    -------
    token : ``In(token_layout)``
        A token with ``snap`` starts the drain of PE rows ``drows``, taps below ``nk`` at beat ``dwbase``, ``dgap`` blocks apart;
        with ``dacc`` the sums are added to what the buffer holds.
    ready : ``Out(1)``
        A token of this cycle may ``snap``.
    done : ``Out(1)``
        The last beat is written (or there was none), and its overflow or fault is reported in this cycle at the latest.
    dsel : ``Out(WPU_DSEL)``
    d : ``In(ArrayLayout(ArrayLayout(ArrayLayout(signed(wg_width), G), wpus), clusters))``
        Drain registers, column c 1 + c cycles after ``dsel``.
    en, addr : ``In(1)``, ``In(16)``
        The A-Core's read.
    q : ``Out(ArrayLayout(ArrayLayout(signed(wg_width), G), 2))``
        Its beat two cycles later.
    ovf : ``Out(1)``
        A sum over WPUs overflowed.
    fault : ``Out(1)``
        A beat beyond the buffer was dropped.
    """

    def __init__(self, config: Config, *, latency: int) -> None:
        self.config = config
        self.latency = latency
        lane = data.ArrayLayout(signed(config.wg_width), config.group)
        super().__init__({
            "token": In(token_layout(config)), "ready": Out(1), "done": Out(1), "dsel": Out(WPU_DSEL),
            "d": In(data.ArrayLayout(data.ArrayLayout(lane, config.wpus), config.clusters)),
            "en": In(1), "addr": In(16), "q": Out(data.ArrayLayout(lane, 2)), "ovf": Out(1), "fault": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        g, width = config.group, config.wg_width
        token = self.token

        running, r, k = Signal(), Signal(2), Signal(2)
        rows, taps, add, gap = Signal(PE_ROWS), Signal(2), Signal(), Signal(8)
        beat = Signal(range(max(2, config.block_beats)))
        address = Signal(16)
        beat_end, tap_end = Signal(), Signal()
        skip = ~Array((*rows, rows[0]))[r]
        issue, last = Signal(), Signal()
        m.d.comb += [beat_end.eq(beat == config.block_beats - 1), tap_end.eq(k + 1 == taps), issue.eq(running & ~skip),
                     last.eq(running & (r == PE_ROWS - 1) & (skip | (beat_end & tap_end))), self.ready.eq(~running | last)]
        with m.If(running):
            with m.If(skip | (beat_end & tap_end)):
                m.d.sync += [r.eq(r + 1), k.eq(0), beat.eq(0), running.eq(~last)]
            with m.Elif(beat_end):
                m.d.sync += [k.eq(k + 1), beat.eq(0)]
            with m.Else():
                m.d.sync += beat.eq(beat + 1)
        with m.If(issue):
            m.d.sync += address.eq(address + 1 + Mux(beat_end, gap * config.block_beats, 0))
        with m.If(token.snap):
            m.d.sync += [running.eq(1), r.eq(0), k.eq(0), beat.eq(0), address.eq(token.dwbase), rows.eq(token.drows),
                         taps.eq(token.nk), add.eq(token.dacc), gap.eq(token.dgap)]

        def delayed(value: Signal, cycles: int, name: str, *, reset_less: bool = True) -> Signal:
            for i in range(cycles):
                stage = Signal.like(value, name=f"{name}{i}", reset_less=reset_less)
                m.d.sync += stage.eq(value)
                value = stage
            return value

        # Behind dsel, in column c 1 + c cycles: drain registers; 2 + c: the beat's clusters; 3 + c: their sums over WPUs.
        # Cycle 2 + G has all columns; cycle 3 + G: with what the buffer held they are written.
        wait = self.latency - 1
        m.d.comb += [self.dsel.r.eq(delayed(r, wait, "dsel_r")), self.dsel.k.eq(delayed(k, wait, "dsel_k"))]
        beat1 = delayed(beat, wait + 1, "beat_at")
        valid = delayed(issue, wait + g + 3, "valid", reset_less=False)
        address3 = delayed(address, wait + g + 3, "address_at")
        done = delayed(last, wait + g + 4, "last", reset_less=False)

        # A beat is read in cycle 1 + G and written in cycle 3 + G. The same beat comes again with another
        # command, whose words alone take longer than that.
        m.submodules.memory = memory = Memory(shape=2 * g * width, depth=config.dw_depth, init=[])
        write, port, old = memory.write_port(), memory.read_port(), memory.read_port()
        bits = address_bits(config.dw_depth)
        add2 = delayed(add, wait + g + 2, "add_at")
        m.d.comb += old.addr.eq(delayed(address, wait + g + 1, "old_at")[:bits])

        total = Signal(2 * g * width, reset_less=True)
        overflows = []
        for c in range(g):
            beat_here = delayed(beat1, c, f"beat_at{c}_")
            for lane in range(min(2, g)):
                terms = []
                for w in range(config.wpus):
                    term = Signal(signed(width), name=f"term{lane}_{c}_{w}", reset_less=True)
                    m.d.sync += term.eq(Array(self.d[2 * b + lane][w][c] for b in range(config.block_beats))[beat_here])
                    terms.append(term)
                summed = Signal(signed(width + 2), name=f"summed{lane}_{c}", reset_less=True)
                m.d.sync += summed.eq(sum(terms[1:], terms[0]))
                before = old.data.word_select(lane * g + c, width) & add2.replicate(width)
                wide = Signal(signed(width + 3), name=f"wide{lane}_{c}")
                over = Signal(name=f"over{lane}_{c}", reset_less=True)
                m.d.comb += wide.eq(delayed(summed, g - 1 - c, f"aligned{lane}_{c}_") + before.as_signed())
                m.d.sync += [total.word_select(lane * g + c, width).eq(wide[:width]),
                             over.eq(~(wide[width - 1:].all() | ~wide[width - 1:].any()))]
                overflows.append(over)

        fits = address3 < config.dw_depth
        m.d.comb += [write.en.eq(valid & fits), write.addr.eq(address3[:bits]), write.data.eq(total),
                     port.en.eq(self.en), port.addr.eq(self.addr[:bits]), self.done.eq(done)]
        m.d.sync += [self.q.as_value().eq(port.data), self.ovf.eq(valid & Cat(overflows).any()),
                     self.fault.eq(valid & ~fits)]
        return m
