"""Where the beats of a RUN command's planes lie: streams, bitmaps, partial sums, and the element index of every value."""

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.data import StructLayout, View
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.isa import PsumLayout, XSource

__all__ = ["Beat", "PlaneAddressGenerator", "PsumAddress", "StreamAddressGenerator", "row_stride"]

Beat = StructLayout({"v": 1, "v0": 1, "v1": 1, "first": 1, "last": 1, "final": 1, "plane": 7})
"""One beat in a pipeline: valid, valid per lane, first and last of its plane, last of the command, plane number."""

PsumAddress = StructLayout({"wpu": 2, "bank0": 2, "addr0": 16, "bank1": 2, "addr1": 16, "zero0": 1, "zero1": 1})
"""Where lanes 0 and 1 of a beat lie in a half of the partial-sum buffer; ``zero``: nowhere, the sum is 0."""


def row_stride(fields: SimpleNamespace):
    """Bank words from one row of units to the next, rows before the first unit, and the statements that drive both.

    docs/machine.md section 4; ROWS puts two row groups in one row of banks.
    """
    rows = fields.layout == PsumLayout.ROWS
    split = fields.layout == PsumLayout.SPLIT
    stride = Signal(13)
    group = Signal(16)
    return (stride, group,
            [stride.eq(Mux(rows, (fields.pj + 1) >> 1, Mux(split, fields.pj, (fields.pj + 1) & ~1))),
             group.eq(Mux(rows, fields.prg0 >> 1, fields.prg0))])


class StreamAddressGenerator(wiring.Component):
    """Beats of contiguous streams and bitmaps: combinational outputs of the present beat, ``step`` goes to the next.

    Parameters
    ----------
    fields : namespace
        Fields of the RUN command (:func:`gradloom.rtl.command.decode`), stable from ``start`` to the last ``step``.

    Members
    -------
    start : ``In(1)``
        Go to the first beat of plane 0.
    step : ``In(1)``
        Go to the next beat.
    beat : ``Out(Beat)``
    column : ``Out(12)``
        Beat within the row.
    row_last : ``Out(1)``
        Last beat of a row.
    offset : ``Out(16)``
        Of this beat from the first address of a contiguous stream.
    bits_addr, bits_slot : ``Out(16)``, ``Out(3)``
        Bitmap beat from the first address, and which eighth of it.
    """

    def __init__(self, config: Config, fields: SimpleNamespace) -> None:
        self.config = config
        self.fields = fields
        super().__init__({
            "start": In(1), "step": In(1), "beat": Out(Beat), "column": Out(12), "row_last": Out(1), "offset": Out(16),
            "bits_addr": Out(16), "bits_slot": Out(3)})

    def elaborate(self, platform) -> Module:
        m = Module()
        f = self.fields
        beat = Signal(16)
        plane = Signal(7)
        plane_last = Signal()
        row_end = Signal()
        one_lane = f.xsrc == XSource.DW if self.config.group == 1 else 0
        # Registers, as a step comes a cycle after ``start`` at the earliest: much follows from the end of a row.
        last_beat, last_column = Signal(len(f.nb) + 1), Signal(len(f.xe) + 1)
        m.d.sync += [last_beat.eq(f.nb - 1), last_column.eq(f.xe - 1)]
        m.d.comb += [
            plane_last.eq(beat == last_beat),
            row_end.eq(self.column == last_column),
            self.row_last.eq(row_end | plane_last),
            self.beat.v.eq(1),
            self.beat.v0.eq(1),
            self.beat.v1.eq(~(f.xodd & row_end) & ~one_lane),
            self.beat.first.eq(beat == 0),
            self.beat.last.eq(plane_last),
            self.beat.final.eq(plane_last & (plane == f.planes - 1)),
            self.beat.plane.eq(plane),
        ]
        with m.If(self.start):
            m.d.sync += [beat.eq(0), self.column.eq(0), plane.eq(0), self.offset.eq(0), self.bits_addr.eq(0),
                         self.bits_slot.eq(0)]
        with m.Elif(self.step):
            m.d.sync += [
                beat.eq(Mux(plane_last, 0, beat + 1)),
                self.column.eq(Mux(self.row_last, 0, self.column + 1)),
                plane.eq(plane + plane_last),
                self.offset.eq(self.offset + 1),
                self.bits_slot.eq(Mux(plane_last, 0, self.bits_slot + 1)),
                self.bits_addr.eq(self.bits_addr + (plane_last | (self.bits_slot == 7))),
            ]
        return m


