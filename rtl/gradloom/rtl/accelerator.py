"""The whole machine: one AXI4 manager, one AXI4-Lite subordinate, one interrupt, one clock, one reset."""

from amaranth.hdl import Cat, ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from gradloom.rtl import emit
from gradloom.rtl.acore import ACore
from gradloom.rtl.axi import lite_members, read_members, write_members
from gradloom.rtl.axi_read import ReadManager
from gradloom.rtl.axi_write import WriteManager
from gradloom.rtl.ccore import CCore
from gradloom.rtl.config import Config
from gradloom.rtl.control import Control
from gradloom.rtl.counters import Counters
from gradloom.rtl.csr import Csr
from gradloom.rtl.isa import Engine
from gradloom.rtl.loader import Loader
from gradloom.rtl.queue import CommandQueue, command_words
from gradloom.rtl.scale_unit import ScaleUnit
from gradloom.rtl.seed_unit import SeedUnit
from gradloom.rtl.semaphores import Semaphores
from gradloom.rtl.sequencer import Sequencer
from gradloom.rtl.storer import Storer

__all__ = ["Accelerator"]


def _copy(m: Module, source: object, target: object, names: tuple[str, ...]) -> None:
    m.d.comb += [getattr(target, name).eq(getattr(source, name)) for name in names]


