"""C-Core: the convolution engine. Buffers, networks, PE array, partial sums and weight-gradient drain (ETA, section IV-B).

Tokens leave :class:`gradloom.rtl.ccore.column_sequencer.ColumnSequencer` at up to one a cycle; every part after it is a pipeline
of fixed latency.
"""

import itertools

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.contracts.config import Config
from gradloom.contracts.engines import load_channels
from gradloom.contracts.isa import Dest, Opcode, Pattern
from gradloom.contracts.pipeline import CONVOLUTIONS_IN_FLIGHT
from gradloom.rtl import shared_module
from gradloom.rtl.ccore.cluster import Cluster
from gradloom.rtl.ccore.column_sequencer import ColumnSequencer
from gradloom.rtl.ccore.drain import Drain, Gather
from gradloom.rtl.ccore.input_network import InputNetwork
from gradloom.rtl.ccore.mac import clusters_of
from gradloom.rtl.ccore.plane_l1_sums import PlaneSumControl
from gradloom.rtl.ccore.psum import HALVES, PsumControl
from gradloom.rtl.ccore.row_sequencer import CONV_BITS, RowSequencer
from gradloom.rtl.ccore.weight_network import WeightNetwork
from gradloom.rtl.ccore.window_registers import WindowRegisters
from gradloom.rtl.ccore.wpu import Wpu
from gradloom.rtl.command import CommandPort, decode
from gradloom.rtl.core_reads import LANES, GradientRead, PlaneSumRead, PsumRead
from gradloom.rtl.fifo import Fifo
from gradloom.rtl.memory_path.buses import LoadBus
from gradloom.rtl.registers.register_ports import MacUse

__all__ = ["FAULT_ILLEGAL", "FAULT_PSUM", "FAULT_WG", "CCore"]

FAULT_PSUM = 0x10
"""A partial sum overflowed."""
FAULT_WG = 0x11
"""A weight-gradient accumulator, or a sum over WPUs, overflowed."""
FAULT_ILLEGAL = 0x20
"""A command that makes no sense, or that leaves a memory."""


class _Kind(enum.Enum, shape=2):
    """What ends a command."""

    PASS = 0
    DRAIN = 1
    ILLEGAL = 2


