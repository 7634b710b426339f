"""The program encoding: every command and every field, declared once.

The Sequencer, the engines, the assembler, the disassembler, the validator and ``docs/program.md`` all read these tables.
A command is a list of 32-bit little-endian words. Word 0 holds opcode, length in words and a tag; word 1 the
semaphores that the command waits for, word 2 those that it signals; the payload follows. Words go through the machine in
pairs, so a command begins at an even word of the program: behind one of odd length lies a word that means nothing.
``docs/machine.md`` gives the meaning.
"""

import dataclasses
import enum

__all__ = ["COMMANDS", "FIRST_SHIFT_WORD", "HEADER_FIELDS", "HEADER_WORDS", "MAX_WORDS", "PROGRAM_MAGIC", "PROGRAM_VERSION",
           "SEMAPHORES", "SHIFT_FIELDS", "Command", "Dest", "Engine", "Field", "Kind", "Opcode", "Pattern", "PsumLayout", "Source",
           "XSource", "pairs", "tensor_id"]

PROGRAM_MAGIC = 0x4D4C5247
"""First word of a program header: the bytes ``GRLM``."""
PROGRAM_VERSION = 6
MAX_WORDS = 41
"""Longest command in words."""
SEMAPHORES = 32
"""Bits of a semaphore mask."""


class Engine(enum.IntEnum):
    """High four bits of an opcode."""

    SEQ = 0
    LOAD = 1
    CCORE = 2
    ACORE = 3
    STORE = 4


class Opcode(enum.IntEnum):
    END = 0x00
    BARRIER = 0x01
    SETBASE = 0x02
    ADDBASE = 0x03
    LOOP = 0x04
    LDHYP = 0x05
    SEED = 0x06
    SCALE = 0x07
    EXPSET = 0x08
    LOAD = 0x10
    CONV = 0x20
    RUN = 0x30
    UCODE = 0x31
    SOFTMAX = 0x32
    STORE = 0x40


class Dest(enum.IntEnum):
    """On-chip memories that the Loader fills."""

    IBUF = 0
    EBUF = 1
    WBUF = 2
    AA = 3
    AB = 4
    AM = 5
    PBUF = 6
    XIN = 7
    LABEL = 8


class Source(enum.IntEnum):
    """On-chip memories that the Storer drains."""

    OA = 0
    OB = 1
    OM = 2
    PBUF = 3
    XOUT = 4
    LOGIT = 5


class Pattern(enum.IntEnum):
    """How a PE's three taps see its window registers, and which of their products are summed.

    K3: three neighbouring columns. BP2: backward of stride 2, four outputs a window. K1: one column for three output groups.
    PAIR: one column of a kernel for two neighbouring output columns (forward only).
    """

    K3 = 0
    BP2 = 1
    K1 = 2
    PAIR = 3


class PsumLayout(enum.IntEnum):
    """Where a position of a plane lies in the four banks of a partial-sum buffer."""

    ROWS = 0
    SPLIT = 1
    K1 = 2
    K1_UP = 3


class XSource(enum.IntEnum):
    """Where an A-Core command takes its wide operand X from."""

    PSUM = 0
    DW = 1
    NONE = 2


class Kind(enum.IntEnum):
    """Kind of a tensor; its number is ``8 * layer + kind`` (exponent file, statistics, seeds).

    Layer 0 is the input: number 0 always holds 0, 1 the learning rate's shift, 2 the input's exponent, 3 the weight decay's shift.
    The golden model, which must not know the machine, has the same in :class:`gradloom.models.layers.Kind`; a test compares them.
    """

    W = 0
    V = 1
    Z = 2
    DZ = 3
    DX = 4
    W_NEXT = 5
    V_NEXT = 6
    DS = 7


def pairs(words: int) -> int:
    """Pairs of words that a command of so many words takes."""
    return words + 1 >> 1


def tensor_id(layer: int, kind: Kind) -> int:
    """Number of a tensor; ``layer`` counts from 1 in network order."""
    return 8 * layer + kind


