"""The whole machine: an AXI4 manager per DMA channel, one AXI4-Lite subordinate, one interrupt, one clock, one reset; in it the
cores of a training machine, or a matrix core.
"""

from typing import cast

from amaranth.hdl import Cat, ClockDomain, ClockSignal, DomainRenamer, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect

from gradloom.contracts.config import Config
from gradloom.contracts.engines import LOAD_UNITS, STORE_UNITS, Unit, engine_of, units
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.contracts.pipeline import in_flight
from gradloom.rtl import shared_module
from gradloom.rtl.acore.acore import ACore
from gradloom.rtl.ccore.ccore import CCore
from gradloom.rtl.command import has_tail, head_words
from gradloom.rtl.matrix.matrix_core import MatrixCore
from gradloom.rtl.memory_path.axi import connect_flat, lite_members, port_prefix, read_members, write_members
from gradloom.rtl.memory_path.axi_read import ReadManager
from gradloom.rtl.memory_path.axi_write import WriteManager
from gradloom.rtl.memory_path.load_arbiter import LoadArbiter
from gradloom.rtl.memory_path.loader import Loader
from gradloom.rtl.memory_path.storer import Storer
from gradloom.rtl.registers.control import Control
from gradloom.rtl.registers.counters import Counters
from gradloom.rtl.registers.csr import Csr
from gradloom.rtl.sequencer.queue import CommandQueue
from gradloom.rtl.sequencer.scale_unit import ScaleUnit
from gradloom.rtl.sequencer.seed_unit import SeedUnit
from gradloom.rtl.sequencer.semaphores import Semaphores
from gradloom.rtl.sequencer.sequencer import Sequencer
from gradloom.rtl.sequencer.tails import Tails

__all__ = ["Accelerator"]


