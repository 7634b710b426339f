"""A column of the array: a multiply-accumulate unit for each row of each lane, between the columns beside it."""

from amaranth.hdl import Module, Mux, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl import shared_module
from gradloom.rtl.ccore.mac import SUM_BITS, Mac
from gradloom.rtl.delay import delayed

__all__ = ["ArrayColumn", "Step", "lane_sums"]

Step = data.StructLayout({"valid": unsigned(1), "own": unsigned(1), "first": unsigned(1)})
"""Of a step: ``own``: the second factor is not that of W; ``first``: of a sum that stays (stationary output)."""


def lane_sums(lanes: int, rows: int) -> data.ArrayLayout:
    """Sums of all rows of all lanes, as they go from column to column."""
    return data.ArrayLayout(data.ArrayLayout(signed(SUM_BITS), rows), lanes)


class ArrayColumn(wiring.Component):
    """``lanes`` x ``rows`` of :class:`gradloom.rtl.ccore.mac.Mac`. A step's sums go on to the next column, or stay (``stays``).

    Members
    -------
    step : ``In(Step)``, x : ``In(lanes codes)``, w : ``In(rows codes)``, e : ``In(lanes or rows codes)``
        Cycle 0. ``e`` is an operand of the lane's own, or where sums stay, of the row's own.
    shift : ``In(1)``
        Where sums stay: in this cycle all of them go on to the next column. No step of the three cycles before.
    cin, cout : ``In``, ``Out(lane_sums(lanes, rows))``
        Cycle 2, cycle 3.
    """

    def __init__(self, lanes: int, rows: int, *, stays: bool) -> None:
        self.lanes, self.rows, self.stays = lanes, rows, stays
        codes = {name: In(data.ArrayLayout(signed(8), count))
                 for name, count in (("x", lanes), ("w", rows), ("e", rows if stays else lanes))}
        super().__init__(codes | {"step": In(Step), "shift": In(1), "cin": In(lane_sums(lanes, rows)),
                                  "cout": Out(lane_sums(lanes, rows))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # In the cycles of the sums, two after those of the factors.
        valid = delayed(m, self.step.valid, "valid", 2, reset=True)
        first = delayed(m, self.step.first, "first", 2)
        for lane in range(self.lanes):
            for row in range(self.rows):
                mac = shared_module.add(m, f"mac{lane}_{row}", "gradloom_mac", Mac("decode_once"), "decode_once")
                # What is shifted has no product added: without a step a factor is 0.
                factor = Mux(self.step.valid, self.x[lane], 0) if self.stays else self.x[lane]
                m.d.comb += [
                    mac.a.eq(factor), mac.w[0].eq(self.w[row]), mac.e[0].eq(self.e[row if self.stays else lane]),
                    mac.wg.eq(self.step.own), mac.cin[0].eq(self.cin[lane][row]), self.cout[lane][row].eq(mac.sum[0]),
                ]
                if self.stays:
                    m.d.comb += [mac.take.eq(valid | self.shift), mac.keep.eq(~self.shift & ~first), mac.chain.eq(self.shift)]
                else:
                    m.d.comb += [mac.take.eq(valid), mac.chain.eq(1)]
        return m
