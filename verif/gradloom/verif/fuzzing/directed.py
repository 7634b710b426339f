"""Cases made for one error code of one engine, for those that chance seldom reaches; each must end with just that error."""

from typing import Any

from gradloom.contracts.engines import Unit, engine_of
from gradloom.contracts.isa import Dest, Engine, Opcode, Pattern
from gradloom.contracts.regmap import ErrorCode, offset, register
from gradloom.host.program.assembler import Instruction, assemble
from gradloom.verif.fuzzing.cases import Draw, Event, Trouble
from gradloom.verif.fuzzing.outcomes import possible
from gradloom.verif.fuzzing.programs import command_for

__all__ = ["directed"]

_MOST = b"\x40"
"""Code of -4096, the largest magnitude."""
_FILLED = 32
"""Beats of largest magnitude that a sweep of the array reads again and again."""
_ADDRESS_REGISTER = 7
_PATIENT = 1 << 20
_SEMAPHORE = 31


def directed(draw: Draw) -> Trouble:
    """Any pair of engine and error code that the machine can report."""
    unit, code = draw.rng.choice(possible(draw.scene.config))
    fields = _CORES.get(code) or _MOVES.get(code) or _SEQUENCER[code]
    if code == ErrorCode.ILLEGAL_FIELD:
        fields = _illegal
    made: dict[str, Any] = {"codes": frozenset({code})} | fields(draw, unit)
    return draw.trouble("directed", f"{unit.name} {code.name.lower()}", f"{unit.name} has to report {code.name}", **made)


def _commands(draw: Draw, commands: list[Instruction], *, base: int = 0, **fields: Any) -> dict[str, Any]:
    """A program of its own, with the address register at ``base``."""
    program = [Instruction(Opcode.SETBASE, {"breg": _ADDRESS_REGISTER, "value": base}), *commands, Instruction(Opcode.END)]
    return {"program": assemble(program, draw.scene.config), "instructions": program} | fields


def _illegal(draw: Draw, unit: Unit) -> dict[str, Any]:
    kind = engine_of(unit)
    if kind in (Engine.LOAD, Engine.STORE):
        command = command_for(draw.scene.config, unit)
        command.fields[draw.rng.choice(("n0", "n1", "n2"))] = 0
    else:
        command = Instruction({Engine.SEQ: Opcode.LOOP, Engine.CCORE: Opcode.CONV, Engine.ACORE: Opcode.RUN}[kind],
                              {"target": 4} if kind == Engine.SEQ else {}, tag=3)
    return _commands(draw, [command], base=draw.scene.base)


# Loaders, Storers, and reads of the Sequencer

def _outside(draw: Draw, unit: Unit) -> dict[str, Any]:
    base = draw.rng.choice((draw.scene.limit, draw.scene.base - 64, 0xFFFFFFC0))
    command = Instruction(Opcode.LDHYP, {"breg": _ADDRESS_REGISTER}) if unit == Unit.SEQ else command_for(draw.scene.config, unit)
    return _commands(draw, [command], base=base, registers={"STEP": 0})


def _answer(draw: Draw, unit: Unit) -> dict[str, Any]:
    base = draw.scene.base
    if unit == Unit.SEQ:
        return {"faults": ((draw.scene.plan.program_address + 16, draw.scene.plan.program_address + 20, False),)}
    return _commands(draw, [command_for(draw.scene.config, unit)], base=base, faults=((base, base + 1, draw.rng.random() < 0.5),))


# The Sequencer

def _header(draw: Draw, unit: Unit) -> dict[str, Any]:
    return {"program": bytes(4) + draw.scene.program[4:]}


def _malformed(draw: Draw, unit: Unit) -> dict[str, Any]:
    """A semaphore signalled above 255."""
    loop = [Instruction(Opcode.BARRIER, signal=1 << _SEMAPHORE), Instruction(Opcode.LOOP, {"target": 24})]
    return _commands(draw, loop, registers={"STEPS": 300}, most=100_000)


def _stuck(draw: Draw, unit: Unit) -> dict[str, Any]:
    return _commands(draw, [Instruction(Opcode.BARRIER, wait=1 << _SEMAPHORE)])


def _aborted(draw: Draw, unit: Unit) -> dict[str, Any]:
    control = register("CONTROL")
    value = control.field("abort").mask | control.field("irq_enable").mask
    return _stuck(draw, unit) | {"events": (Event(200, offset("CONTROL"), value, aborts=True),)}


