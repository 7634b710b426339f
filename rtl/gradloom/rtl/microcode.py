"""Microinstructions of the A-Core: each is one sweep over the planes of a RUN command, with one setting of the APUs.

A microprogram is a list of microinstructions in the program memory, from a RUN's ``uprog`` to the first one with ``end``.
There are no branches. The pipeline of a lane, in order (x, a, b, d and the registers are per channel):

====== ===================================================================================================
stage  what a microinstruction chooses
====== ===================================================================================================
fetch  a, b = decoded bytes of streams A, B; d = bitmap bit (or ``keep``) ? a : 0; x = operand ``x``
MUL1   p = x * ``factor`` (x saturated to 48 bits) or x itself
ADD1   t = +-align(p, ``sh1``) + ``t2`` + ``t3``; t may go to a register (``dst``)
CONV1  v = encoder 1 of t, shift ``c1`` (+ le); skipped by the stages below unless ``long``
MUL2   p = ``m2a`` * ``m2b``; u = sat18((d << 4) - sgn(b) mean)
ADD2   y = ``base`` + ``y2`` + ``y3``
CMP    bit and r of y by ``cmp``
CONV2  z = encoder 2 of r, shift ``c2`` (+ le)
====== ===================================================================================================

Accumulators: ``acc`` sums abs(x) or the product of MUL2 over each plane and writes plane register S at its end; with the
product it also adds the plane's sum to sg. ``sums`` adds d to sb and a - d to st.

Every microinstruction is four 32-bit words in the program memory's word addresses (the fourth is not stored).
"""

import dataclasses
import enum

from amaranth.hdl import Shape
from amaranth.lib.data import Field as LayoutField
from amaranth.lib.data import FlexibleLayout

__all__ = [
    "FIELDS",
    "MICRO_BITS",
    "MICRO_WORDS",
    "Y2",
    "Y3",
    "Accumulate",
    "Base",
    "Compare",
    "Destination",
    "Factor",
    "Kind",
    "Loop",
    "MicroField",
    "MicroLayout",
    "Multiplicand",
    "Multiplier",
    "Operand",
    "OutB",
    "Register",
    "Shift",
    "Term2",
    "Term3",
    "decode",
    "encode",
]

MICRO_WORDS = 4
"""32-bit words from one microinstruction to the next in the program memory's addresses."""
MICRO_BITS = 96
"""Bits that are stored."""


class Kind(enum.IntEnum):
    """What a microinstruction does."""

    SWEEP = 0   #: send beats through the lanes
    LOAD = 1    #: PBUF to registers: ``count`` entries from pb0 + ``reg`` (``loop`` ONCE), or lam of every plane (PLANES)
    STORE = 2   #: the reverse; skipped when the command is dry
    DIVIDE = 3  #: {le, q} of every plane = n / S


class Loop(enum.IntEnum):
    """Which beats a sweep issues."""

    BEATS = 0   #: every beat of every plane, both lanes
    PLANES = 1  #: one beat a plane, lane 0 (scalars)
    ONCE = 2    #: one beat, lane 0 (scalars)


class Register(enum.IntEnum):
    """Channel registers, by parameter-buffer entry relative to pb0.

    A load of GAMMA, BETA or TAU also sets {V, P}, and a store of them takes it.
    """

    GAMMA = 0
    BETA = 1
    TAU = 2
    SG = 3
    SB = 4
    ST = 5


class Operand(enum.IntEnum):
    """``x``: the wide operand. SUM, P, V, S, Q are for scalar sweeps (lane 0)."""

    ZERO = 0
    IN = 1    #: partial sums or weight gradients (+ XIN), as the command's xsrc says
    POOL = 2  #: maximum or sum of the window
    S = 3     #: plane register S, 64 bits
    SUM = 4   #: channel register ``reg`` (SG, SB, ST)
    Q = 5     #: plane register q
    P = 6     #: master (int32)
    V = 7     #: velocity (int32)


class Factor(enum.IntEnum):
    """``factor`` of MUL1, 18 bits signed."""

    NONE = 0
    Q = 1
    INV = 2
    MOMENTUM = 3
    LM = 4
    GAMMA = 5


class Shift(enum.IntEnum):
    """A shift amount; SH0 + i is shift register i of the command."""

    ZERO = 0
    RIGHT8 = 1
    RIGHT16 = 2
    SH0 = 8
    SH1 = 9
    SH2 = 10
    SH3 = 11
    SH4 = 12
    SH5 = 13
    SH6 = 14
    SH7 = 15


class Term2(enum.IntEnum):
    NONE = 0
    R = 1         #: channel register R
    MOMENTUM = 2  #: (momentum * b) << 8
    P = 3         #: master


class Term3(enum.IntEnum):
    NONE = 0
    D = 1      #: align(d, sh3)
    DECAY = 2  #: the same, unless weight decay is off


class Destination(enum.IntEnum):
    """Where t of lane 0 goes, saturated to the width named."""

    NONE = 0
    R = 1      #: channel register R, 64 bits
    GRAD = 2   #: channel register R, 32 bits
    V = 3      #: velocity, 32 bits
    P = 4      #: master, clamped to -2^27 .. 2^27 - 1
    MEAN = 5   #: plane register mean, 24 bits (u is the same for any wider mean)
    GL = 6     #: plane register gl, 16 bits
    S = 7      #: plane register S, first beat of the plane
    LOGIT = 8  #: LOGIT[ob0 + plane om0], 24 bits


