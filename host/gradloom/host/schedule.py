"""From a network to a program: what is checked before, and the plan that comes of it."""

import contextlib
import gc
from collections.abc import Iterator, Sequence

from gradloom.contracts.config import Config
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.dram.im2col import lower
from gradloom.host.dram.layout import ceil_div
from gradloom.host.dram.memory_map import ALIGNMENT, memory_map
from gradloom.host.knobs import DEFAULT_KNOBS, Knobs, find_knobs
from gradloom.host.machine_program import MachineProgram
from gradloom.host.order.list_scheduler import Deadlock
from gradloom.host.order.liveness import OverwrittenBeforeRead
from gradloom.host.program.token_check import MAXIMUM, waits_in_queue
from gradloom.host.training_step.deferred_updates import carried_layers
from gradloom.host.training_step.program_loop import emit_program
from gradloom.models.network import Network

__all__ = ["compile_network"]


def compile_network(
    network: Network,
    config: Config,
    batch: int,
    *,
    training: bool = True,
    calibrate: bool = False,
    slots: int = 1,
    table: int = 1,
    export_dw: bool = False,
    parts: int = 1,
    memory_base: int = 0,
    knobs: Knobs | None = None,
    beside: Sequence[MachineProgram] = (),
) -> MachineProgram:
    """Program and memory map of a network on a machine.

    Parameters
    ----------
    batch : :class:`int`
        Images of a step.
    training : :class:`bool`
        Else only the forward pass up to the logits; exponents stay as they are.
    calibrate : :class:`bool`
        Every operation first finds the exponent of what it writes by a dry run (the first step of a training
        run).
    slots : :class:`int`
        Places for inputs, labels and logits: the most steps of one start.
    table : :class:`int`
        Entries of the hyperparameter table.
    export_dw : :class:`bool`
        Also store the weight gradients.
    parts : :class:`int`
        Process the batch in so many parts one after the other; the results are the same.
    memory_base : :class:`int`
        Byte address of the machine's memory window.
    knobs : :class:`~gradloom.host.knobs.Knobs`, optional
        For the training steps; by default those of the package for this network, machine and batch, or else the rules'. The
        calibrating step, the forward pass alone and a batch in parts follow the rules.
    beside : sequence of :class:`~gradloom.host.machine_program.MachineProgram`
        Training programs of the same base, machine and map of memory that stay there: the forward pass reads weights and
        parameters where they have them, and all of its own lies behind them.

    Raises
    ------
    :exc:`~gradloom.host.compilation.fit.ScheduleError`
        If something does not fit; the message names layer, resource and sizes.
    """
    _check(network, config, batch, training, calibrate, export_dw, parts, memory_base)
    lowered = lower(network, config)
    memory = memory_map(
        lowered.network,
        config,
        batch,
        training=training,
        steps=slots,
        table=table,
        dw=export_dw or parts > 1,
        sums=parts > 1,
        shared=beside[0].memory if beside else None,
        first=max((plan.size for plan in beside), default=0),
    )
    if calibrate or not training or parts > 1:
        knobs = DEFAULT_KNOBS
    elif knobs is None:
        knobs = find_knobs(network, config, batch)
    builder = ProgramBuilder(lowered.network, config, memory, batch=batch, training=training, knobs=knobs, lowered=lowered)
    try:
        with _uncollected():
            labels = emit_program(builder, memory_base, calibrate=calibrate, export_dw=export_dw, parts=parts, several=slots > 1)
        builder.check_choices()
    except Deadlock:
        if knobs == DEFAULT_KNOBS:
            raise
        raise ScheduleError("schedule: with its knobs works wait for each other: make it anew with gradloom tune") from None
    except OverwrittenBeforeRead as error:
        raise ScheduleError(
            f"network {network.name!r} on configuration {config.name!r}: {error}: "
            f"raise abuf_depth, mbuf_depth or dw_depth, or change the batch"
        ) from None
    address = ceil_div(memory.size, ALIGNMENT) * ALIGNMENT
    return MachineProgram(
        network=network,
        lowered=lowered,
        config=config,
        batch=batch,
        training=training,
        calibrate=calibrate,
        export_dw=export_dw,
        slots=slots,
        table=table,
        memory=memory,
        memory_base=memory_base,
        program_address=memory_base + address,
        instructions=tuple(builder.recorder.instructions),
        labels=labels,
        search_space=builder.search_space,
        carried=tuple(layer.name for layer in carried_layers(builder)) if len(labels) > 1 else (),
    )


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector, which would go over a step's tasks again and again; they lie in no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check(
    network: Network,
    config: Config,
    batch: int,
    training: bool,
    calibrate: bool,
    export_dw: bool,
    parts: int,
    memory_base: int,
) -> None:
    if not network.arithmetic.hardware:
        raise ScheduleError(
            f"network {network.name!r}: the format {network.format} is software only, the machine runs pint8: give "
            f"--format pint8, or --device golden{'' if network.arithmetic.real else ' or emulator'}"
        )
    if memory_base % ALIGNMENT:
        raise ScheduleError(f"memory_base must be a multiple of {ALIGNMENT}, not {memory_base:#x}")
    tensors = 8 * (len(network.layers) + 1)
    if tensors > config.tensors:
        raise ScheduleError(
            f"network {network.name!r} has {tensors} tensor numbers, "
            f"configuration {config.name!r} has {config.tensors} (tensors): raise tensors"
        )
    if network.classes > config.max_classes:
        raise ScheduleError(
            f"layer {network.logits.name!r}: {network.classes} classes, configuration {config.name!r} has "
            f"{config.max_classes} (max_classes): raise max_classes"
        )
    if waits_in_queue(config.queue_words) > MAXIMUM // 2:
        raise ScheduleError(
            f"configuration {config.name!r}: {config.queue_words} words of a command queue (queue_words) let "
            f"semaphores pass {MAXIMUM}: lower queue_words"
        )
    if not 1 <= batch <= 32768:
        raise ScheduleError(f"a batch must have 1..32768 images, not {batch}")
    if not 1 <= parts <= batch:
        raise ScheduleError(f"a batch of {batch} images cannot be processed in {parts} parts")
    if calibrate and (parts > 1 or not training):
        raise ScheduleError("calibration is part of a training step on a whole batch: set parts to 1")
    if not config.export_depth and (parts > 1 or export_dw):
        raise ScheduleError(
            f"configuration {config.name!r} has no buffers to export sums of weight gradients (export_depth is 0): "
            f"{'process the batch in one part' if parts > 1 else 'do not export them'}, or raise export_depth"
        )
