"""The program around its steps: what comes before them, the loop, and updates that are carried over from step to step.

A step ends with the scales of its tensors, and the next one begins when all engines are through. The forward pass leaves the array
gaps that only weight gradients could fill, of which it has none. So those of some last layers may be *carried* over: they come
beside the next step's forward pass (:mod:`gradloom.host.training_step.step`). Then the first step of a start has none to begin
with, and behind the last one come those that are left:

    first step, LOOP, updates left, END, any further step, LOOP, updates left, END

The LOOP of the first step goes to the further one, which repeats itself while steps are left.
"""

from gradloom.contracts import microprograms
from gradloom.contracts.isa import Opcode
from gradloom.host.compilation.program_builder import ProgramBuilder, shifts
from gradloom.host.compilation.transfers import BASE
from gradloom.host.training_step.deferred_updates import carried_layers
from gradloom.host.training_step.scales import scales
from gradloom.host.training_step.step import Step
from gradloom.models.network import INPUT

__all__ = ["emit_program"]

_UCODE_WORDS = 36
"""Words of one UCODE command: whole microinstructions, within the longest command."""


def emit_program(
    builder: ProgramBuilder, memory_base: int, *, calibrate: bool, export_dw: bool, parts: int, several: bool
) -> dict[int, int]:
    """The whole program. Returns the labels of its LOOPs.

    Parameters
    ----------
    calibrate, export_dw, parts : as for :func:`~gradloom.host.schedule.compile_network`
    several : :class:`bool`
        A start may have more than one step, so that updates may be carried over.
    """
    _head(builder, memory_base)
    recorder = builder.recorder
    carried = carried_layers(builder) if several and builder.training and not calibrate and parts == 1 else ()
    step = Step(builder, calibrate=calibrate, export_dw=export_dw, parts=parts, leaving=carried)
    body = len(recorder.instructions)
    step.emit()
    loop = _end(builder)
    if not carried:
        recorder.sequence(Opcode.END)
        return {loop: body}
    left = Step(builder, export_dw=export_dw, arriving=carried)
    left.emit_arriving()
    recorder.sequence(Opcode.END)
    body = len(recorder.instructions)
    Step(builder, export_dw=export_dw, arriving=carried, leaving=carried).emit()
    again = _end(builder)
    Step(builder, export_dw=export_dw, arriving=carried).emit_arriving()
    recorder.sequence(Opcode.END)
    return {loop: body, again: body}


def _head(builder: ProgramBuilder, memory_base: int) -> None:
    """Microprograms, base registers, cleared statistics."""
    recorder, memory, network = builder.recorder, builder.memory, builder.network
    for first in range(0, len(microprograms.WORDS), _UCODE_WORDS):
        recorder.emit(
            Opcode.UCODE,
            {"address": first},
            tail=tuple(microprograms.WORDS[first : first + _UCODE_WORDS]),
        )
    starts = {
        "memory": 0,
        "input": memory[INPUT, "z"].address,
        "labels": memory[INPUT, "labels"].address,
        "logits": memory[network.logits.name, "logits"].address,
        "hyper": memory["", "hyper"].address,
    }
    for name, address in starts.items():
        recorder.sequence(Opcode.SETBASE, breg=BASE[name], value=memory_base + address)
    if builder.training:
        for tid in sorted({scale.stat for scale in scales(builder)}):
            recorder.sequence(Opcode.EXPSET, shifts(SH0=(0, (tid,), ())), target=tid, clear=1)


def _end(builder: ProgramBuilder) -> int:
    """End of a step. Returns the position of its LOOP."""
    recorder, memory = builder.recorder, builder.memory
    recorder.tag = 0
    regions = {
        "input": memory[INPUT, "z"],
        "labels": memory[INPUT, "labels"],
        "logits": memory[builder.network.logits.name, "logits"],
    }
    for name, region in regions.items():
        recorder.sequence(Opcode.ADDBASE, breg=BASE[name], value=region.step_bytes)
    return recorder.sequence(Opcode.LOOP)
