"""The auxiliary core: everything of a training step that is not a convolution (ETA, section IV-C, figure 10).

A RUN passes three stages, each of which may hold a command: the first pass over its planes (:mod:`gradloom.rtl.acore.first_pass`),
set-up and scalars (:mod:`gradloom.rtl.acore.prepare`), and the sweep through the lanes (:mod:`gradloom.rtl.acore.sweep`,
:mod:`gradloom.rtl.acore.lanes`). Commands stay in order.
"""

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Opcode, PsumLayout, XSource
from gradloom.contracts.microcode import MICRO_BITS, MICRO_WORDS, Kind
from gradloom.contracts.microprograms import WORDS
from gradloom.contracts.pipeline import RUNS_IN_FLIGHT
from gradloom.rtl.acore.buffers import Buffers
from gradloom.rtl.acore.first_pass import FirstPass
from gradloom.rtl.acore.lanes import Lanes
from gradloom.rtl.acore.micro_layout import MicroLayout
from gradloom.rtl.acore.outputs import OUTPUTS
from gradloom.rtl.acore.prepare import Prepare
from gradloom.rtl.acore.softmax import Softmax
from gradloom.rtl.acore.sweep import Sweep
from gradloom.rtl.command import CommandPort, decode
from gradloom.rtl.memories import make_memory
from gradloom.rtl.memory_path.buses import LoadBus, StoreBus

__all__ = ["ACore"]

LANES = 2