@dataclasses.dataclass(frozen=True)
class Field:
    """``width`` bits at bit ``lsb`` of word ``word``; two's complement if ``signed``."""

    name: str
    word: int
    lsb: int
    width: int
    doc: str
    signed: bool = False


@dataclasses.dataclass(frozen=True)
class Command:
    """Encoding of one opcode: fixed fields in ``words`` words, then, if ``tail``, a list of further words."""

    opcode: enum.IntEnum
    words: int
    doc: str
    fields: tuple[Field, ...] = ()
    tail: str | None = None


HEADER_FIELDS = (
    Field("opcode", 0, 0, 8, "operation; the high four bits name the kind of engine"),
    Field("length", 0, 8, 8, "words of the whole command"),
    Field("tag", 0, 16, 16, "8 * layer + phase, for the performance counters"),
    Field("wait", 1, 0, 32, "semaphores that must be above 0; each is decremented at the start"),
    Field("signal", 2, 0, 32, "semaphores that are incremented at the end"),
)

HEADER_WORDS = 3
"""Words of a command before its own fields."""

SHIFT_FIELDS = (
    Field("dst", 0, 0, 3, "shift register SH0..SH7"),
    Field("neg", 0, 3, 1, "subtract the exponent"),
    Field("first", 0, 4, 1, "start the sum anew"),
    Field("tid", 0, 5, 11, "tensor whose exponent is added"),
    Field("const", 0, 16, 16, "constant that is added", signed=True),
)
"""One word of a shift list: SH[dst] = (first ? 0 : SH[dst]) + const +- e[tid]."""

FIRST_SHIFT_WORD = 22

_DRAM = (
    Field("offset", 4, 0, 32, "DRAM byte address relative to the base register, a multiple of the beat"),
    Field("n0", 5, 0, 16, "beats of one contiguous run"),
    Field("n1", 5, 16, 16, "runs of the inner loop"),
    Field("stride1", 6, 0, 32, "bytes from run to run", signed=True),
    Field("n2", 7, 0, 16, "iterations of the outer loop"),
    Field("stride2", 8, 0, 32, "bytes from iteration to iteration", signed=True),
    Field("addr0", 9, 0, 16, "first on-chip address"),
)

