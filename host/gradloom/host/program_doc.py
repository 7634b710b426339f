"""``python -m gradloom.host.program_doc``: the page about programs, tables from :mod:`gradloom.contracts.isa`."""

import enum
import sys
from collections.abc import Iterator

from gradloom.contracts.engines import LOAD_MAP, LOAD_UNITS, STORE_MAP, STORE_UNITS, Unit, semaphore
from gradloom.contracts.isa import (
    COMMANDS,
    HEADER_FIELDS,
    HEADER_WORDS,
    MAX_WORDS,
    PROGRAM_MAGIC,
    PROGRAM_VERSION,
    SHIFT_FIELDS,
    Command,
    Dest,
    Engine,
    Field,
    Kind,
    Pattern,
    PsumLayout,
    Source,
    XSource,
)
from gradloom.host.compilation.transfers import BASE

__all__ = ["text"]

_INTRODUCTION = f"""\
# Programs

This page is made by `python -m gradloom.host.program_doc`; edit that module and the tables of
`gradloom.contracts.isa`, not this file.

A program is what the machine runs between START and done: one or many training steps, or forward passes.
It lies in DRAM at a multiple of 64: a header
of 4 words, then commands of {HEADER_WORDS} to {MAX_WORDS} little-endian 32-bit words. Words go through the machine in pairs: a
command begins at an even word, behind one of odd length lies a word that means nothing. The meaning of the fields is
that of [machine.md](machine.md).

| header word | |
|---|---|
| 0 | magic {PROGRAM_MAGIC:#010x}, the bytes `GRLM` |
| 1 | version {PROGRAM_VERSION} |
| 2 | bytes of the commands that follow |
| 3 | digest of the configuration (register CONFIG) |

`gradloom.host.program.assembler` turns instructions into bytes and back, `gradloom.host.program.disassembler` into text
and back, and `gradloom.host.program.validator`
says in sentences what is wrong with a program: lengths, opcodes, fields, on-chip addresses, DRAM
addresses outside the window, and semaphores.
"""

_CHANNELS = """\
A machine has one to four Loaders and one or two Storers (`load_channels`, `store_channels` of the
configuration). `dest` and `src` say which engine gets the command, as each memory belongs to one of them; where
several Loaders fill WBUF or IBUF, `way` says which of them. A number that is no memory goes to the first Loader or Storer, which
refuses it.
"""

