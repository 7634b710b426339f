"""Walk over the taps of pooling windows in a stored plane: forward over a window, backward over the windows of a position."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout, StructLayout
from amaranth.lib.wiring import In, Out

__all__ = ["LANES", "PoolWalk", "Tap"]

LANES = 2

Tap = StructLayout({"v": 1, "first": 1, "last": 1, "inside": ArrayLayout(ArrayLayout(1, LANES), LANES),
                    "k": ArrayLayout(ArrayLayout(8, LANES), LANES)})
"""One stored beat in the pipeline: valid, first and last of the output beat; by output lane and stored column: whether the
column is a tap of that output position, and its number ky * pkern + kx in the window."""


class PoolWalk(wiring.Component):
    """One stored beat a cycle, rows of a window one after the other; every one serves both output positions of a beat.

    Forward, position o of an axis has taps k = 0 .. pkern - 1 at o s - p + k. Backward, it is held by the windows w with
    tap k = o + p - w s, 0 <= k < pkern. A row of the window is walked one position at a time, columns a beat at a time:
    forward from the beat that holds the first tap of lane 0 to the one of the last tap of lane 1, upwards; backward from the
    highest window of lane 1 to the lowest of lane 0, downwards. Padding is walked too, but not inside. p = ppad, for rows
    ppad + poff: a tile of rows counts both its positions and the stored rows from 0 on.

    Parameters
    ----------
    fields : namespace
        Fields of the RUN command, stable while the command runs.
    lut : :class:`bool`
        Adders make a tap's number, instead of a multiplier.

    Members
    -------
    prepare : ``In(1)``
        Compute the first window's place; ``ready`` within 17 cycles.
    ready : ``Out(1)``
    plane_beats : ``In(16)``
        Beats of a stored plane, pyi * ceil(pxi / 2).
    start : ``In(1)``
        Go to the first tap of plane 0.
    step : ``In(1)``
        Go to the next stored beat.
    row_last, plane_last : ``In(1)``
        The present output beat is the last of its row, of its plane.
    single : ``In(1)``
        Lane 1 of the present output beat is not valid.
    tap : ``Out(Tap)``
    addr : ``Out(16)``
        Stored beat from the stream's first address.
    beat_done : ``Out(1)``
        The present tap is the last one of the output beat.
    """

    def __init__(self, fields: SimpleNamespace, *, lut: bool = False) -> None:
        self.fields, self.lut = fields, lut
        super().__init__({"prepare": In(1), "ready": Out(1), "plane_beats": In(16), "start": In(1), "step": In(1),
                          "row_last": In(1), "plane_last": In(1), "single": In(1), "tap": Out(Tap), "addr": Out(16),
                          "beat_done": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        f = self.fields
        backward = f.pool[1]
        beats = Signal(12)
        m.d.comb += beats.eq((f.pxi + 1) >> 1)

        # First output position of a plane: row and its tap, address of the row; column beat and the tap of its column 0 in lane 0.
        above = Signal(6)
        y0, yk0 = Signal(signed(14)), Signal(6)
        row0, stride_beats = Signal(16), Signal(16)
        x0, xk0 = Signal(signed(13)), Signal(signed(7))
        count = Signal(5)
        m.d.comb += [self.ready.eq(count[4]), above.eq(f.ppad + f.poff)]
        with m.If(self.prepare):
            m.d.sync += [count.eq(0), y0.eq(Mux(backward, 0, -above)), yk0.eq(Mux(backward, above, 0)), row0.eq(0),
                         stride_beats.eq(0), x0.eq(Mux(backward, 0, -((f.ppad + 1) >> 1))),
                         xk0.eq(Mux(backward, f.ppad, -f.ppad[0]))]
        with m.Elif(~self.ready):
            m.d.sync += count.eq(count + 1)
            with m.If(count < f.pstride):
                m.d.sync += stride_beats.eq(stride_beats + beats)
            with m.If(~backward & (count < above)):
                m.d.sync += row0.eq(row0 - beats)
            with m.If(backward & (yk0 >= f.pstride)):
                m.d.sync += [yk0.eq(yk0 - f.pstride), y0.eq(y0 + 1), row0.eq(row0 + beats)]
            with m.If(backward & (xk0 + 1 >= f.pstride << 1)):
                m.d.sync += [xk0.eq(xk0 - (f.pstride << 1)), x0.eq(x0 + 1)]

        plane, row_start, row = Signal(16), Signal(16), Signal(16)
        y_start, y_start_k = Signal(signed(14)), Signal(5)
        y, yk = Signal(signed(14)), Signal(5)
        x_start, x_start_k = Signal(signed(13)), Signal(signed(7))
        x, xk = Signal(signed(13)), Signal(signed(7))
        y_carry, x_carry, y_last, x_last, y_inside = Signal(), Signal(), Signal(), Signal(), Signal()
        next_y, next_yk = Signal(signed(14)), Signal(5)
        next_x, next_xk = Signal(signed(13)), Signal(signed(7))
        m.d.comb += [
            y_carry.eq(y_start_k + 1 >= f.pstride),
            next_y.eq(Mux(backward, y_start + y_carry, y_start + f.pstride)),
            next_yk.eq(Mux(~backward | y_carry, 0, y_start_k + 1)),
            y_last.eq(yk + Mux(backward, f.pstride, 1) >= f.pkern),
            y_inside.eq((y >= 0) & (y < f.pyi) & (yk < f.pkern)),
            # Backward x_start_k + 1 counts modulo 2 s, two a beat; forward every beat begins with the same tap.
            x_carry.eq(x_start_k + 3 >= f.pstride << 1),
            next_x.eq(Mux(backward, x_start + x_carry, x_start + f.pstride)),
            next_xk.eq(Mux(backward, x_start_k + 2 - Mux(x_carry, f.pstride << 1, 0), x_start_k)),
            # Whether the beat is single comes late, so both ends are compared before.
            x_last.eq(Mux(self.single & ~backward, xk + 2 >= f.pkern,
                          Mux(backward, xk + f.pstride, xk + 2 - f.pstride) >= f.pkern)),
        ]

        first, last = Signal(), Signal()
        m.d.comb += [
            first.eq((yk == y_start_k) & (xk == x_start_k)), last.eq(y_last & x_last), self.beat_done.eq(last),
            self.tap.v.eq(1), self.tap.first.eq(first), self.tap.last.eq(last), self.addr.eq(plane + row + x)]
        present = Cat(y_inside & (x >= 0) & (Cat(column, x).as_signed() < f.pxi) for column in range(LANES))
        above_taps = yk[:4] * f.pkern
        if self.lut:
            above_taps = sum(Mux(yk[i], f.pkern, 0) << i for i in range(4))
        for lane in range(LANES):
            for column in range(LANES):
                k = Signal(signed(9), name=f"k{lane}{column}")
                m.d.comb += [
                    k.eq(xk + Mux(backward, lane - column * f.pstride, column - lane * f.pstride)),
                    self.tap.inside[lane][column].eq(present[column] & (k >= 0) & (k < f.pkern)),
                    self.tap.k[lane][column].eq(above_taps + k[:4])]

        def to_row(pos, k, address):
            return [y_start.eq(pos), y_start_k.eq(k), y.eq(pos), yk.eq(k), row.eq(address), row_start.eq(address)]

        def to_column(pos, k):
            return [x_start.eq(pos), x_start_k.eq(k), x.eq(pos), xk.eq(k)]

        with m.If(self.start):
            m.d.sync += [plane.eq(0), *to_row(y0, yk0, row0), *to_column(x0, xk0)]
        with m.Elif(self.step):
            with m.If(~x_last):
                m.d.sync += [x.eq(Mux(backward, x - 1, x + 1)), xk.eq(xk + Mux(backward, f.pstride << 1, 2))]
            with m.Elif(~y_last):
                m.d.sync += [x.eq(x_start), xk.eq(x_start_k), y.eq(Mux(backward, y - 1, y + 1)),
                             yk.eq(yk + Mux(backward, f.pstride, 1)), row.eq(Mux(backward, row - beats, row + beats))]
            with m.Elif(self.plane_last):
                m.d.sync += [plane.eq(plane + self.plane_beats), *to_row(y0, yk0, row0), *to_column(x0, xk0)]
            with m.Elif(self.row_last):
                m.d.sync += [*to_row(next_y, next_yk, row_start + Mux(backward, Mux(y_carry, beats, 0), stride_beats)),
                             *to_column(x0, xk0)]
            with m.Else():
                m.d.sync += [y.eq(y_start), yk.eq(y_start_k), row.eq(row_start), *to_column(next_x, next_xk)]
        return m