def _address(draw: Draw, unit: Unit) -> dict[str, Any]:
    return {"registers": {"PROGRAM": draw.scene.limit}}


# The cores

def _fill(draw: Draw, dest: str) -> list[Instruction]:
    """Largest magnitudes in every bank of the input or error buffer, or of the weight buffer."""

    config, memory = draw.scene.config, Dest[dest]
    banks = 3 if memory == Dest.WBUF else config.row_banks
    return [Instruction(Opcode.LOAD, {
        "dest": memory, "breg": _ADDRESS_REGISTER, "bank0": bank, "n0": _FILLED, "n1": 1, "n2": 1, "xb": _FILLED, "bstep": 1,
        "linear": 1}) for bank in range(banks)]


def _array(draw: Draw, buffers: tuple[str, ...], commands: list[Instruction], **fields: Any) -> dict[str, Any]:
    """Commands of the array on buffers full of the largest magnitude."""
    base = draw.scene.base
    loads = [load for name in buffers for load in _fill(draw, name)]
    writes = ((base, _MOST * (_FILLED * draw.scene.config.beat_bytes)),)
    program = [*loads, Instruction(Opcode.BARRIER), *commands]
    return _commands(draw, program, base=base, writes=writes, **fields)


def _sweep(draw: Draw, **fields: int) -> Instruction:
    """A tile of three rows of nine windows that lie inside the buffers."""
    rows = 3 * draw.scene.config.wpus
    common = {"pattern": Pattern.K3, "nr": 3, "nk": 3, "units": rows, "upi": rows, "yin": rows + 2, "cols": 16, "xe": 10, "ee": 10,
              "steps": 1, "sb": 1 % draw.scene.config.row_banks, "wob1": 0, "par0": 0}
    return Instruction(Opcode.CONV, common | fields, tag=8)


def _psum(draw: Draw, unit: Unit) -> dict[str, Any]:
    return _array(draw, ("IBUF", "WBUF"), [_sweep(draw, steps=4000)], registers={"WATCHDOG": _PATIENT}, most=400_000)


def _wg(draw: Draw, unit: Unit) -> dict[str, Any]:
    """Accumulators grow with every command, and every drain adds them to the buffer again: so the sums grow with its square."""
    first = _sweep(draw, wg=1, clear=1, drain=1)
    again = _sweep(draw, wg=1, drain=1, dacc=1)
    made = _array(draw, ("IBUF", "EBUF"), [first, again, Instruction(Opcode.LOOP)], registers={"WATCHDOG": _PATIENT, "STEPS": 4000},
                  most=600_000)
    program = made["instructions"]
    loop = next(n for n, instruction in enumerate(program) if instruction.opcode == Opcode.LOOP)
    return made | {"program": assemble(program, draw.scene.config, labels={loop: loop - 1})}


def _sum(draw: Draw, unit: Unit) -> dict[str, Any]:
    """Sums of gradients that begin at the end of their range: what a layer adds carries them over."""
    region = draw.scene.plan.memory["", "zeros"]
    words = b"".join(draw.rng.choice((b"\xff" * 7 + b"\x7f", bytes(7) + b"\x80")) for _ in range(region.data_bytes() // 8))
    return {"writes": ((draw.scene.base + region.address, words),),
            "codes": frozenset({ErrorCode.GRADIENT_SUM_OVERFLOW, ErrorCode.NONE})}


def _label(draw: Draw, unit: Unit) -> dict[str, Any]:
    region = draw.scene.plan.memory["input", "labels"]
    label = draw.rng.choice((draw.scene.case.network.classes, 0xFFFF, 0x8000))
    return {"writes": ((draw.scene.base + region.address, label.to_bytes(2, "little")),)}


_CORES = {ErrorCode.PSUM_OVERFLOW: _psum, ErrorCode.WG_OVERFLOW: _wg, ErrorCode.GRADIENT_SUM_OVERFLOW: _sum,
          ErrorCode.LABEL_RANGE: _label}
_MOVES = {ErrorCode.READ_WINDOW: _outside, ErrorCode.WRITE_WINDOW: _outside, ErrorCode.READ_RESPONSE: _answer,
          ErrorCode.WRITE_RESPONSE: _answer}
_SEQUENCER = {ErrorCode.PROGRAM_HEADER: _header, ErrorCode.MALFORMED_COMMAND: _malformed, ErrorCode.WATCHDOG: _stuck,
              ErrorCode.ABORTED: _aborted, ErrorCode.PROGRAM_ADDRESS: _address, ErrorCode.ILLEGAL_FIELD: _illegal}
