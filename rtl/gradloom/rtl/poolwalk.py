"""Walk over the taps of pooling windows in a stored plane: forward over a window, backward over the windows of a position."""

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out

__all__ = ["PoolWalk", "Tap"]

Tap = StructLayout({"v": 1, "inside": 1, "lane": 1, "first": 1, "last": 1, "out": 1, "k": 8})
"""One tap in the pipeline: valid, inside the plane, lane of its beat that holds it, first and last of the output position,
lane of the output position, number ky * pkern + kx of the tap in its window."""


class PoolWalk(wiring.Component):
    """One tap a cycle, lane 0 of an output beat before lane 1, windows in row-major order.

    Forward, position o of an axis has taps k = 0 .. pkern - 1 at o s - p + k. Backward, it is held by the windows
    floor((o + p) / s) - i as their tap (o + p) mod s + i s, for i = 0, 1, ... while that is below pkern. p = ppad, for rows
    ppad + poff: a tile of rows counts both its positions and the stored rows from 0 on.

    Parameters
    ----------
    fields : namespace
        Fields of the RUN command, stable while the command runs.

    Members
    -------
    prepare : ``In(1)``
        Compute the first window's place; ``ready`` within 16 cycles.
    ready : ``Out(1)``
    plane_beats : ``In(16)``
        Beats of a stored plane, pyi * ceil(pxi / 2).
    start : ``In(1)``
        Go to the first tap of plane 0.
    step : ``In(1)``
        Go to the next tap.
    row_last, plane_last : ``In(1)``
        The present output beat is the last of its row, of its plane.
    tap : ``Out(Tap)``
    addr : ``Out(16)``
        Beat of the tap from the stream's first address.
    beat_done : ``Out(1)``
        The present tap is the last one of the output beat.
    """

    def __init__(self, fields: SimpleNamespace) -> None:
        self.fields = fields
        super().__init__({"prepare": In(1), "ready": Out(1), "plane_beats": In(16), "start": In(1), "step": In(1),
                          "row_last": In(1), "plane_last": In(1), "tap": Out(Tap), "addr": Out(16),
                          "beat_done": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        f = self.fields
        backward = f.pool[1]
        beats = Signal(12)
        m.d.comb += beats.eq((f.pxi + 1) >> 1)

        # Place of the first output position of a plane: position and tap number on either axis, address of its row.
        above = Signal(6)
        firsts = {name: (Signal(signed(14), name=f"{name}_pos0"), Signal(5, name=f"{name}_k0")) for name in ("y", "x")}
        row0 = Signal(16)
        stride_beats = Signal(16)
        count = Signal(5)
        m.d.comb += [self.ready.eq(count[4]), above.eq(f.ppad + f.poff)]
        with m.If(self.prepare):
            m.d.sync += [count.eq(0), row0.eq(0), stride_beats.eq(0)]
            for (pos0, k0), pad in zip(firsts.values(), (above, f.ppad), strict=True):
                m.d.sync += [pos0.eq(Mux(backward, 0, -pad)), k0.eq(Mux(backward, pad, 0))]
        with m.Elif(~self.ready):
            m.d.sync += count.eq(count + 1)
            with m.If(count < f.pstride):
                m.d.sync += stride_beats.eq(stride_beats + beats)
            with m.If(~backward & (count < above)):
                m.d.sync += row0.eq(row0 - beats)
            for name, (pos0, k0) in firsts.items():
                with m.If(backward & (k0 >= f.pstride)):
                    m.d.sync += [k0.eq(k0 - f.pstride), pos0.eq(pos0 + 1)]
                    if name == "y":
                        m.d.sync += row0.eq(row0 + beats)

        plane = Signal(16)
        row_start = Signal(16)
        row = Signal(16)
        out = Signal()
        axes = []
        for name, limit in (("y", f.pyi), ("x", f.pxi)):
            axis = SimpleNamespace(
                start=Signal(signed(14), name=f"{name}_start"), start_k=Signal(5, name=f"{name}_start_k"),
                pos=Signal(signed(14), name=f"{name}_pos"), k=Signal(5, name=f"{name}_k"),
                next_start=Signal(signed(14), name=f"{name}_next_start"),
                next_start_k=Signal(5, name=f"{name}_next_start_k"),
                carry=Signal(name=f"{name}_carry"), last=Signal(name=f"{name}_last"), inside=Signal(name=f"{name}_inside"))
            m.d.comb += [
                axis.carry.eq(axis.start_k + 1 >= f.pstride),
                axis.next_start.eq(Mux(backward, axis.start + axis.carry, axis.start + f.pstride)),
                axis.next_start_k.eq(Mux(~backward | axis.carry, 0, axis.start_k + 1)),
                axis.last.eq(axis.k + Mux(backward, f.pstride, 1) >= f.pkern),
                axis.inside.eq((axis.pos >= 0) & (axis.pos < limit) & (axis.k < f.pkern)),
            ]
            axes.append(axis)
        y, x = axes
        last = Signal()
        m.d.comb += [
            last.eq(y.last & x.last),
            self.beat_done.eq(last & out),
            self.tap.v.eq(1),
            self.tap.inside.eq(y.inside & x.inside),
            self.tap.lane.eq(x.pos[0]),
            self.tap.first.eq((y.k == y.start_k) & (x.k == x.start_k)),
            self.tap.last.eq(last),
            self.tap.out.eq(out),
            self.tap.k.eq(y.k[:4] * f.pkern + x.k[:4]),
            self.addr.eq(plane + row + (x.pos >> 1)),
        ]

        def load(axis, pos, k):
            return [axis.start.eq(pos), axis.start_k.eq(k), axis.pos.eq(pos), axis.k.eq(k)]

        y_first, x_first = load(y, *firsts["y"]), load(x, *firsts["x"])

        def advance(axis):
            return [axis.pos.eq(Mux(backward, axis.pos - 1, axis.pos + 1)),
                    axis.k.eq(axis.k + Mux(backward, f.pstride, 1))]

        def restart(axis):
            return [axis.pos.eq(axis.start), axis.k.eq(axis.start_k)]

        with m.If(self.start):
            m.d.sync += [plane.eq(0), row.eq(row0), row_start.eq(row0), out.eq(0), *y_first, *x_first]
        with m.Elif(self.step):
            with m.If(~x.last):
                m.d.sync += advance(x)
            with m.Elif(~y.last):
                m.d.sync += [*restart(x), *advance(y), row.eq(Mux(backward, row - beats, row + beats))]
            with m.Else():
                m.d.sync += [out.eq(~out), *restart(y), row.eq(row_start), *load(x, x.next_start, x.next_start_k)]
                with m.If(out & self.plane_last):
                    m.d.sync += [plane.eq(plane + self.plane_beats), row.eq(row0), row_start.eq(row0), *y_first, *x_first]
                with m.Elif(out & self.row_last):
                    next_row = Signal(16)
                    m.d.comb += next_row.eq(row_start + Mux(backward, Mux(y.carry, beats, 0), stride_beats))
                    m.d.sync += [row.eq(next_row), row_start.eq(next_row), *load(y, y.next_start, y.next_start_k), *x_first]
        return m
