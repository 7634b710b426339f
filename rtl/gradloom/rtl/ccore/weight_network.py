"""The weight buffer and the two-level weight network (ETA, section IV-B4): one PE row of weights a cycle.

Level 1 exchanges input and output channels of a block (``transpose``), level 2 orders the three blocks of a PE row over its taps
(bank rotation, ``flip``). Odd-even splitting of stride-2 kernels needs no network here: the PE's windows do it.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import PE_ROWS, PE_TAPS, WEIGHT_BANKS, Config
from gradloom.contracts.engines import load_channels
from gradloom.contracts.isa import Dest, Opcode, Pattern
from gradloom.rtl.ccore.banks import WeightBanks
from gradloom.rtl.ccore.row_sequencer import CONV_BITS
from gradloom.rtl.command import decode
from gradloom.rtl.memory_path.buses import LoadBus
from gradloom.rtl.pint import CODE_BITS

__all__ = ["WeightNetwork"]


class WeightNetwork(wiring.Component):
    """Fetch the weights of step after step, and in a step of lap after lap, into the shadow registers of all PEs, 3 cycles each.

    A step here is a lap of a step of the command. A step's fetch begins in the cycle after the previous step's ``swap`` token,
    whatever command that belonged to, and ``ready`` is high from the third fetch on: with the network one cycle shorter than the
    input path (:class:`gradloom.rtl.ccore.input_network.InputNetwork`)
    the shadow registers (:class:`gradloom.rtl.ccore.window_registers.WeightRegisters`) are whole when the token arrives and are not
    overwritten before it has. So swap tokens are at least 3 cycles apart.

    Members
    -------
    cmd : ``In(CONV_BITS)``
        CONV command, stable from ``start`` until ``free``.
    start : ``In(1)``
        First cycle of a legal command (not ``wg``), while ``free``.
    free : ``Out(1)``
        The weights of every step have been fetched; those of the last one may still wait for their swap.
    swap : ``In(1)``
        The first token of a step is issued.
    ready : ``Out(1)``
        That token may be issued.
    load : ``In(LoadBus).array(n)``
    wl : ``Out(3)``
        Shadow load strobes of the PE rows.
    w : ``Out(ArrayLayout(ArrayLayout(8, 3 cols), clusters))``
        Codes of the weights of the strobed row per cluster, index k * ``cols`` + c.
    fault : ``Out(1)``
        A block beyond the buffer was fetched for a valid tap.
    """

    LATENCY = 2
    """Cycles from a fetch to ``wl``."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({
            "cmd": In(CONV_BITS), "start": In(1), "free": Out(1), "swap": In(1), "ready": Out(1),
            "load": In(LoadBus(config)).array(len(load_channels(config, Dest.WBUF))),
            "wl": Out(PE_ROWS),
            "w": Out(data.ArrayLayout(data.ArrayLayout(CODE_BITS, PE_TAPS * config.cols), config.clusters)),
            "fault": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        cols = config.cols
        f = decode(Opcode.CONV, self.cmd)
        k1 = f.pattern == Pattern.K1
        m.submodules.wbuf = wbuf = WeightBanks(config)
        for bus, inner in zip(self.load, wbuf.load, strict=True):
            wiring.connect(m, wiring.flipped(bus), inner)

        busy = Signal()
        fetching = Signal()
        full = Signal()
        r = Signal(range(PE_ROWS))
        step = Signal(16)
        lap = Signal()
        last_lap = lap == f.lap_end if config.laps > 1 else Const(1)
        base = Array(Signal(16, name=f"base{i}") for i in range(PE_ROWS))
        last_row, finished = Signal(), Signal()
        m.d.comb += [last_row.eq(fetching & (r == PE_ROWS - 1)), finished.eq(last_row & last_lap & (step == (f.steps - 1)[:16])),
                     self.ready.eq(full | last_row), self.free.eq(~busy)]
        with m.If(fetching):
            m.d.sync += r.eq(r + 1)
            with m.If(last_lap):
                m.d.sync += base[r].eq(base[r] + f.wstep)
        with m.If(last_row):
            m.d.sync += [fetching.eq(0), full.eq(1), r.eq(0), lap.eq(lap + 1), busy.eq(~finished)]
            with m.If(last_lap):
                m.d.sync += [step.eq(step + 1), lap.eq(f.lap)]
        with m.If(self.swap):
            m.d.sync += [full.eq(0), fetching.eq(busy & ~finished)]
        with m.If(self.start):
            m.d.sync += [busy.eq(1), fetching.eq(~full | self.swap), step.eq(0), lap.eq(f.lap)]
            for i, offset in enumerate((f.woa0, f.woa1, f.woa2)):
                m.d.sync += base[i].eq(f.wbase + Mux(k1, (0, f.koff, f.koff << 1)[i], offset))

        first_bank = Array((f.wob0, f.wob1, f.wob2, f.wob0))[r]
        limit = Array((f.rlim0, f.rlim1, f.rlim2, f.rlim0))[r]
        m.d.comb += [wbuf.lap.eq(lap), wbuf.transpose.eq(f.transpose)]
        for b in range(WEIGHT_BANKS):
            m.d.comb += wbuf.addr[b].eq(base[r] + (~k1 & (first_bank > b)))

        # Level 2 comes first: three blocks to one, then the exchange of channels, each a LUT a bit.
        strobe = Signal(PE_ROWS)
        transpose = Signal(reset_less=True)
        flip = f.flip & ~k1
        beyond = Signal(WEIGHT_BANKS, reset_less=True)
        m.d.sync += [
            strobe.eq(Cat(fetching & (r == i) for i in range(PE_ROWS))), transpose.eq(f.transpose),
            beyond.eq(Cat(wbuf.addr[b] >= config.wbuf_depth for b in range(WEIGHT_BANKS)))]
        m.d.sync += self.wl.eq(strobe)

        faults = []
        for k in range(PE_TAPS):
            block, none = Signal(2, name=f"block{k}"), WEIGHT_BANKS
            place = Mux(flip, PE_TAPS - 1 - k, k)
            with m.Switch(Mux(k1, 0, first_bank) + place):
                for total in range(2 * PE_TAPS):
                    with m.Case(total):
                        m.d.comb += block.eq(total % WEIGHT_BANKS)
            chosen = Signal(2, name=f"chosen{k}", reset_less=True)
            m.d.sync += chosen.eq(Mux((f.nk > k) & Mux(k1, step < limit, f.nr > r), block, none))
            straight = Signal(len(wbuf.q[0]), name=f"straight{k}")
            tap_beyond = Signal(name=f"tap_beyond{k}")
            with m.Switch(chosen):
                for b in range(WEIGHT_BANKS):
                    with m.Case(b):
                        m.d.comb += [straight.eq(wbuf.q[b]), tap_beyond.eq(beyond[b])]
            faults.append(tap_beyond)
            exchanged = Cat(straight.word_select((quadrant * cols + gin) * cols + gout, 8)
                            for quadrant in range(config.laps) for gout in range(cols) for gin in range(cols))
            codes = Signal(len(straight), name=f"codes{k}", reset_less=True)
            m.d.sync += codes.eq(Mux(transpose, exchanged, straight))
            for cluster in range(config.clusters):
                m.d.comb += [self.w[cluster][k * cols + c].eq(codes.word_select(cluster * cols + c, CODE_BITS))
                             for c in range(cols)]
        m.d.sync += self.fault.eq(strobe.any() & Cat(faults).any())
        return m