class Accumulate(enum.IntEnum):
    NONE = 0
    ABS = 1      #: abs(x), from epsilon on
    PRODUCT = 2  #: product of MUL2, from 0 on


class Multiplicand(enum.IntEnum):
    V = 0  #: value of encoder 1
    U = 1
    D = 2


class Multiplier(enum.IntEnum):
    GAMMA = 0
    GL = 1
    LM = 2
    B = 3


class Base(enum.IntEnum):
    T = 0
    PRODUCT = 1
    ZERO = 2


class Y2(enum.IntEnum):
    NONE = 0
    BETA = 1  #: beta << 8
    A = 2     #: a << 16


class Y3(enum.IntEnum):
    NONE = 0
    A = 1        #: + align(a, shy)
    PRODUCT = 2  #: - align(product, shy)


class Compare(enum.IntEnum):
    NONE = 0  #: bit = 1, r = y
    TAU = 1   #: bit = y >= tau << 8; r = bit ? y : tau << 8
    ZERO = 2  #: bit = y > 0; r = bit ? y : 0


class OutB(enum.IntEnum):
    NONE = 0
    CODE1 = 1  #: code of encoder 1
    INDEX = 2  #: raw position of the maximum in its window


@dataclasses.dataclass(frozen=True)
class MicroField:
    """``width`` bits from bit ``lsb``; ``kind`` names the values."""

    name: str
    lsb: int
    width: int
    doc: str
    kind: type[enum.IntEnum] | None = None


FIELDS: dict[str, MicroField] = {field.name: field for field in (
    MicroField("end", 0, 1, "last microinstruction of the program"),
    MicroField("kind", 1, 2, "what it does", Kind),
    MicroField("loop", 3, 2, "beats of the sweep", Loop),
    MicroField("reg", 5, 3, "first entry of a LOAD or STORE; the sum that is operand x", Register),
    MicroField("count", 8, 2, "entries of a LOAD or STORE"),
    MicroField("x", 10, 3, "operand x", Operand),
    MicroField("factor", 13, 3, "factor of MUL1", Factor),
    MicroField("sh1", 16, 4, "shift of p before ADD1", Shift),
    MicroField("right1", 20, 1, "sh1 counts to the right"),
    MicroField("minus1", 21, 1, "subtract p in ADD1"),
    MicroField("t2", 22, 2, "second term of ADD1", Term2),
    MicroField("t3", 24, 2, "third term of ADD1", Term3),
    MicroField("sh3", 26, 4, "shift of the third term", Shift),
    MicroField("keep", 30, 1, "d = a, whatever the bitmap says"),
    MicroField("dst", 32, 4, "register that takes t", Destination),
    MicroField("acc", 36, 2, "sum over each plane", Accumulate),
    MicroField("sums", 38, 1, "add d to sb and a - d to st"),
    MicroField("c1", 40, 4, "shift of encoder 1", Shift),
    MicroField("c1le", 44, 1, "add le of the plane to it"),
    MicroField("long", 45, 1, "the stages from MUL2 on take encoder 1's result"),
    MicroField("m2a", 46, 2, "multiplicand of MUL2", Multiplicand),
    MicroField("m2b", 48, 2, "multiplier of MUL2", Multiplier),
    MicroField("base", 50, 2, "first term of ADD2", Base),
    MicroField("y2", 52, 2, "second term of ADD2", Y2),
    MicroField("y3", 54, 2, "third term of ADD2", Y3),
    MicroField("shy", 56, 4, "shift of the third term", Shift),
    MicroField("cmp", 60, 2, "comparison", Compare),
    MicroField("c2", 64, 4, "shift of encoder 2", Shift),
    MicroField("c2le", 68, 1, "add le of the plane to it"),
    MicroField("wa", 69, 1, "output A = code of encoder 2"),
    MicroField("wb", 70, 2, "output B", OutB),
    MicroField("wm", 72, 1, "output bitmap = bit"),
    MicroField("wx", 73, 1, "wide output = x"),
)}
"""Every field, in order."""


def MicroLayout() -> FlexibleLayout:
    """A microinstruction as an Amaranth layout of ``MICRO_BITS`` bits."""
    return FlexibleLayout(MICRO_BITS, {f.name: LayoutField(Shape(f.width), f.lsb) for f in FIELDS.values()})


def encode(**values: int) -> list[int]:
    """The ``MICRO_WORDS`` words of a microinstruction; fields that are not named are 0.

    Raises
    ------
    :exc:`ValueError`
        If there is no such field or the value does not fit it.
    """
    bits = 0
    for name, value in values.items():
        if name not in FIELDS:
            raise ValueError(f"a microinstruction has no field {name!r}; the fields are {', '.join(FIELDS)}")
        field = FIELDS[name]
        legal = set(field.kind) if field.kind else range(1 << field.width)
        if int(value) not in legal:
            raise ValueError(f"field {name!r} of a microinstruction cannot be {value!r}")
        bits |= int(value) << field.lsb
    return [bits >> (32 * i) & 0xFFFFFFFF for i in range(MICRO_WORDS)]


def decode(words: list[int]) -> dict[str, int]:
    """Every field of a microinstruction's words."""
    bits = sum(word << (32 * i) for i, word in enumerate(words))
    return {f.name: bits >> f.lsb & ((1 << f.width) - 1) for f in FIELDS.values()}