COMMANDS: dict[Opcode, Command] = {Opcode(command.opcode): command for command in (
    Command(Opcode.END, 3, "Wait for every engine, then report done."),
    Command(Opcode.BARRIER, 3, "Hold the program until every queue is empty and every engine idle."),
    Command(Opcode.SETBASE, 5, "base[breg] = value.", (
        Field("breg", 3, 0, 3, "base register"), Field("value", 4, 0, 32, "byte address"))),
    Command(Opcode.ADDBASE, 5, "base[breg] += value.", (
        Field("breg", 3, 0, 3, "base register"), Field("value", 4, 0, 32, "bytes", signed=True))),
    Command(Opcode.LOOP, 4, "End of a step: step += 1; while steps are left, go to the body.", (
        Field("target", 3, 0, 32, "byte offset of the next command from the first command of the program"),)),
    Command(Opcode.LDHYP, 5, "Fetch the hyperparameters of this step: 16-byte entry number `step` of a table in DRAM.", (
        Field("breg", 3, 0, 3, "base register"), Field("offset", 4, 0, 32, "byte offset of the table"))),
    Command(Opcode.SEED, 4, "seed[tid] = mix(mix(run seed + step) + 0x9E3779B1 * tid).", (
        Field("tid", 3, 0, 11, "tensor"),)),
    Command(Opcode.SCALE, 4, "e[target] = delayed-scale rule of (e[target], stat[tid]); stat[tid] = 0.", (
        Field("tid", 3, 0, 11, "tensor whose statistics are read"),
        Field("target", 3, 11, 11, "tensor whose exponent is set"),
        Field("f", 3, 22, 5, "F, random bits of the encoder (8 nearest, 16 stochastic)"))),
    Command(Opcode.EXPSET, 4, "e[target] = sum of the shift list (dst and first are ignored).", (
        Field("target", 3, 0, 11, "tensor whose exponent is set"),
        Field("clear", 3, 31, 1, "also set stat[target] = 0")), tail="shift"),
    Command(Opcode.LOAD, 10, "DRAM to an on-chip memory.", (
        Field("dest", 3, 0, 4, "memory (Dest)"),
        Field("linear", 3, 4, 1, "WBUF: 0 = successive blocks cycle through the 3 banks, 1 = all go to bank0"),
        Field("breg", 3, 5, 3, "base register"),
        Field("bank0", 3, 8, 4, "first bank"),
        Field("bstep", 3, 12, 2, "IBUF, EBUF: banks from row to row (1 or 3)"),
        Field("xe", 3, 14, 12, "IBUF, EBUF: addresses from row to row of one bank"),
        Field("way", 3, 26, 2, "which of the channels that fill the memory"),
        *_DRAM,
        Field("xb", 7, 16, 16, "IBUF, EBUF: beats of one row"),
        Field("ostep", 9, 16, 16, "IBUF, EBUF: addresses per outer iteration; WBUF: per inner iteration"))),
    Command(Opcode.CONV, 17, "One convolution tile on the array.", (
        Field("pattern", 3, 0, 2, "Pattern"),
        Field("wg", 3, 2, 1, "output stationary: accumulate weight gradients"),
        Field("s2", 3, 3, 1, "columns advance by two"),
        Field("transpose", 3, 4, 1, "weight network level 1: exchange [G out][G in]"),
        Field("flip", 3, 5, 1, "weight network level 2: reverse the three taps"),
        Field("half", 3, 6, 1, "half of the partial-sum buffer"),
        Field("acc", 3, 7, 1, "the first step adds to the stored partial sums"),
        Field("clear", 3, 8, 1, "WG: clear the accumulators at the start"),
        Field("drain", 3, 9, 1, "WG: write the accumulators to the weight-gradient buffer at the end"),
        Field("preload", 3, 10, 1, "a row needs two entries before its first window"),
        Field("par0", 3, 11, 1, "parity of the first window's column"),
        Field("colstep", 3, 12, 1, "a step moves by one column within the rows (fully connected layers)"),
        Field("nr", 3, 13, 2, "valid rows of the kernel window, 1..3"),
        Field("nk", 3, 15, 2, "valid taps of the kernel window (K1: valid output groups), 1..3"),
        Field("p2", 3, 17, 1, "rows advance by two"),
        Field("sums", 3, 18, 1, "gather sum |X| of every plane in the last step"),
        Field("dacc", 3, 19, 1, "WG: the drain adds to the weight-gradient buffer"),
        Field("ebank", 3, 20, 2, "WG, not K1: error bank of a WPU's rows, 0..2"),
        Field("sacc", 3, 22, 1, "sums: go on with those of the command before (a plane in several commands)"),
        Field("lap", 3, 23, 1, "first lap of a step: the array takes columns `cols` * lap on of a channel group"),
        Field("lap_end", 3, 24, 1, "last lap of a step"),
        Field("shared", 3, 25, 1, "all WPUs together take each row that is left over when the others are dealt out, a part each"),
        Field("steps", 4, 0, 16, "weight tiles (input channel groups)"),
        Field("units", 4, 16, 16, "output rows of the tile, all images together"),
        Field("cols", 5, 0, 12, "window positions of a row"),
        Field("upi", 5, 12, 12, "units of one image"),
        Field("wob0", 5, 24, 2, "bank of the first of the three blocks of PE row 0"),
        Field("wob1", 5, 26, 2, "bank of the first of the three blocks of PE row 1"),
        Field("wob2", 5, 28, 2, "bank of the first of the three blocks of PE row 2"),
        Field("yin", 6, 0, 12, "stored rows of one image"),
        Field("y0", 6, 12, 8, "first input row of unit 0 (negative: padding)", signed=True),
        Field("xe", 6, 20, 12, "entries of a stored row"),
        Field("e0", 7, 0, 12, "first entry of a row that is shifted in", signed=True),
        Field("ib0", 7, 12, 4, "bank counter of unit 0"),
        Field("sb", 7, 16, 4, "bank advance, unit to unit of one image"),
        Field("cb", 7, 20, 4, "bank advance, last unit of an image to the next image"),
        Field("scols", 7, 24, 8, "shared rows: window positions of the last WPU's part; the other parts have the rest of `cols`"),
        Field("ia0", 8, 0, 16, "row address of unit 0 (modulo 2^16)"),
        Field("sa", 8, 16, 16, "row address advance, unit to unit of one image"),
        Field("ca", 9, 0, 16, "row address advance, last unit of an image to the next image"),
        Field("istep", 9, 16, 16, "input address per step"),
        Field("wbase", 10, 0, 16, "weight buffer address of step 0"),
        Field("wstep", 10, 16, 16, "weight buffer addresses per step"),
        Field("woa0", 11, 0, 10, "weight address offset of PE row 0", signed=True),
        Field("woa1", 11, 10, 10, "weight address offset of PE row 1", signed=True),
        Field("woa2", 11, 20, 10, "weight address offset of PE row 2", signed=True),
        Field("u0", 12, 0, 12, "unit of its image that the first unit is, below `upi`"),
        Field("sbank", 12, 12, 4, "shared rows: bank of the first row of the first part"),
        Field("pbase", 12, 16, 16, "first address in the partial-sum banks"),
        Field("rlim0", 13, 0, 16, "K1: steps in which PE row 0 has an input group"),
        Field("rlim1", 13, 16, 16, "K1: steps in which PE row 1 has an input group"),
        Field("rlim2", 14, 0, 16, "K1: steps in which PE row 2 has an input group"),
        Field("ebase", 14, 16, 16, "WG: first address in the error buffer"),
        Field("ee", 15, 0, 12, "WG: entries of a stored error row"),
        Field("dwbase", 15, 16, 16, "WG: first beat in the weight-gradient buffer"),
        Field("koff", 16, 0, 16, "K1: weight address offset between PE rows"),
        Field("dgap", 16, 16, 8, "WG: blocks that lie between two blocks of the tile in the weight-gradient buffer"),
        Field("soff", 16, 24, 8, "shared rows: address of the first parts behind the row address of the first shared row"))),
    Command(Opcode.RUN, FIRST_SHIFT_WORD, "Run a microprogram over planes.", (
        Field("uprog", 3, 0, 10, "address of the microprogram"),
        Field("planes", 3, 10, 8, "planes, 1..max_planes"),
        Field("half", 3, 18, 1, "half of the partial-sum buffer"),
        Field("xsrc", 3, 19, 2, "XSource"),
        Field("xodd", 3, 21, 1, "the last column of every row is padding"),
        Field("dry", 3, 22, 1, "calibration: statistics only, no parameter is written"),
        Field("layout", 3, 23, 2, "PsumLayout"),
        Field("pk", 3, 25, 2, "K1: output group of the array tile, 0..2"),
        Field("r1", 3, 27, 1, "converter 1 rounds stochastically"),
        Field("r2", 3, 28, 1, "converter 2 rounds stochastically"),
        Field("xin", 3, 29, 1, "add the wide input buffer to the weight gradients"),
        Field("shared", 3, 30, 2, "last rows of the last plane that WPUs share"),
        Field("nb", 4, 0, 16, "beats of a plane"),
        Field("xe", 4, 16, 12, "beats of a row"),
        Field("sa0", 5, 0, 16, "first address of stream A"),
        Field("sb0", 5, 16, 16, "first address of stream B"),
        Field("sm0", 6, 0, 16, "first address of the bitmap stream"),
        Field("oa0", 6, 16, 16, "first address of output A"),
        Field("ob0", 7, 0, 16, "first address of output B"),
        Field("om0", 7, 16, 16, "first address of the output bitmap"),
        Field("pb0", 8, 0, 16, "parameter buffer entry of the channel group"),
        Field("pl0", 8, 16, 16, "parameter buffer entry of plane 0"),
        Field("pj", 9, 0, 12, "window positions of a row in the partial-sum buffer"),
        Field("prg0", 9, 12, 16, "row group of the first unit"),
        Field("pw0", 9, 28, 2, "WPU of the first unit"),
        Field("py", 10, 0, 12, "rows of a plane"),
        Field("psr", 10, 12, 1, "SPLIT: the first row is the second of its unit; K1_UP: only even rows of the plane, `py` of them"),
        Field("psc", 10, 13, 1, "SPLIT: the first column is the second of its position"),
        Field("pbase", 10, 16, 16, "first address in the partial-sum banks"),
        Field("inv", 11, 0, 17, "rounded reciprocal, 2^(15+k) / N"),
        Field("n", 11, 17, 15, "N, valid positions of a plane"),
        Field("t1", 12, 0, 11, "tensor of converter 1 (0: no statistics)"),
        Field("t2", 12, 11, 11, "tensor of converter 2 (0: no statistics)"),
        Field("f1", 12, 22, 5, "F of converter 1"),
        Field("f2", 12, 27, 5, "F of converter 2"),
        Field("idx0", 13, 0, 24, "element index of the first element (WG: of PE row 0)"),
        Field("sbeats", 13, 24, 8, "shared rows: beats of the parts of all WPUs but the last"),
        Field("idx1", 14, 0, 24, "WG: element index of PE row 1"),
        Field("idx2", 15, 0, 24, "WG: element index of PE row 2"),
        Field("s_k", 16, 0, 24, "index step from plane to plane (WG: from tap to tap)"),
        Field("s_lane", 17, 0, 24, "WG: index step from output channel to output channel"),
        Field("s_ch", 18, 0, 24, "index step from lane channel to lane channel"),
        Field("nr", 19, 0, 2, "WG: valid rows of the tile"),
        Field("nk", 19, 2, 2, "WG: valid taps of the tile"),
        Field("s_t", 19, 4, 12, "WG: index step from tile to tile"),
        Field("dwbase", 19, 16, 16, "WG: first beat in the weight-gradient buffer"),
        Field("pool", 20, 0, 2, "0 none, 1 forward, 2 backward"),
        Field("pmax", 20, 2, 1, "maximum, else sum"),
        Field("pkern", 20, 3, 4, "window size"),
        Field("pstride", 20, 7, 4, "window stride"),
        Field("ppad", 20, 11, 4, "window padding"),
        Field("poff", 20, 16, 6, "added to the padding above the first row: a tile of rows of a plane", signed=True),
        Field("side", 20, 22, 8, "WG: further tiles whose blocks lie behind each block of a tile"),
        Field("pyi", 21, 0, 12, "rows of the stream's planes"),
        Field("pxi", 21, 12, 12, "columns of the stream's planes"),
        Field("ps0", 21, 24, 8, "image slot of plane 0 in the C-Core's sum store")), tail="shift"),
    Command(Opcode.UCODE, 4, "Write microinstructions.", (
        Field("address", 3, 0, 16, "first 32-bit word in the program memory"),), tail="word"),
    Command(Opcode.SOFTMAX, 5, "Loss gradient of a batch of logits; errors go to output A, beats [image][class group].", (
        Field("images", 3, 0, 16, "images"),
        Field("classes", 3, 16, 12, "logits of an image"),
        Field("squared", 3, 28, 1, "squared error against one-hot targets instead of softmax cross-entropy"),
        Field("logit0", 4, 0, 16, "first address in the logit buffer"),
        Field("oa0", 4, 16, 16, "first address of output A"))),
    Command(Opcode.STORE, 10, "On-chip memory to DRAM.", (
        Field("src", 3, 0, 4, "memory (Source)"),
        Field("breg", 3, 5, 3, "base register"), *_DRAM)),
)}
