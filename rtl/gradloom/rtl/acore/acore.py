"""The auxiliary core: everything of a training step that is not a convolution (ETA, section IV-C, figure 10).

A RUN passes three stages, each of which may hold a command: the first pass over its planes (:mod:`gradloom.rtl.acore.first_pass`),
set-up and scalars (:mod:`gradloom.rtl.acore.scalar_stage`), and the sweep through the lanes (:mod:`gradloom.rtl.acore.sweep`,
:mod:`gradloom.rtl.acore.lanes`). Commands stay in order.
"""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Opcode, PsumLayout, XSource
from gradloom.contracts.microcode import MICRO_BITS, MICRO_WORDS, Kind
from gradloom.contracts.microprograms import WORDS
from gradloom.contracts.pipeline import RUNS_IN_FLIGHT
from gradloom.rtl.acore.buffers import Buffers
from gradloom.rtl.acore.first_pass import FirstPass
from gradloom.rtl.acore.lanes import Lanes
from gradloom.rtl.acore.micro_layout import MicroLayout
from gradloom.rtl.acore.scalar_stage import ScalarStage
from gradloom.rtl.acore.softmax import Softmax
from gradloom.rtl.acore.sweep import Sweep
from gradloom.rtl.command import CommandPort, decode
from gradloom.rtl.core_reads import GradientRead, PlaneSumRead, PsumRead
from gradloom.rtl.memories import make_memory
from gradloom.rtl.memory_path.buses import LoadBus, StoreBus
from gradloom.rtl.registers.register_ports import Hyperparameters
from gradloom.rtl.tensor_ports import ExponentRead, SeedRead, StatisticUpdate

__all__ = ["ACore"]


class ACore(wiring.Component):
    """Executes RUN, UCODE and SOFTMAX.

    The sweep of a command takes one cycle a beat (pooling: one a tap); the next one's begins 2 cycles later if its first two
    stages are done by then. First pass: one cycle a beat and 10. UCODE and SOFTMAX wait until no other command is under way.

    Members
    -------
    port : ``In(CommandPort(tail=True))``
        ``free``: the first stage is.
    load : ``In(LoadBus).array(load_channels)``, store ``In(StoreBus).array(store_channels)``
    psums : ``Out(PsumRead(config))``, gradients : ``Out(GradientRead(config))``, plane_sums : ``Out(PlaneSumRead(config))``
        Reads of the C-Core's results.
    exponents : ``Out(ExponentRead())``, seeds : ``Out(SeedRead())``, statistics : ``Out(StatisticUpdate())``
    hyper : ``In(Hyperparameters())``
    """

    IN_FLIGHT = RUNS_IN_FLIGHT
    """One command in each of the first two stages, one that is issued and one that leaves the lanes."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({
            "port": In(CommandPort(tail=True)), "load": In(LoadBus(config)).array(config.load_channels),
            "store": In(StoreBus(config)).array(config.store_channels),
            "psums": Out(PsumRead(config)), "gradients": Out(GradientRead(config)), "plane_sums": Out(PlaneSumRead(config)),
            "exponents": Out(ExponentRead()), "seeds": Out(SeedRead()), "statistics": Out(StatisticUpdate()),
            "hyper": In(Hyperparameters())})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        m.submodules.buffers = self.buffers = Buffers(config)
        for outer, inner in ((self.load, self.buffers.load), (self.store, self.buffers.store)):
            for bus, inner_bus in zip(outer, inner, strict=True):
                connect(m, flipped(bus), inner_bus)
        m.submodules.first = self.first = FirstPass(config, decode(Opcode.RUN, self.port.cmd))
        m.submodules.prepare = self.prepare = ScalarStage(config)
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
        connect(m, first.reads, buffers.first)
        connect(m, self.sweep.use, first.sweep)
        connect(m, prepare.gradient_sums, first.gradient_sums)
        connect(m, prepare.parameters, buffers.parameters)
        connect(m, prepare.parameter_writes, buffers.parameter_writes)
        connect(m, lanes.planes, prepare.planes)
        for inner, outer in ((prepare.plane_sums, self.plane_sums), (prepare.exponents, self.exponents),
                             (prepare.seeds, self.seeds), (prepare.hyper, self.hyper)):
            connect(m, inner, flipped(outer))
        # Commands between the second stage and their done; at most two, the lanes take 17 cycles at least from one's to the next's.
        under_way = Signal(3)
        m.d.sync += under_way.eq(under_way + (prepare.o.valid & prepare.o.ready) - lanes.done)
        m.d.comb += prepare.empty.eq(under_way == 0)

    def _third_stage(self, m: Module) -> None:
        sweep, lanes, buffers, softmax = self.sweep, self.lanes, self.buffers, self.softmax
        connect(m, self.prepare.o, sweep.i)
        connect(m, sweep.addresses, buffers.addresses)
        connect(m, buffers.streams, lanes.streams)
        connect(m, lanes.results, buffers.results)
        for inner, outer in ((sweep.psums, self.psums.request), (sweep.gradients, self.gradients.request),
                             (lanes.hyper, self.hyper), (lanes.statistics, self.statistics)):
            connect(m, inner, flipped(outer))
        m.d.comb += [lanes.go.eq(sweep.go), lanes.present.eq(sweep.present), lanes.issue.eq(sweep.issue),
                     lanes.psums.eq(self.psums.data), lanes.gradients.eq(self.gradients.data)]
        with m.If(softmax.oa.we):
            oa = buffers.results.oa
            m.d.comb += [oa.we.eq((1 << self.config.turns) - 1), oa.addr.eq(softmax.oa.addr), oa.data.eq(softmax.oa.data)]

    def _softmax(self, m: Module) -> None:
        """The unit works when the lanes are empty; then it alone reads LOGIT and writes OA."""
        softmax, buffers, prepare, lanes = self.softmax, self.buffers, self.prepare, self.lanes
        connect(m, softmax.logits, buffers.logits)
        connect(m, softmax.labels, buffers.labels)
        m.d.comb += [
            softmax.port.start.eq(prepare.softmax_start), softmax.port.cmd.eq(prepare.present),
            prepare.softmax_done.eq(softmax.port.done),
            self.port.done.eq(lanes.done | prepare.done | softmax.port.done),
            self.port.fault.eq(lanes.fault | prepare.fault | softmax.port.fault),
        ]