class PlaneAddressGenerator(wiring.Component):
    """Position within the planes of a RUN command: combinational outputs of the present beat, ``step`` goes to the next.

    Parameters
    ----------
    fields : namespace
        Fields of the RUN command (:func:`gradloom.rtl.command.decode`), stable from ``start`` to the last ``step``.

    Members
    -------
    start, step, beat, row_last, offset, bits_addr, bits_slot
        As those of :class:`StreamAddressGenerator`.
    row0, stride : ``In(16)``, ``In(13)``
        Bank words before the first unit's row, and from row to row (:func:`row_stride`).
    psum : ``Out(PsumAddress)``
    idx : ``Out(24)``
        Element index of lane 0, channel 0.
    """

    def __init__(self, config: Config, fields: SimpleNamespace) -> None:
        self.config = config
        self.fields = fields
        super().__init__({
            "start": In(1), "step": In(1), "row0": In(16), "stride": In(13), "beat": Out(Beat), "row_last": Out(1),
            "offset": Out(16), "bits_addr": Out(16), "bits_slot": Out(3), "psum": Out(PsumAddress), "idx": Out(24)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.stream = stream = StreamAddressGenerator(self.config, self.fields)
        m.d.comb += [stream.start.eq(self.start), stream.step.eq(self.step)]
        m.d.comb += [self.row_last.eq(stream.row_last), self.offset.eq(stream.offset), self.bits_addr.eq(stream.bits_addr),
                     self.bits_slot.eq(stream.bits_slot)]
        m.d.comb += self.beat.eq(stream.beat)
        self._walk_partial_sums(m, stream.column, self.beat)
        self._walk_index(m, self.fields.xsrc == XSource.DW, self.beat.last)
        return m

    def _walk_partial_sums(self, m: Module, column: Signal, beat: View) -> None:
        f = self.fields
        p = self.psum
        plane_last = beat.last
        split = f.layout == PsumLayout.SPLIT
        up = (f.layout == PsumLayout.K1_UP) & ~f.psr
        sub = Signal()
        sub0 = Signal()
        group_odd = Signal()
        row = Signal(16)
        y, shared, of_part = Signal(12), Signal(), Signal(8)
        m.d.comb += [sub0.eq(split & f.psr),
                     shared.eq((f.shared != 0) & (beat.plane == f.planes - 1) & (y + f.shared >= f.py))]
        with m.If(self.start):
            m.d.sync += [p.wpu.eq(f.pw0), group_odd.eq(f.prg0[0]), row.eq(self.row0), sub.eq(sub0), y.eq(0), of_part.eq(0)]
        with m.Elif(self.step & ~self.row_last & shared):
            m.d.sync += of_part.eq(of_part + 1)
            with m.If((of_part == f.sbeats - 1) & (p.wpu < self.config.wpus - 1)):
                m.d.sync += [of_part.eq(0), p.wpu.eq(p.wpu + 1)]
        with m.Elif(self.step & self.row_last):
            # The last part of a shared row is the last WPU's, as the last row of a row group is.
            m.d.sync += [y.eq(Mux(plane_last, 0, y + 1)), of_part.eq(0)]
            m.d.sync += sub.eq(Mux(plane_last, sub0, (split | up) & ~sub))
            with m.If(~(split | up) | sub | plane_last):
                with m.If(p.wpu >= self.config.wpus - 1):
                    m.d.sync += [p.wpu.eq(0), group_odd.eq(~group_odd)]
                    with m.If((f.layout != PsumLayout.ROWS) | group_odd):
                        m.d.sync += row.eq(row + self.stride)
                with m.Else():
                    m.d.sync += p.wpu.eq(p.wpu + 1)

        base = Signal(16)
        m.d.comb += base.eq(f.pbase + row)
        third = f.pk == 2
        with m.Switch(f.layout):
            with m.Case(PsumLayout.ROWS):
                m.d.comb += [p.bank0.eq(group_odd << 1), p.bank1.eq((group_odd << 1) | 1),
                             p.addr0.eq(base + Mux(shared, of_part, column)), p.addr1.eq(p.addr0)]
            with m.Case(PsumLayout.SPLIT):
                m.d.comb += [p.bank0.eq((sub << 1) | f.psc), p.bank1.eq((sub << 1) | ~f.psc),
                             p.addr0.eq(base + column), p.addr1.eq(base + column + f.psc)]
            with m.Case(PsumLayout.K1):
                m.d.comb += [p.bank0.eq(f.pk), p.bank1.eq(f.pk ^ 2), p.addr0.eq(base + (column << 1) + third),
                             p.addr1.eq(p.addr0)]
            with m.Case(PsumLayout.K1_UP):
                m.d.comb += [p.bank0.eq(f.pk ^ (column[0] << 1)), p.bank1.eq(~p.bank0),
                             p.addr0.eq(base + (column[1:] << 1) + third), p.addr1.eq(p.addr0),
                             p.zero0.eq(sub), p.zero1.eq(1)]

    def _walk_index(self, m: Module, weights, plane_last: Signal) -> None:
        """Planes: rows of X = 2 xe - xodd elements.

        Weight gradients: tiles (planes) of blocks (row r, tap k, tile beside), the last fastest, two output channels a beat.
        """
        f = self.fields
        plane = Signal(24)
        block_beat = Signal(range(max(2, self.config.block_beats)))
        side = Signal(8)
        tap = Signal(2)
        row = Signal(2)
        tile = Signal(24)
        block = Signal(24)
        # What tiles ahead of the present plane, and of the next one, add to the first index of a row.
        ahead, further, ahead_next = Signal(24), Signal(24), Signal(24)
        next_row = Signal(24)
        m.d.comb += [ahead_next.eq(Mux(plane_last, further, ahead)),
                     next_row.eq(Mux(plane_last, f.idx0, Mux(row == 0, f.idx1, f.idx2)) + ahead_next)]
        # From the last beat of a row to the next row; a register, as the fields are stable from `start` on. Behind a row of K1_UP
        # is the row of zeros that is not swept.
        next_x = Signal(len(f.xe) + 2)
        m.d.sync += next_x.eq(2 - f.xodd + Mux((f.layout == PsumLayout.K1_UP) & f.psr, (f.xe << 1) - f.xodd, 0))
        with m.If(self.start):
            m.d.sync += [plane.eq(f.idx0), block.eq(f.idx0), tile.eq(f.idx0), self.idx.eq(f.idx0), ahead.eq(0), further.eq(f.s_t),
                         block_beat.eq(0), side.eq(0), tap.eq(0), row.eq(0)]
        with m.Elif(self.step & weights):
            with m.If(block_beat != self.config.block_beats - 1):
                m.d.sync += [block_beat.eq(block_beat + 1), self.idx.eq(self.idx + (f.s_lane << 1))]
            with m.Else():
                m.d.sync += block_beat.eq(0)
                with m.If(side != f.side):
                    m.d.sync += [side.eq(side + 1), tile.eq(tile + f.s_t), self.idx.eq(tile + f.s_t)]
                with m.Elif(tap + 1 < f.nk):
                    m.d.sync += [side.eq(0), tap.eq(tap + 1), block.eq(block + f.s_k), tile.eq(block + f.s_k),
                                 self.idx.eq(block + f.s_k)]
                with m.Else():
                    m.d.sync += [side.eq(0), tap.eq(0), row.eq(Mux(plane_last, 0, row + 1)), ahead.eq(ahead_next),
                                 further.eq(ahead_next + f.s_t), block.eq(next_row), tile.eq(next_row), self.idx.eq(next_row)]
        with m.Elif(self.step):
            with m.If(plane_last):
                m.d.sync += [plane.eq(plane + f.s_k), self.idx.eq(plane + f.s_k)]
            with m.Else():
                m.d.sync += self.idx.eq(self.idx + Mux(self.row_last, next_x, 2))