_SCHEDULE = """\
## From a network to a program

`gradloom.host.schedule.compile_network` gives a `MachineProgram`: program, memory map, and functions that write
states and batches and read tensors.

| folder | modules | what |
|---|---|---|
| `training_step` | `step`, `scales`, `deferred_updates`, `loss_overlap` | order of a step, calibration, scales, carried updates |
| | `program_loop` | the loop over steps |
| `forward` | `schedule_forward`, `forward_sweeps`, `schedule_logits` | forward pass of a layer, the loss |
| | `forward_rows`, `forward_kept` | planes that do not fit, or only nearly |
| `backward` | `schedule_backward`, `conv_backward_tiles` | errors through convolutions and pools |
| | `norm_backward`, `norm_backward_commands` | errors through normalisations, and updates of their parameters |
| | `weight_gradient`, `gradient_queues`, `gradient_commands` | weight gradients and updates |
| `tiles` | `phase_sweeps`, `flat_shapes`, `conv_mapping`, `shared_rows` | how the array sweeps a layer: the fields of CONV |
| | `convolution_tiles`, `tile_commands`, `convolution` | convolution tiles, their commands, their order |
| | `row_tiles`, `row_convolution`, `row_parts`, `resident_planes` | planes that do not fit: tiles of rows, parts for the A-Core |
| `compilation` | `program_builder`, `transfers`, `sums` | the state of a compilation, its loads and stores, partial sums |
| | `windows`, `layer_sizes`, `fit`, `stream_fit` | sizes of layers, and what does not fit |
| `order` | `tasks`, `dependences` | a step's commands in the order of their meaning, and which of them come behind which |
| | `pieces`, `list_scheduler`, `acore_turns` | pieces of work, and which one comes next |
| | `synchronize`, `accesses`, `liveness`, `allocators` | semaphores, and what they order; addresses on chip |
| `dram` | `memory`, `layout`, `im2col`, `flat_plane` | addresses and formats of tensors |
| `program` | `assembler`, `disassembler`, `validator` | programs as bytes and as text, and what is wrong with one |
| `cost_model` | `cost`, `replay`, `clock` | how long a program takes |
| | `schedule`, `machine_program`, `knobs`, `tune` | a program and its checks; what is free, and the search for better values |

A tile of the array is one group of output channels (three for kernel 1) of some images. How many is chosen by
cycles: rows that the WPUs cannot share evenly cost array cycles, weights are loaded once for every range of images, inputs
that do not stay on chip once for every set of tiles whose partial sums fit together (`shared_input_tiles`), and a layer in
one piece begins when the one before it is finished. The A-Core takes as many planes of a tile at once as a quarter of its stream
buffers holds. A layer of which not even one image fits in the whole of a buffer is refused with the layer's name, the buffer
and both sizes. If not all input groups of a tile fit in the input buffer or in the weight buffer, the tile is computed in
several CONV commands that add up (`acc`); kernels above 3 x 3 take one CONV a window.

Weight gradients (`gradient_blocks`): inputs and errors of a span of rows stay on chip while every pair of a block of output
tiles and input steps sweeps over them; the drain of later spans adds to the sums of earlier ones (`dacc`), and after
the last span a pair's weights are updated. Spans go over the rows of the batch, image after image, and may begin in the
middle of one (`u0`), so that every WPU has a row. Blocks and spans are chosen by cycles too.

All of a step is made first, layer after layer, as tasks (`tasks`): commands with all that they read and write, but without their
addresses on chip, which depend on what comes before them. Which tasks come behind which follows from that alone
(`dependences`): whoever reads a part of a tensor comes behind those who write it, whoever writes it behind all others,
whoever uses a place on chip behind those who took and filled it. What takes places that later tasks give back waits for what
these read, too (its gate). Engines take their commands in the order of the program,
so layers and phases are then interleaved in it by ranges of images (`list_scheduler`): a task comes when all before it have been
emitted, and where, by the cost model, the array would not wait for it; now its rings and pools find its addresses. The
order below is that of their dependences.

A fully connected layer is a convolution whose kernel is its input's plane: windows of 3 x 3 for a larger
plane, kernel 1 for a plane of one position.

### Order of a step

1. LDHYP comes before the first RUN beyond the first layer's forward pass, SEED of a tensor that is rounded stochastically
   before its first RUN, both while engines run.
2. Forward, layer by layer; the last layer's logits go to DRAM and, with the labels, through SOFTMAX.
3. Backward, layers in reverse: the error of the layer's output (by its main consumer's backward
   convolution or pool, with the shortcut's error added), then side by side the weight update of that
   consumer and the error of the layer's accumulators with the gradient sums and the update of its parameters.
4. `e[W] = e[W_NEXT]`, then SCALE to W_NEXT; V alike; SCALE of every delayed feature and error.
5. ADDBASE of inputs, labels and logits; LOOP.

Weight updates of chosen layers (`deferred_layers`) come beside 2. of the next step, before what they write is read or scaled
there, and LDHYP and the seeds of that step behind them. The first step of a start has none to begin with, so such a program holds
two steps: the first one, whose LOOP goes forward to a further one, which repeats itself; behind each the updates that are left, and
END. STEP counts the next step by then, so the host tells a number of a carried update that does not fit with STEP - 1.

With `calibrate` every operation that writes a delayed-scale tensor is emitted twice: EXPSET to the
exponent at which the converter's shift is 0 (dx of FRN:
24 less), the operation dry, SCALE; then the operation. With `parts` the forward and backward passes run
over one part of the batch after the other; sums and
weight gradients of earlier parts come from DRAM, and only the last part updates.

### Tokens

The scheduler emits commands in an order in which they would be right one after the other, and records
what each reads and writes: on-chip address ranges, images and
channel groups of DRAM tensors. For each command it finds the latest conflicting command of every other
engine that no earlier token has ordered it behind,
and adds one token: a bit in that command's `signal`, the same bit in this one's `wait`. Every Loader and
every Storer counts as an engine. Each ordered
pair of engines that tokens have to order has a semaphore of its own, so
the n-th wait takes the n-th signal; a conflict of any other pair, which no program has needed yet, is
ordered by a BARRIER. Where several channels fill one buffer and a tile's weights or inputs take longer than its windows,
they are cut in parts, each for the channel that is through first by the scheduler's clock.
Therefore no conflict goes unordered; the earliest unfinished
command can always run, so nothing deadlocks, however short the
queues; and all semaphores are 0 at the end. The validator proves the last two for any program whose
semaphores have one signalling and one waiting engine.
Commands of the Sequencer itself (EXPSET, SETBASE, ...) come behind a BARRIER, but for those of 4.: each waits, by a token of
the A-Core, for the last command that uses its exponents or adds to its statistics, while the engines go on with what they have
been handed.
"""


