"""C-Core: the convolution engine. Buffers, networks, PE array, partial sums and weight-gradient drain (ETA, section IV-B).

Tokens leave :class:`gradloom.rtl.colwalk.ColumnWalk` at up to one a cycle; every part behind it is a pipeline of fixed latency.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl import emit
from gradloom.rtl.buses import LoadBus
from gradloom.rtl.colwalk import ColumnWalk
from gradloom.rtl.command import CommandPort, decode
from gradloom.rtl.config import Config
from gradloom.rtl.drain import Drain
from gradloom.rtl.feed import Feed
from gradloom.rtl.isa import Opcode, Pattern
from gradloom.rtl.psum import PsumControl, PsumStore
from gradloom.rtl.rowwalk import CONV_BITS, RowWalk
from gradloom.rtl.weight_network import WeightNetwork
from gradloom.rtl.wpu import Wpu

__all__ = ["FAULT_ILLEGAL", "FAULT_PSUM", "FAULT_WG", "CCore"]

FAULT_PSUM = 0x10
"""A partial sum overflowed."""
FAULT_WG = 0x11
"""A weight-gradient accumulator, or a sum over WPUs, overflowed."""
FAULT_ILLEGAL = 0x20
"""A command that makes no sense, or that leaves a memory."""


class CCore(wiring.Component):
    """The convolution engine.

    Members
    -------
    port : ``In(CommandPort)``
        CONV commands. ``done``: the last partial sum is written; WG: with ``drain``, the last beat of the DW buffer is
        written; without, the last operand has left the buffers (the accumulators follow in order).
        One fault pulse per command at most.
    load : ``In(LoadBus)``
        Fills IBUF, EBUF and WBUF.
    prd_en, prd_half, prd_wpu, prd_bank0, prd_addr0, prd_bank1, prd_addr1
        Read of partial sums, lane l from bank l; the half must not be the one that a CONV works on.
    prd_data : ``Out(ArrayLayout(ArrayLayout(signed(psum_width), G), 2))``
        2 cycles after ``prd_en``, per lane and output channel.
    drd_en, drd_addr
        Read of the DW buffer.
    drd_data : ``Out(ArrayLayout(ArrayLayout(signed(wg_width), G), 2))``
        2 cycles after ``drd_en``: lane l is output channel 2 b + l of the block, element i input channel i.
    busy : ``Out(1)``
        A command runs.
    mac_use : ``Out(1)``
        A token with useful MACs is issued in this cycle.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        g = config.group
        super().__init__({
            "port": In(CommandPort()), "load": In(LoadBus(config)),
            "prd_en": In(1), "prd_half": In(1), "prd_wpu": In(2), "prd_bank0": In(2), "prd_addr0": In(16),
            "prd_bank1": In(2), "prd_addr1": In(16),
            "prd_data": Out(data.ArrayLayout(data.ArrayLayout(signed(config.psum_width), g), 2)),
            "drd_en": In(1), "drd_addr": In(16),
            "drd_data": Out(data.ArrayLayout(data.ArrayLayout(signed(config.wg_width), g), 2)),
            "busy": Out(1), "mac_use": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        cmd = self.port.cmd[:CONV_BITS]
        f = decode(Opcode.CONV, cmd)

        m.submodules.rows = rows = RowWalk(config)
        m.submodules.columns = columns = ColumnWalk(config)
        m.submodules.feed = feed = Feed(config)
        m.submodules.weights = weights = WeightNetwork(config)
        m.submodules.psum_control = psum_control = PsumControl(config, latency=Feed.LATENCY + Wpu.LATENCY)
        m.submodules.drain = drain = Drain(config)
        assert Feed.LATENCY == WeightNetwork.LATENCY + 1  # the handshake of the shadow weights counts on it

        legal, start = Signal(), Signal()
        m.d.comb += [legal.eq(self._legal(f)), start.eq(self.port.start & legal)]
        token = columns.token
        wiring.connect(m, wiring.flipped(self.load), feed.load)
        wiring.connect(m, wiring.flipped(self.load), weights.load)
        m.d.comb += [
            rows.cmd.eq(cmd), columns.cmd.eq(cmd), feed.cmd.eq(cmd), weights.cmd.eq(cmd), drain.cmd.eq(cmd),
            rows.start.eq(start), weights.start.eq(start & ~f.wg),
            columns.group.eq(rows.group), columns.valid.eq(rows.valid), rows.ready.eq(columns.ready),
            columns.weights.eq(weights.ready), weights.swap.eq(token.swap),
            feed.token.eq(token), psum_control.token.eq(token), psum_control.pattern.eq(f.pattern),
            psum_control.half.eq(f.half), self.mac_use.eq(token.use)]

        psum_overflow, wg_overflow = self._array(m, feed, weights, psum_control, drain)

        # A command ends behind its last token: WG without drain when the buffers are read, with drain by the drain.
        bad = Signal()
        read_out = Signal(Feed.LATENCY)
        settled = Signal(Feed.LATENCY + Wpu.SNAP_LATENCY)
        last_wg = token.last & token.wg
        m.d.sync += [bad.eq(self.port.start & ~legal), read_out.eq(Cat(last_wg & ~f.drain, read_out)),
                     settled.eq(Cat(last_wg & f.drain, settled))]
        m.d.comb += [drain.start.eq(settled[-1]),
                     self.port.done.eq(bad | psum_control.done | drain.done | read_out[-1])]
        with m.If(self.port.start):
            m.d.sync += self.busy.eq(1)
        with m.Elif(self.port.done):
            m.d.sync += self.busy.eq(0)

        m.d.comb += [drain.en.eq(self.drd_en), drain.addr.eq(self.drd_addr), self.drd_data.eq(drain.q)]

        faulted = Signal()
        code = Signal(8)
        clash = self.prd_en & psum_control.reading & (self.prd_half == f.half)
        with m.If(bad | feed.fault | weights.fault | psum_control.fault | drain.fault | clash):
            m.d.comb += code.eq(FAULT_ILLEGAL)
        with m.Elif(psum_overflow):
            m.d.comb += code.eq(FAULT_PSUM)
        with m.Elif(wg_overflow | drain.ovf):
            m.d.comb += code.eq(FAULT_WG)
        m.d.comb += self.port.fault.eq(Mux(faulted, 0, code))
        with m.If(self.port.start):
            m.d.sync += faulted.eq(0)
        with m.Elif(code != 0):
            m.d.sync += faulted.eq(1)
        return m

    def _legal(self, f):
        """A command whose loops and bank counters make sense; addresses are checked where they are used."""
        k1 = f.pattern == Pattern.K1
        modulus = Mux(k1, self.config.wpus, self.config.row_banks)
        return ((f.pattern != 3) & (f.units != 0) & (f.steps != 0) & (f.cols != 0) & (f.upi != 0) & (f.nr != 0)
                & (f.nk != 0) & (f.ib0 < modulus) & (f.sb < modulus) & (f.cb < modulus)
                & ~(f.wg & (f.pattern == Pattern.BP2)))

    def _array(self, m: Module, feed: Feed, weights: WeightNetwork, psum_control: PsumControl, drain: Drain):
        """Wpus and partial sums of all clusters and WPUs. Returns their registered overflow flags (PSUM, WG)."""
        config = self.config
        shape = (config.cols, config.mac, config.psum_width, config.wg_width)
        lanes = [[Signal(signed(config.psum_width), name=f"prd{lane}_{c}", reset_less=True)
                  for c in range(config.clusters)] for lane in range(2)]
        wpu1 = Signal(2)
        m.d.sync += wpu1.eq(self.prd_wpu)
        overflow = {"psum": [], "wg": []}
        for cluster in range(config.clusters):
            picks = ([], [])
            for w in range(config.wpus):
                wpu = emit.add(m, f"wpu_{cluster}_{w}", "gradloom_wpu", Wpu(config), shape)
                m.d.comb += [wpu.ctl.eq(feed.ctl), wpu.x.eq(feed.x[w]), wpu.e.eq(feed.e[w][cluster]),
                             wpu.wl.eq(weights.wl), wpu.w.eq(weights.w[cluster]), wpu.dsel.eq(drain.dsel),
                             drain.d[cluster][w].eq(wpu.d)]
                store = emit.add(m, f"psum_{cluster}_{w}", "gradloom_psum", PsumStore(config),
                                 (config.psum_width, config.psum_depth))
                m.d.comb += [
                    store.control.eq(psum_control.control), store.enable.eq(psum_control.mask[w]), store.sums.eq(wpu.out),
                    store.read.en.eq(self.prd_en & (self.prd_wpu == w)), store.read.half.eq(self.prd_half),
                    store.read.bank0.eq(self.prd_bank0), store.read.addr0.eq(self.prd_addr0),
                    store.read.bank1.eq(self.prd_bank1), store.read.addr1.eq(self.prd_addr1)]
                for lane in range(2):
                    picks[lane].append(Mux(wpu1 == w, store.q[lane], 0))
                overflow["psum"].append(store.ovf)
                overflow["wg"].append(wpu.ovf)
            for lane, terms in enumerate(picks):
                total = terms[0]
                for term in terms[1:]:
                    total = total | term
                m.d.sync += lanes[lane][cluster].eq(total)
                m.d.comb += self.prd_data[lane][cluster].eq(lanes[lane][cluster])
        flags = []
        for name, values in overflow.items():
            flag = Signal(name=f"{name}_overflow")
            m.d.sync += flag.eq(Cat(values).any())
            flags.append(flag)
        return flags