class Accelerator(wiring.Component):
    """Sequencer, queues, engines and memories behind their bus interfaces.

    Everything that a fault must bring back to its initial state lives in the clock domain ``engine``: the same clock,
    and a reset from a register of :class:`gradloom.rtl.registers.control.Control`, which the machine's own reset sets. That one is
    synchronous and must last two cycles or more. Registers and counters live in ``sync``.

    Members
    -------
    m_axi_*, m1_axi_*, m2_axi_*, m3_axi_*
        AXI4 managers, 32-bit addresses, data of one beat (``2 cols`` bytes). Port n has the read half of load channel n and
        the write half of store channel n, as far as the configuration has them; port 0 also fetches the program.
    s_axil_*
        AXI4-Lite subordinate, 32-bit data: the registers of :mod:`gradloom.contracts.regmap`.
    irq : ``Out(1)``
        Level: STATUS.irq and CONTROL.irq_enable.
    events : ``Out(2 * engines)``, only with ``events``
        For simulators: bit 2 n, engine n of :func:`gradloom.contracts.engines.units` starts a command; bit 2 n + 1, its oldest
        command ends.
    """

    def __init__(self, config: Config | MatrixConfig, *, events: bool = False) -> None:
        # Memory path, Sequencer and registers read of a configuration only what both kinds have.
        self.config = cast(Config, config)
        self.matrix = config if isinstance(config, MatrixConfig) else None
        self.shows_events = events
        members = lite_members() | {"irq": Out(1)} | ({"events": Out(2 * len(units(config)))} if events else {})
        for half, channels in ((read_members, config.load_channels), (write_members, config.store_channels)):
            for n in range(channels):
                members |= half(config, port_prefix(n))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.domains.engine = engine_domain = ClockDomain()
        m.submodules.control = control = Control()
        m.d.comb += [engine_domain.clk.eq(ClockSignal()), engine_domain.rst.eq(control.engine_reset)]
        m.submodules.csr = csr = Csr(config)
        m.submodules.counters = counters = Counters(config)

        core = Module()
        m.submodules.core = DomainRenamer("engine")(core)

        def engine_side(name: str, component: wiring.Component) -> wiring.Component:
            core.submodules[name] = component
            return component

        def copies(kind: type, name: str, count: int) -> list[wiring.Component]:
            return [shared_module.add(core, f"{name}{n}", name, kind(config), config) for n in range(count)]

        reads = [shared_module.add(core, f"read_manager{n}", "read_manager", ReadManager(config, fetches=n == 0), (config, n == 0))
                 for n in range(config.load_channels)]
        writes = copies(WriteManager, "write_manager", config.store_channels)
        loaders = copies(Loader, "loader", config.load_channels)
        storers = copies(Storer, "storer", config.store_channels)
        cores = {Unit.CCORE: engine_side("matrix", MatrixCore(self.matrix))} if self.matrix is not None else {
            Unit.CCORE: engine_side("ccore", CCore(config)), Unit.ACORE: engine_side("acore", ACore(config))}
        sequencer = engine_side("sequencer", Sequencer(config))
        semaphores = engine_side("semaphores", Semaphores(1 + len(units(config))))
        scale = engine_side("scale", ScaleUnit(config.tensors, config.lutram_bits))
        seed = engine_side("seed", SeedUnit(config.tensors))

        self._ports(m, reads, writes, csr)
        connect(m, sequencer.request, reads[0].request[0])
        connect(m, sequencer.response, reads[0].response[0])
        for loader, manager in zip(loaders, reads, strict=True):
            connect(m, loader.request, manager.request[1])
            connect(m, loader.response, manager.response[1])
            m.d.comb += manager.waiting.eq(loader.bus.valid & ~loader.ready)
        for storer, manager in zip(storers, writes, strict=True):
            connect(m, storer.request, manager.request)
            connect(m, storer.data, manager.data)
            m.d.comb += storer.completed.eq(manager.completed)
        for manager in (*reads, *writes):
            m.d.comb += [manager.window_base.eq(csr.window_base), manager.window_limit.eq(csr.window_limit),
                         manager.flush.eq(control.flush)]
        if self.matrix is None:
            arbiter = engine_side("load_arbiter", LoadArbiter(config))
            ccore, acore = cores.values()
            self._load_buses(m, loaders, arbiter, (ccore, acore))
            self._data_paths(m, storers, ccore, acore, scale, seed, csr)
        else:
            self._matrix_paths(m, loaders[0], storers[0], cores[Unit.CCORE])

        engines = cores | dict(zip(LOAD_UNITS, loaders, strict=False)) | dict(zip(STORE_UNITS, storers, strict=False))
        overlapping = {unit: 1 if self.matrix is not None and unit == Unit.CCORE else in_flight(unit) for unit in engines}
        for n, unit in enumerate(units(config)):
            kind = engine_of(unit)
            size = {"depth": config.queue_words, "words": head_words(kind, config), "in_flight": overlapping[unit]}
            memory = {"family": config.family, "lutram_bits": config.lutram_bits} if has_tail(kind) else {}
            queue = CommandQueue(**size, tails=Tails(**memory) if has_tail(kind) else None)
            queue = shared_module.add(core, f"queue_{unit.name.lower()}", "command_queue", queue, size | memory)
            connect(m, sequencer.queue[n], queue.i)
            connect(m, queue.port, engines[unit].port)
            m.d.comb += [
                sequencer.idle[n].eq(queue.idle),
                semaphores.request[n + 1].eq(queue.request & ~control.halt),
                semaphores.needs[n + 1].eq(queue.needs),
                queue.grant.eq(semaphores.grant[n + 1]),
                semaphores.signal[n + 1].eq(queue.signal),
                control.fault[unit].eq(queue.fault),
                control.tag[unit].eq(queue.tag),
                control.offset[unit].eq(queue.offset),
                control.busy[unit].eq(queue.busy),
                control.waiting[unit].eq(queue.waiting),
                counters.busy[unit].eq(queue.busy),
                counters.waiting[unit].eq(queue.waiting),
                counters.finish[unit].eq(queue.busy & queue.port.done),
                counters.tag[unit].eq(queue.tag),
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
        connect(m, cores[Unit.CCORE].macs, counters.macs)
        m.d.comb += self.irq.eq(control.irq)
        return m

    def _ports(self, m: Module, reads: list[ReadManager], writes: list[WriteManager], csr: Csr) -> None:
        for managers, members in ((reads, read_members(self.config)), (writes, write_members(self.config))):
            for n, manager in enumerate(managers):
                connect_flat(m, manager, self, members, prefix="m_axi_", outer_prefix=port_prefix(n))
        connect_flat(m, csr, self, lite_members())

    @staticmethod
    def _load_buses(m: Module, loaders: list[Loader], arbiter: LoadArbiter, cores: tuple[CCore, ACore]) -> None:
        for n, loader in enumerate(loaders):
            connect(m, loader.bus, arbiter.loader[n])
            m.d.comb += loader.ready.eq(arbiter.ready[n])
            for core in cores:
                connect(m, arbiter.memory[n], core.load[n])

    @staticmethod
    def _data_paths(m: Module, storers: list[Storer], ccore: CCore, acore: ACore, scale: ScaleUnit, seed: SeedUnit,
                    csr: Csr) -> None:
        for n, storer in enumerate(storers):
            connect(m, storer.bus, acore.store[n])
        connect(m, acore.psums, ccore.psums)
        connect(m, acore.gradients, ccore.gradients)
        connect(m, acore.plane_sums, ccore.plane_sums)
        connect(m, acore.exponents, scale.exponents)
        connect(m, acore.statistics, scale.statistics)
        connect(m, acore.seeds, seed.read)
        connect(m, csr.hyper, acore.hyper)

    @staticmethod
    def _matrix_paths(m: Module, loader: Loader, storer: Storer, matrix: MatrixCore) -> None:
        connect(m, loader.bus, matrix.load)
        connect(m, storer.bus, matrix.store)
        m.d.comb += loader.ready.eq(matrix.load_ready)

    @staticmethod
    def _sequencer(m: Module, sequencer: Sequencer, csr: Csr, scale: ScaleUnit, seed: SeedUnit,
                   control: Control) -> None:
        connect(m, sequencer.bases, csr.bases)
        connect(m, sequencer.scale, scale.request)
        connect(m, sequencer.seed, seed.request)
        connect(m, csr.scale, scale.host)
        m.d.comb += [
            sequencer.program.eq(csr.program),
            sequencer.window_base.eq(csr.window_base),
            sequencer.window_limit.eq(csr.window_limit),
            sequencer.step.eq(csr.step),
            sequencer.last_step.eq(control.last_step),
            csr.loop.eq(sequencer.loop),
            csr.hyper_write.eq(sequencer.hyper_write),
            csr.hyper_word.eq(sequencer.hyper_word),
            control.loop.eq(sequencer.loop),
            control.steps.eq(csr.steps),
            seed.run_seed.eq(csr.seed),
            seed.step.eq(csr.step),
        ]

    @staticmethod
    def _control(m: Module, control: Control, csr: Csr, counters: Counters, sequencer: Sequencer,
                 semaphores: Semaphores, reads: list[ReadManager], writes: list[WriteManager]) -> None:
        connect(m, csr.counters, counters.read)
        clear = csr.start & csr.clear
        # An overflow is of the cycle before. A program ends a cycle after its last signal or later.
        place = Cat(sequencer.tag, sequencer.offset)
        place_then = Signal.like(place)
        m.d.sync += place_then.eq(place)
        m.d.comb += [
            control.start.eq(csr.start),
            control.abort.eq(csr.abort),
            control.irq_acknowledge.eq(csr.irq_acknowledge),
            control.irq_enable.eq(csr.irq_enable),
            control.watchdog.eq(csr.watchdog),
            csr.running.eq(control.running),
            csr.status.eq(control.status),
            csr.error.eq(control.error),
            csr.error_offset.eq(control.error_offset),
            csr.error_state.eq(control.error_state),
            csr.cycles.eq(control.cycles),
            control.overflow.eq(semaphores.overflow),
            csr.position.eq(sequencer.offset),
            control.clear.eq(clear),
            counters.clear.eq(clear),
            control.hold.eq(counters.clearing),
            counters.drop.eq(control.engine_reset),
            sequencer.start.eq(control.seq_start),
            sequencer.halt.eq(control.halt),
            control.seq_done.eq(sequencer.done),
            control.seq_error.eq(sequencer.error),
            *(control.read_error[n].eq(manager.error) for n, manager in enumerate(reads)),
            *(control.write_error[n].eq(manager.error) for n, manager in enumerate(writes)),
            control.read_client.eq(reads[0].error_client),
            control.idle.eq(Cat(manager.idle for manager in (*reads, *writes)).all()),
            Cat(control.tag[0], control.offset[0]).eq(Mux(control.overflow, place_then, place)),
            control.busy[Unit.SEQ].eq(~sequencer.waiting),
            control.waiting[Unit.SEQ].eq(sequencer.waiting),
            control.progress.eq(sequencer.progress | counters.read_beat.any() | counters.write_beat.any()
                                | counters.finish.any()),
            counters.read_beat.eq(Cat(manager.beat for manager in reads)),
            counters.write_beat.eq(Cat(manager.beat for manager in writes)),
        ]