class ACore(wiring.Component):
    """Executes RUN, UCODE and SOFTMAX.

    The sweep of a command takes one cycle a beat (pooling: one a tap); the next one's begins 2 cycles later if its first two
    stages are done by then. First pass: one cycle a beat and 10. UCODE and SOFTMAX wait until no other command is under way.

    Members
    -------
    port : ``In(CommandPort(tail=True))``
        ``free``: the first stage is.
    load : ``In(LoadBus).array(load_channels)``, store ``In(StoreBus).array(store_channels)``
    prd_* : partial sums from the C-Core, ``prd_en``, ``prd_half``, ``prd_wpu 2``, ``prd_bank0 2``, ``prd_addr0 16``,
        ``prd_bank1 2``, ``prd_addr1 16`` -> ``prd_data[lane][channel]`` two cycles later.
    drd_* : weight gradients, ``drd_en``, ``drd_addr 16`` -> ``drd_data[lane][channel]`` two cycles later. ``drd_wait``: not in the
        next cycle.
    srd_* : sums of magnitudes, ``srd_en``, ``srd_half``, ``srd_k 2``, ``srd_plane 8`` -> ``srd_data[channel]`` two cycles later.
    exp_en, exp_tid : ``Out(1)``, ``Out(11)`` -> exp_e ``In(signed(16))`` in the next cycle.
    seed_en, seed_tid : -> seed_value ``In(32)`` in the next cycle.
    stat_valid, stat_tid, stat_value : ``Out``
        OR ``stat_value`` (64 bits) into the tensor's statistic.
    lm, momentum : ``In(8)``
    decay_off : ``In(1)``
        Weight decay is off (n = 255).
    """

    IN_FLIGHT = RUNS_IN_FLIGHT
    """One command in each of the first two stages, one that is issued and one that leaves the lanes."""

    def __init__(self, config: Config) -> None:
        self.config = config
        group = config.group
        super().__init__({
            "port": In(CommandPort(tail=True)), "load": In(LoadBus(config)).array(config.load_channels),
            "store": In(StoreBus(config)).array(config.store_channels),
            "prd_en": Out(1), "prd_half": Out(1), "prd_wpu": Out(2), "prd_bank0": Out(2), "prd_addr0": Out(16),
            "prd_bank1": Out(2), "prd_addr1": Out(16),
            "prd_data": In(ArrayLayout(ArrayLayout(signed(config.psum_width), group), LANES)),
            "drd_en": Out(1), "drd_addr": Out(16), "drd_wait": In(1),
            "drd_data": In(ArrayLayout(ArrayLayout(signed(config.wg_width), group), LANES)),
            "srd_en": Out(1), "srd_half": Out(1), "srd_k": Out(2), "srd_plane": Out(8), "srd_data": In(ArrayLayout(48, group)),
            "exp_en": Out(1), "exp_tid": Out(11), "exp_e": In(signed(16)),
            "seed_en": Out(1), "seed_tid": Out(11), "seed_value": In(32),
            "stat_valid": Out(1), "stat_tid": Out(11), "stat_value": Out(64),
            "lm": In(8), "momentum": In(8), "decay_off": In(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        m.submodules.buffers = self.buffers = Buffers(config)
        for outer, inner in ((self.load, self.buffers.load), (self.store, self.buffers.store)):
            for bus, inner_bus in zip(outer, inner, strict=True):
                wiring.connect(m, wiring.flipped(bus), inner_bus)
        m.submodules.first = self.first = FirstPass(config, decode(Opcode.RUN, self.port.cmd))
        m.submodules.prepare = self.prepare = Prepare(config)
        m.submodules.sweep = self.sweep = Sweep(config)
        m.submodules.lanes = self.lanes = Lanes(config)
        m.submodules.softmax = self.softmax = Softmax(config)
        self._first_stage(m)
        self._second_stage(m)
        self._third_stage(m)
        self._softmax(m)
        return m

    def _first_stage(self, m: Module) -> None:
        """Accepts commands; the first microinstruction says whether there is a first pass."""
        first, prepare, depth = self.first, self.prepare, self.config.microcode_depth
        stored = [WORDS[i:i + MICRO_WORDS] for i in range(0, len(WORDS), MICRO_WORDS)]
        init = [sum(word << (32 * i) for i, word in enumerate(micro)) for micro in stored]
        m.submodules.program = program = make_memory(MICRO_BITS, depth, self.config.lutram_bits, init[:depth])
        fetch, write = program.read_port(), program.write_port(granularity=32)
        run = decode(Opcode.RUN, self.port.cmd)
        fetching = Signal()
        micro = MicroLayout()(fetch.data)
        is_run = self.port.cmd[:8] == Opcode.RUN
        legal = Signal()
        m.d.comb += [
            fetch.addr.eq(Mux(fetching, run.uprog, prepare.micro_addr)), prepare.micro_grant.eq(~fetching),
            prepare.micro_data.eq(fetch.data), write.addr.eq(prepare.micro_waddr), write.en.eq(prepare.micro_we),
            write.data.eq(prepare.micro_word.replicate(MICRO_BITS // 32)),
            legal.eq((is_run & ~self._illegal(run)) | (self.port.cmd[:8] == Opcode.UCODE) | (self.port.cmd[:8] == Opcode.SOFTMAX)),
            prepare.cmd.eq(self.port.cmd), prepare.slot.eq(self.port.slot), prepare.legal.eq(legal),
            self.port.tail_at.eq(prepare.tail_at), prepare.tail.eq(self.port.tail), first.keep.eq(micro.keep),
            first.take.eq(prepare.valid & prepare.ready),
        ]
        with m.FSM(name="accept"):
            with m.State("IDLE"):
                m.d.comb += self.port.free.eq(1)
                with m.If(self.port.start):
                    m.next = "PASS"
                    with m.If(is_run & legal):
                        m.next = "FETCH"
            with m.State("FETCH"):
                m.d.comb += fetching.eq(1)
                m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += first.start.eq(micro.kind == Kind.SUMS)
                m.next = "PASS"
            with m.State("PASS"):
                m.d.comb += prepare.valid.eq(first.ready)
                with m.If(first.take):
                    m.next = "IDLE"

    def _illegal(self, run) -> Value:
        empty = (run.pkern == 0) | (run.pstride == 0) | (run.pyi == 0) | (run.pxi == 0)
        pooled = (run.pool == 3) | ((run.pool != 0) & empty)
        kernel1 = (run.layout == PsumLayout.K1) | (run.layout == PsumLayout.K1_UP)
        partial = (run.xsrc == XSource.PSUM) & ((run.pw0 >= self.config.wpus) | (kernel1 & (run.pk == 3)))
        weights = (run.xsrc == XSource.DW) & ((run.nr == 0) | (run.nk == 0))
        depth = self.config.microcode_depth
        return ((run.planes == 0) | (run.planes > self.config.max_planes) | (run.nb == 0) | (run.xe == 0) | (run.xsrc == 3)
                | (run.uprog >= depth if depth < 1024 else 0) | pooled | partial | weights)

    def _second_stage(self, m: Module) -> None:
        first, prepare, lanes, buffers = self.first, self.prepare, self.lanes, self.buffers
        for name in ("aa", "ab", "am"):
            m.d.comb += [getattr(buffers, f"first_{name}_addr").eq(getattr(first, f"{name}_addr")),
                         getattr(first, f"{name}_data").eq(getattr(buffers, f"first_{name}_data"))]
        m.d.comb += [getattr(first, theirs).eq(getattr(self.sweep, ours))
                     for theirs, ours in (("taken", "reads"), ("both", "both"), ("aa_odd", "aa_odd"), ("ab_odd", "ab_odd"))]
        m.d.comb += [getattr(self, name).eq(getattr(prepare, name)) for name in (
            "srd_en", "srd_half", "srd_k", "srd_plane", "exp_en", "exp_tid", "seed_en", "seed_tid")]
        m.d.comb += [getattr(prepare, name).eq(getattr(self, name))
                     for name in ("srd_data", "exp_e", "seed_value", "lm", "momentum")]
        m.d.comb += [
            first.plane.eq(prepare.plane), prepare.sums.eq(first.sums), prepare.totals.eq(first.totals),
            buffers.p_addr.eq(prepare.p_addr), prepare.p_data.eq(buffers.p_data), prepare.p_free.eq(buffers.p_free),
            buffers.p_we.eq(Mux(prepare.put, prepare.put_channel, 0)), buffers.p_waddr.eq(prepare.put_addr),
            buffers.p_wdata.eq(prepare.put_data), prepare.put_ready.eq(buffers.p_ready),
            prepare.at.eq(lanes.at), lanes.planes.eq(prepare.planes),
        ]
        if self.config.apu_channels > 1:
            m.d.comb += [first.channel.eq(prepare.sums_channel), first.total_channel.eq(prepare.total_channel)]
        # Commands between the second stage and their done; at most two, the lanes take 17 cycles at least from one's to the next's.
        under_way = Signal(3)
        m.d.sync += under_way.eq(under_way + (prepare.o.valid & prepare.o.ready) - lanes.done)
        m.d.comb += prepare.empty.eq(under_way == 0)

    def _third_stage(self, m: Module) -> None:
        sweep, lanes, buffers, softmax = self.sweep, self.lanes, self.buffers, self.softmax
        wiring.connect(m, self.prepare.o, sweep.i)
        m.d.comb += [getattr(self, name).eq(getattr(sweep, name)) for name in (
            "prd_en", "prd_half", "prd_wpu", "prd_bank0", "prd_addr0", "prd_bank1", "prd_addr1", "drd_en", "drd_addr")]
        m.d.comb += [getattr(lanes, name).eq(getattr(sweep, name)) for name in ("go", "present", "issue")]
        m.d.comb += [getattr(lanes, name).eq(getattr(self, name))
                     for name in ("prd_data", "drd_data", "lm", "momentum", "decay_off")]
        m.d.comb += [getattr(self, name).eq(getattr(lanes, name)) for name in ("stat_valid", "stat_tid", "stat_value")]
        m.d.comb += [buffers.streams_en.eq(sweep.streams_en), buffers.rests_en.eq(sweep.rests_en), sweep.drd_wait.eq(self.drd_wait)]
        for name in ("aa", "rest", "ab", "am", "xin"):
            m.d.comb += [getattr(buffers, f"{name}_addr").eq(getattr(sweep, f"{name}_addr")),
                         getattr(lanes, f"{name}_data").eq(getattr(buffers, f"{name}_data"))]
        for name in (*OUTPUTS, "logit"):
            for part in ("we", "waddr", "wdata"):
                m.d.comb += getattr(buffers, f"{name}_{part}").eq(getattr(lanes, f"{name}_{part}"))
        with m.If(softmax.oa_we):
            m.d.comb += [buffers.oa_we.eq((1 << self.config.turns) - 1), buffers.oa_waddr.eq(softmax.oa_addr),
                         buffers.oa_wdata.eq(softmax.oa_data)]

    def _softmax(self, m: Module) -> None:
        """The unit works when the lanes are empty; then it alone reads LOGIT and writes OA."""
        softmax, buffers, prepare, lanes = self.softmax, self.buffers, self.prepare, self.lanes
        m.d.comb += [
            softmax.port.start.eq(prepare.softmax_start), softmax.port.cmd.eq(prepare.present),
            prepare.softmax_done.eq(softmax.port.done),
            buffers.logit_addr.eq(softmax.lrd_addr), softmax.lrd_free.eq(buffers.logit_free),
            Value.cast(softmax.lrd_data).eq(buffers.logit_data),
            buffers.label_addr.eq(softmax.lab_addr), softmax.lab_data.eq(buffers.label_data),
            self.port.done.eq(lanes.done | prepare.done | softmax.port.done),
            self.port.fault.eq(lanes.fault | prepare.fault | softmax.port.fault),
        ]