class Accelerator(wiring.Component):
    """Sequencer, queues, engines and memories behind their bus interfaces.

    Everything that a fault must bring back to its initial state lives in the clock domain ``engine``: the same clock,
    and a reset that :class:`gradloom.rtl.control.Control` adds to the machine's own. Registers and counters live in
    ``sync``.

    Members
    -------
    m_axi_*
        AXI4 manager, 32-bit addresses, data of one beat (``2 cols`` bytes).
    s_axil_*
        AXI4-Lite subordinate, 32-bit data: the registers of :mod:`gradloom.rtl.regmap`.
    irq : ``Out(1)``
        Level: STATUS.irq and CONTROL.irq_enable.
    events : ``Out(2 * engines)``, only with ``events``
        For simulators: bit 2 n, engine n (in the order of :class:`gradloom.rtl.isa.Engine` without SEQ) starts a command;
        bit 2 n + 1, its oldest command ends.
    """

    def __init__(self, config: Config, *, events: bool = False) -> None:
        self.config = config
        self.shows_events = events
        super().__init__(read_members(config) | write_members(config) | lite_members() | {"irq": Out(1)}
                         | ({"events": Out(2 * (len(Engine) - 1))} if events else {}))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.domains.engine = engine_domain = ClockDomain()
        m.submodules.control = control = Control()
        m.d.comb += [
            engine_domain.clk.eq(ClockSignal()),
            engine_domain.rst.eq(ResetSignal() | control.engine_reset),
        ]
        m.submodules.csr = csr = Csr(config)
        m.submodules.counters = counters = Counters(config)

        core = Module()
        m.submodules.core = DomainRenamer("engine")(core)

        def engine_side(name: str, component: wiring.Component) -> wiring.Component:
            core.submodules[name] = component
            return component

        reads = engine_side("reads", ReadManager(config))
        writes = engine_side("writes", WriteManager(config))
        loader = engine_side("loader", Loader(config))
        storer = engine_side("storer", Storer(config))
        ccore = engine_side("ccore", CCore(config))
        acore = engine_side("acore", ACore(config))
        sequencer = engine_side("sequencer", Sequencer(config))
        semaphores = engine_side("semaphores", Semaphores(len(Engine)))
        scale = engine_side("scale", ScaleUnit(config.tensors))
        seed = engine_side("seed", SeedUnit(config.tensors))
        queues = []
        for engine in Engine:
            if engine != Engine.SEQ:
                overlap = {Engine.LOAD: Loader.IN_FLIGHT, Engine.CCORE: CCore.IN_FLIGHT,
                           Engine.STORE: Storer.IN_FLIGHT}.get(engine, 1)
                size = {"depth": config.queue_words, "words": command_words(engine), "in_flight": overlap}
                queues.append(emit.add(core, f"queue_{engine.name.lower()}", "command_queue", CommandQueue(**size), size))

        self._ports(m, reads, writes, csr)
        connect(m, sequencer.request, reads.request[0])
        connect(m, sequencer.response, reads.response[0])
        connect(m, loader.request, reads.request[1])
        connect(m, loader.response, reads.response[1])
        connect(m, storer.request, writes.request)
        connect(m, storer.data, writes.data)
        m.d.comb += storer.completed.eq(writes.completed)
        for manager in (reads, writes):
            _copy(m, csr, manager, ("window_base", "window_limit"))
            m.d.comb += manager.flush.eq(control.flush)

        # The Sequencer has added the base registers already, in program order.
        m.d.comb += [loader.bases.eq(0), storer.bases.eq(0)]
        self._data_paths(m, loader, storer, ccore, acore, scale, seed, csr)

        for n, (queue, engine) in enumerate(zip(queues, (loader, ccore, acore, storer), strict=True)):
            connect(m, sequencer.queue[n], queue.i)
            connect(m, queue.port, engine.port)
            m.d.comb += [
                sequencer.idle[n].eq(queue.idle),
                semaphores.request[n + 1].eq(queue.request & ~control.halt),
                semaphores.needs[n + 1].eq(queue.needs),
                queue.grant.eq(semaphores.grant[n + 1]),
                semaphores.signal[n + 1].eq(queue.signal),
                control.fault[n].eq(queue.fault),
                control.tag[n + 1].eq(queue.tag),
                control.offset[n + 1].eq(queue.offset),
                counters.busy[n].eq(queue.busy),
                counters.waiting[n].eq(queue.waiting),
                counters.finish[n].eq(queue.busy & queue.port.done),
                counters.tag[n].eq(queue.tag),
            ]
            if self.shows_events:
                m.d.comb += self.events[2 * n:2 * n + 2].eq(Cat(queue.port.start, queue.busy & queue.port.done))
        m.d.comb += [
            semaphores.request[0].eq(sequencer.sem_request & ~control.halt),
            semaphores.needs[0].eq(sequencer.sem_wait),
            sequencer.sem_grant.eq(semaphores.grant[0]),
            semaphores.signal[0].eq(sequencer.sem_signal),
        ]
        self._sequencer(m, sequencer, csr, scale, seed, control)
        self._control(m, control, csr, counters, sequencer, semaphores, reads, writes)
        m.d.comb += [self.irq.eq(control.irq), counters.mac_use.eq(ccore.mac_use)]
        return m

    def _ports(self, m: Module, reads: ReadManager, writes: WriteManager, csr: Csr) -> None:
        for members, owner in ((read_members(self.config), reads), (write_members(self.config), writes),
                               (lite_members(), csr)):
            for name, member in members.items():
                port, inner = getattr(self, name), getattr(owner, name)
                m.d.comb += inner.eq(port) if member.flow == In else port.eq(inner)

    @staticmethod
    def _data_paths(m: Module, loader: Loader, storer: Storer, ccore: CCore, acore: ACore, scale: ScaleUnit,
                    seed: SeedUnit, csr: Csr) -> None:
        for core in (ccore, acore):
            _copy(m, loader.bus, core.load, ("valid", "dest", "bank", "addr", "sub", "data"))
        connect(m, storer.bus, acore.store)
        _copy(m, acore, ccore, ("prd_en", "prd_half", "prd_wpu", "prd_bank0", "prd_addr0", "prd_bank1", "prd_addr1",
                                "drd_en", "drd_addr"))
        _copy(m, ccore, acore, ("prd_data", "drd_data"))
        _copy(m, acore, scale, ("exp_en", "exp_tid", "stat_valid", "stat_tid", "stat_value"))
        _copy(m, csr, acore, ("lm", "momentum", "decay_off"))
        m.d.comb += [
            acore.exp_e.eq(scale.exp_e),
            seed.read_en.eq(acore.seed_en),
            seed.read_tid.eq(acore.seed_tid),
            acore.seed_value.eq(seed.read_value),
        ]

    @staticmethod
    def _sequencer(m: Module, sequencer: Sequencer, csr: Csr, scale: ScaleUnit, seed: SeedUnit,
                   control: Control) -> None:
        _copy(m, csr, sequencer, ("program", "window_base", "window_limit", "base", "step"))
        _copy(m, sequencer, csr, ("loop", "base_write", "base_index", "base_value", "hyper_write", "hyper"))
        m.d.comb += [
            sequencer.last_step.eq(control.last_step),
            control.loop.eq(sequencer.loop),
            control.steps.eq(csr.steps),
            *(getattr(scale, name).eq(getattr(sequencer, f"scale_{name}"))
              for name in ("start", "op", "tid", "target", "f", "value", "clear")),
            sequencer.scale_done.eq(scale.done),
            sequencer.scale_result.eq(scale.value_out),
            seed.begin.eq(sequencer.seed_begin),
            seed.run_seed.eq(csr.seed),
            seed.step.eq(csr.step),
            seed.start.eq(sequencer.seed_start),
            seed.tid.eq(sequencer.scale_tid),
            sequencer.seed_done.eq(seed.done),
            scale.host_tid.eq(csr.exp_tid),
            csr.exp_e.eq(scale.host_e),
            csr.stat.eq(scale.host_stat),
            scale.host_write.eq(csr.exp_write),
            scale.host_value.eq(csr.exp_value),
            scale.host_clear.eq(csr.stat_clear),
        ]

    @staticmethod
    def _control(m: Module, control: Control, csr: Csr, counters: Counters, sequencer: Sequencer,
                 semaphores: Semaphores, reads: ReadManager, writes: WriteManager) -> None:
        _copy(m, csr, control, ("start", "abort", "irq_acknowledge", "irq_enable", "watchdog"))
        _copy(m, control, csr, ("running", "status", "error", "error_offset", "error_state", "cycles"))
        _copy(m, counters, csr, ("totals", "perf_value"))
        _copy(m, csr, counters, ("perf_tag", "perf_table"))
        clear = csr.start & csr.clear
        m.d.comb += [
            csr.position.eq(sequencer.offset),
            control.clear.eq(clear),
            counters.clear.eq(clear),
            control.hold.eq(counters.clearing),
            counters.drop.eq(control.engine_reset),
            sequencer.start.eq(control.seq_start),
            sequencer.halt.eq(control.halt),
            control.seq_done.eq(sequencer.done),
            control.seq_error.eq(sequencer.error),
            control.overflow.eq(semaphores.overflow),
            control.read_error.eq(reads.error),
            control.read_client.eq(reads.error_client),
            control.write_error.eq(writes.error),
            control.idle.eq(reads.idle & writes.idle),
            control.tag[0].eq(sequencer.tag),
            control.offset[0].eq(sequencer.offset),
            control.busy.eq(Cat(~sequencer.waiting, counters.busy)),
            control.waiting.eq(Cat(sequencer.waiting, counters.waiting)),
            control.progress.eq(sequencer.progress | reads.beat | writes.beat | counters.finish.any()),
            counters.read_beat.eq(reads.beat),
            counters.write_beat.eq(writes.beat),
        ]