def _row(field: Field) -> str:
    bits = f"{field.lsb + field.width - 1}:{field.lsb}" if field.width > 1 else f"{field.lsb}"
    return f"| {field.word} | {bits} | `{field.name}` | {'signed, ' if field.signed else ''}{field.doc} |"


def _table(fields: tuple[Field, ...]) -> Iterator[str]:
    yield "| word | bits | field | |"
    yield "|---|---|---|---|"
    yield from (_row(field) for field in sorted(fields, key=lambda field: (field.word, field.lsb)))
    yield ""


def _command(command: Command) -> Iterator[str]:
    tail = {None: "", "shift": ", then a shift list", "word": ", then words"}[command.tail]
    yield f"### {command.opcode.name} (0x{command.opcode:02x}), {command.words} words{tail}"
    yield ""
    yield command.doc
    yield ""
    if command.fields:
        yield from _table(command.fields)


def _numbers(title: str, kind: type[enum.IntEnum]) -> Iterator[str]:
    yield f"| {title} | " + " | ".join(str(int(member)) for member in kind) + " |"
    yield "|---|" + "---|" * len(kind)
    yield "| | " + " | ".join(member.name for member in kind) + " |"
    yield ""


def _tokens() -> Iterator[str]:
    present = [unit for unit in Unit if unit != Unit.SEQ]
    yield "| semaphore | " + " | ".join(f"{unit.name} waits" for unit in present) + " |"
    yield "|---|" + "---|" * len(present)
    for producer in present:
        numbers = (semaphore(producer, consumer) for consumer in present)
        cells = ("" if number is None else str(number) for number in numbers)
        yield f"| {producer.name} signals | " + " | ".join(cells) + " |"
    yield ""


def _channels() -> Iterator[str]:
    """Which engine fills or drains which memory."""
    for title, channels, present in (("`load_channels`", LOAD_MAP, LOAD_UNITS), ("`store_channels`", STORE_MAP, STORE_UNITS)):
        yield f"| {title} | " + " | ".join(unit.name for unit in present) + " |"
        yield "|---|" + "---|" * len(present)
        for count, parts in channels.items():
            cells = [" ".join(memory.name for memory in part) for part in parts]
            yield f"| {count} | " + " | ".join([*cells, *[""] * (len(present) - count)]) + " |"
        yield ""


def text() -> str:
    """The whole page, Markdown."""
    lines = [
        _INTRODUCTION,
        "## Every command",
        "",
        "The first three words of every command:",
        "",
        *_table(HEADER_FIELDS),
        "`tag` is 8 * layer + phase: 0 forward, 1 backward, 2 normalisation backward, 3 weight update, "
        "4 scales (layer 0).",
        "",
        "One word of a shift list, SH[dst] = (first ? 0 : SH[dst]) + const +- e[tid]:",
        "",
        *_table(SHIFT_FIELDS),
    ]
    for kind, title in (
        (Dest, "LOAD `dest`"),
        (Source, "STORE `src`"),
        (Pattern, "CONV `pattern`"),
        (PsumLayout, "RUN `layout`"),
        (XSource, "RUN `xsrc`"),
        (Kind, "tensor number less 8 * layer"),
    ):
        lines += _numbers(title, kind)
    for engine in Engine:
        lines += [f"## {engine.name}", ""]
        for command in COMMANDS.values():
            if command.opcode >> 4 == engine:
                lines += _command(command)
    bases = ", ".join(f"{number} {name}" for name, number in BASE.items())
    lines += ["## Channels", "", _CHANNELS, *_channels(), _SCHEDULE, *_tokens(), f"Base registers: {bases}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