class CCore(wiring.Component):
    """The convolution engine.

    Members
    -------
    port : ``In(CommandPort)``
        CONV commands, up to ``IN_FLIGHT`` at a time: tokens of the next command follow those of the present one. ``done``: the
        last partial sum and the first-pass sums are written, resp. the last operand is accumulated (WG); with ``drain``,
        the last beat is in the DW buffer. A fault of a command comes before its ``done`` or with it; while commands are under
        way only the first fault is reported.
    load : ``In(LoadBus).array(load_channels)``
        Fill IBUF, EBUF and WBUF (:data:`gradloom.contracts.engines.LOAD_MAP`).
    psums : ``In(PsumRead(config))``, gradients : ``In(GradientRead(config))``, plane_sums : ``In(PlaneSumRead(config))``
        The A-Core's reads of partial sums, of the weight-gradient buffer and of first-pass sums.
    busy : ``Out(1)``
        A command is under way.
    macs : ``Out(MacUse())``
        For the counters.
    """

    IN_FLIGHT = CONVOLUTIONS_IN_FLIGHT
    """Commands under way: one drains, one is in the array, one waits for the walk."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({
            "port": In(CommandPort()), "load": In(LoadBus(config)).array(config.load_channels),
            "psums": In(PsumRead(config)), "gradients": In(GradientRead(config)), "plane_sums": In(PlaneSumRead(config)),
            "busy": Out(1), "macs": Out(MacUse())})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        cmd = self.port.cmd[:CONV_BITS]
        f = decode(Opcode.CONV, cmd)

        latency = InputNetwork.LATENCY + Wpu.latency(config.cols)
        m.submodules.rows = rows = RowSequencer(config)
        m.submodules.columns = columns = ColumnSequencer(config)
        m.submodules.feed = feed = InputNetwork(config)
        m.submodules.weights = weights = WeightNetwork(config)
        m.submodules.psum_control = psum_control = PsumControl(config, latency=latency)
        m.submodules.sum_control = sum_control = PlaneSumControl(config, latency=latency)
        m.submodules.drain = drain = Drain(config, latency=InputNetwork.LATENCY + Wpu.SNAP_LATENCY)
        m.submodules.order = order = Fifo(_Kind, self.IN_FLIGHT)
        assert InputNetwork.LATENCY == WeightNetwork.LATENCY + 1  # the handshake of the shadow weights counts on it

        legal, start = Signal(), Signal()
        # Accumulators are lost when a command of another kind sweeps the array, so one that adds to them must follow at once.
        adding = Signal()
        m.d.comb += [legal.eq(self._legal(f) & ~(f.wg & ~f.clear & ~adding)), start.eq(self.port.start & legal)]
        with m.If(start):
            m.d.sync += adding.eq(f.wg)
        token = columns.token
        for bus, inner in zip(self.load, feed.load, strict=True):
            connect(m, flipped(bus), inner)
        for bus, channel in zip(weights.load, load_channels(config, Dest.WBUF), strict=True):
            connect(m, flipped(self.load[channel]), bus)
        connect(m, flipped(self.psums.request), psum_control.read)
        connect(m, flipped(self.plane_sums.request), sum_control.request)
        connect(m, flipped(self.gradients), drain.read)
        m.d.comb += [
            rows.cmd.eq(cmd), weights.cmd.eq(cmd), rows.start.eq(start), weights.start.eq(start & ~f.wg),
            self.port.free.eq(rows.free & weights.free & order.i.ready),
            columns.group.eq(rows.group), columns.valid.eq(rows.valid), rows.ready.eq(columns.ready),
            columns.weights.eq(weights.ready), weights.swap.eq(token.swap), columns.drained.eq(drain.ready),
            *(part.token.eq(token) for part in (feed, psum_control, sum_control, drain)),
            self.macs.use.eq(token.use), self.macs.last.eq(token.last), self.macs.tag.eq(token.tag)]
        psum_overflow, wg_overflow = self._array(m, feed, weights, psum_control, sum_control, drain)

        # Three cycles behind the last sums: they are written, and an overflow of any of them is known.
        assert Wpu.ovf_latency(config.cols) + 1 <= Wpu.latency(config.cols) + 3
        passed = Signal(latency + 3)
        m.d.sync += passed.eq(Cat(token.last & ~token.snap, passed))
        finished = self._in_order(m, order, f, legal, {_Kind.PASS: passed[-1], _Kind.DRAIN: drain.done})

        faulted = Signal()
        code = Signal(8)
        bad = finished & (order.o.payload == _Kind.ILLEGAL)
        illegal = (bad, feed.fault, weights.fault, psum_control.fault, psum_control.clash, sum_control.fault, drain.fault)
        with m.If(Cat(illegal).any()):
            m.d.comb += code.eq(FAULT_ILLEGAL)
        with m.Elif(psum_overflow):
            m.d.comb += code.eq(FAULT_PSUM)
        with m.Elif(wg_overflow | drain.ovf):
            m.d.comb += code.eq(FAULT_WG)
        m.d.comb += self.port.fault.eq(Mux(faulted, 0, code))
        with m.If(code != 0):
            m.d.sync += faulted.eq(1)
        with m.Elif(~self.busy):
            m.d.sync += faulted.eq(0)
        return m

    def _in_order(self, m: Module, order: Fifo, f, legal: Value, ends: dict["_Kind", Value]) -> Signal:
        """``done`` of the oldest command as soon as one of its kind has ended. Returns the pulse."""
        done, pause = Signal(), Signal()
        m.d.comb += [
            order.i.valid.eq(self.port.start), order.o.ready.eq(done), self.busy.eq(order.o.valid), self.port.done.eq(done),
            order.i.payload.eq(Mux(legal, Mux(f.wg & f.drain, _Kind.DRAIN, _Kind.PASS), _Kind.ILLEGAL))]
        # Two pulses are never in successive cycles.
        m.d.sync += pause.eq(done)
        ended = Signal()
        with m.Switch(order.o.payload):
            for kind, end in ends.items():
                count = Signal(range(self.IN_FLIGHT + 1), name=f"ended_{kind.name.lower()}")
                with m.Case(kind):
                    m.d.comb += ended.eq(end | (count != 0))
                m.d.sync += count.eq(count + end - (done & (order.o.payload == kind)))
            with m.Default():
                m.d.comb += ended.eq(1)
        m.d.comb += done.eq(order.o.valid & ended & ~pause)
        return done

    def _legal(self, f):
        """A command whose loops and bank counters make sense; addresses are checked where they are used."""
        k1 = f.pattern == Pattern.K1
        modulus = Mux(k1, self.config.wpus, self.config.row_banks)
        # Gradients by K3 and K1; rows shared by K3.
        shareable = ((f.pattern == Pattern.K3) & (f.scols != 0) & (f.scols <= f.cols) & (f.sbank < modulus)
                     if self.config.wpus > 1 else 0)
        return ((f.units != 0) & (f.steps != 0) & (f.cols != 0) & (f.upi != 0) & (f.nr != 0)
                & (f.nk != 0) & (f.ib0 < modulus) & (f.sb < modulus) & (f.cb < modulus)
                & ~(f.wg & f.pattern[0]) & (~f.shared | shareable) & self._legal_laps(f))

    def _legal_laps(self, f):
        """Laps that there are; gradients of one at a time, in pairs of beats."""
        if self.config.laps == 1:
            return ~f.lap & ~f.lap_end
        return (f.lap <= f.lap_end) & ~(f.wg & ((f.lap != f.lap_end) | (f.drain & f.dwbase[0])))

    def _array(self, m: Module, feed: InputNetwork, weights: WeightNetwork, psum_control: PsumControl,
               sum_control: PlaneSumControl, drain: Drain) -> list[Signal]:
        """WPUs and clusters. Returns their registered overflow flags (PSUM, WG)."""
        config = self.config
        of_family = () if config.family == "any" else (config.family,)  # names of modules stay what they are
        operands = (config.cols, config.mac, *of_family)
        shape = (*operands, config.psum_width, config.wg_width, *of_family)
        # A read of partial sums, one cycle later: the WPU that it asked for, in its half; none in the other.
        none, request = 3, self.psums.request
        asked = Signal(data.ArrayLayout(2, HALVES), name="asked_wpu", reset_less=True)
        m.d.sync += [asked[h].eq(Mux(request.half == h, request.wpu, none)) for h in range(HALVES)]
        overflow: dict[str, list[Value]] = {"psum": [], "wg": []}
        windows = [shared_module.add(m, f"windows_{w}", "gradloom_windows", WindowRegisters(config), operands)
                   for w in range(config.wpus)]
        for w, unit in enumerate(windows):
            m.d.comb += [unit.x.eq(feed.x[w]), unit.shift.eq(feed.ctl.shift), unit.clear.eq(feed.ctl.clear),
                         unit.sel.eq(feed.ctl.sel)]
        wide = clusters_of(config.mac)
        units = [[shared_module.add(m, f"wpu_{first}_{w}", "gradloom_wpu", Wpu(config), shape) for w in range(config.wpus)]
                 for first in range(0, config.clusters, wide)]
        for c in range(config.clusters):
            cluster = shared_module.add(m, f"cluster_{c}", "gradloom_cluster", Cluster(config),
                                        (*shape, config.wpus, config.psum_depth, config.max_planes))
            m.d.comb += [cluster.load.eq(weights.wl), cluster.w.eq(weights.w[c]), cluster.swap.eq(feed.ctl.swap),
                         cluster.psum_control.eq(psum_control.control), cluster.mask.eq(psum_control.mask),
                         cluster.plane_sum_control.eq(sum_control.control), cluster.plane_sum_read.eq(sum_control.read),
                         cluster.asked.eq(asked), self.plane_sums.data[c].eq(cluster.plane_sum),
                         *(self.psums.data[lane][c].eq(cluster.psums[lane]) for lane in range(LANES))]
            overflow["psum"].append(cluster.overflow)
            for w in range(config.wpus):
                wpu, of_unit = units[c // wide][w], c % wide
                m.d.comb += [wpu.w[of_unit].eq(cluster.active), wpu.e[of_unit].eq(feed.e[w][c]),
                             cluster.sums[w].eq(wpu.out[of_unit])]
                if not of_unit:
                    m.d.comb += [wpu.ctl.eq(feed.ctl), wpu.a.eq(windows[w].a), wpu.ask.eq(drain.ask[c // drain.lanes])]
                    overflow["wg"].append(wpu.ovf)
        self._gather(m, units, drain)
        flags = []
        for name, values in overflow.items():
            flag = Signal(name=f"{name}_overflow")
            m.d.sync += flag.eq(Cat(values).any())
            flags.append(flag)
        return flags

    def _gather(self, m: Module, units: list[list[Wpu]], drain: Drain) -> None:
        """Drain registers of all clusters to the drain, one a lane, WPU and column."""
        config = self.config
        of_family = () if config.family == "any" else (config.family,)
        wide = clusters_of(config.mac)
        for lane, w, c in itertools.product(range(drain.lanes), range(config.wpus), range(config.cols)):
            registers = [register for cluster in range(lane, config.clusters, drain.lanes)
                         for register in units[cluster // wide][w].d[cluster % wide][c]]
            size = len(registers), config.wg_width
            gather = shared_module.add(m, f"gather_{lane}_{w}_{c}", "gradloom_gather", Gather(*size, family=config.family),
                                       (*size, *of_family))
            m.d.comb += [*(gather.i[n].eq(register) for n, register in enumerate(registers)), drain.d[lane][w][c].eq(gather.o)]
