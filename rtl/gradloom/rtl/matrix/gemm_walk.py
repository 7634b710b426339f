"""The steps of a GEMM: three loops, and the words of W, X and P that belong to each step."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["GemmWalk", "Loops", "Place"]

Loops = data.StructLayout(dict.fromkeys(
    ("ni", "nj", "nk", "w0", "wi", "wj", "wk", "x0", "xi", "xj", "xk", "p0", "pi", "pj"), 16))
"""Fields of GEMM; iterations are at least 1."""
Place = data.StructLayout({"w": 16, "x": 16, "p": 16, "first": 1, "last": 1, "end": 1})
"""Of a step: its words; whether it is the first and the last one of a sum; and the command's last one."""


class GemmWalk(wiring.Component):
    """Goes from step to step of the loops i, j, k, the last one innermost. Words are counted modulo 2^16.

    Members
    -------
    loops : ``In(Loops)``
        Stable from ``start`` on.
    start : ``In(1)``
        The first step is at hand in the next cycle.
    step : ``In(1)``
        The step at hand is made in this cycle.
    place : ``Out(Place)``
    """

    def __init__(self) -> None:
        super().__init__({"loops": In(Loops), "start": In(1), "step": In(1), "place": Out(Place)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        loops, place = self.loops, self.place
        counts = {name: Signal(16, name=f"count_{name}", reset_less=True) for name in "ijk"}
        ends = {name: counts[name] == loops[f"n{name}"] - 1 for name in "ijk"}
        m.d.comb += [place.first.eq(counts["k"] == 0), place.last.eq(ends["k"]), place.end.eq(ends["k"] & ends["j"] & ends["i"])]
        carry = {"k": self.step, "j": self.step & ends["k"], "i": self.step & ends["k"] & ends["j"]}
        for name in "ijk":
            with m.If(self.start):
                m.d.sync += counts[name].eq(0)
            with m.Elif(carry[name]):
                m.d.sync += counts[name].eq(Mux(ends[name], 0, counts[name] + 1))
        for operand in "wxp":
            inner = "k" if operand != "p" else "j"
            # Where the present iteration of j, and of i, began.
            of_j, of_i = (Signal(16, name=f"{operand}_of_{name}", reset_less=True) for name in "ji")
            next_j, next_i = ((began + loops[f"{operand}{name}"])[:16] for began, name in ((of_j, "j"), (of_i, "i")))
            here = place[operand]
            with m.If(self.start):
                m.d.sync += [target.eq(loops[f"{operand}0"]) for target in (here, of_j, of_i)]
            with m.Elif(carry["i"]):
                m.d.sync += [target.eq(next_i) for target in (here, of_j, of_i)]
            with m.Elif(carry["j"]):
                m.d.sync += [target.eq(next_j) for target in (here, of_j)]
            if inner == "k":
                with m.Elif(self.step):
                    m.d.sync += here.eq(here + loops[f"{operand}k"])
        return m
