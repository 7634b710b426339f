"""Microinstructions of the A-Core: what a RUN command prepares for its planes, and how its one sweep sets the lanes.

A microprogram is a list of microinstructions in the program memory, from a RUN's ``uprog`` to its SWEEP or to the first one
with ``end``. There are no branches. A RUN passes three stages (:mod:`gradloom.rtl.acore.acore`), each of which may hold a command:

1. FIRST_PASS: sums of gradients of every plane, gathered if the first microinstruction is SUMS.
2. PREPARE: LOAD and SCALAR, one after the other. A SCALAR computes one number per channel, or per channel and plane, in the
   pipeline of :mod:`gradloom.rtl.acore.scalars`: t = +-align(``sx`` * ``sf``, ``ssh``) + ``st2``, which goes to ``sdst``. It waits
   for the results of those before it; with ``chain`` only for what they give to its register R, unless that is register 0, and to
   epsilon. So chained SCALARs must not read entries that those before them write, and none may follow a division. Nor does one
   that is computed for every plane see its own results.
3. SWEEP: every beat of every plane goes through the lanes, one a cycle.

The pipeline of a lane, in order (x, a, b, d and the registers are per channel):

====== ===================================================================================================
stage  what a SWEEP chooses
====== ===================================================================================================
fetch  a, b = decoded bytes of streams A, B; d = bitmap bit (or ``keep``) ? a : 0; x = operand ``x``
MUL1   p = x * ``factor`` (x saturated to 48 bits) or x itself
ADD1   t = align(p, ``sh1``) + ``t2`` + ``t3``
CONV1  v = encoder 1 of t, shift ``c1`` (+ le); skipped by the stages below unless ``long``
MUL2   p = ``m2a`` * ``m2b``; u = sat18((d << 4) - sgn(b) mean)
ADD2   y = ``base`` + ``y2`` + ``y3``
CMP    bit and r of y by ``cmp``
CONV2  z = encoder 2 of r, shift +-``c2`` (+ le)
====== ===================================================================================================

Every microinstruction is four 32-bit words in the program memory's word addresses (the fourth is not stored).
"""

import dataclasses
import enum

__all__ = [
    "FIELDS",
    "MICRO_BITS",
    "MICRO_WORDS",
    "Y2",
    "Y3",
    "Base",
    "Compare",
    "Each",
    "Factor",
    "Kind",
    "MicroField",
    "Multiplicand",
    "Multiplier",
    "Operand",
    "OutB",
    "Register",
    "ScalarDestination",
    "ScalarFactor",
    "ScalarOperand",
    "ScalarTerm",
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

    SWEEP = 0   #: all beats through the lanes; the last microinstruction
    LOAD = 1    #: parameter entries pb0 + ``reg`` .. pb0 + ``reg`` + ``count`` - 1 to gamma, beta, tau
    SCALAR = 2  #: one number per channel or plane
    SUMS = 3    #: first pass over the planes, with ``keep``; only as the first microinstruction


class Register(enum.IntEnum):
    """Parameter-buffer entries relative to pb0."""

    GAMMA = 0
    BETA = 1
    TAU = 2
    SG = 3
    SB = 4
    ST = 5
    PLANE = 6  #: sum of products of one plane that several commands add up


class Each(enum.IntEnum):
    """How often a SCALAR is computed, and which parameter-buffer entry it sees."""

    CHANNEL = 0  #: once a channel, entry pb0 + ``reg``
    PLANE = 1    #: once a channel of every plane, entry pl0 + plane


class ScalarOperand(enum.IntEnum):
    """``sx``."""

    ENTRY = 0     #: entry, 64 bits
    MASTER = 1    #: master in the entry, 32 bits
    VELOCITY = 2  #: velocity in the entry, 32 bits
    R = 3         #: channel register R[``r``], 64 bits
    Q = 4         #: q in the entry, 16 bits unsigned
    PLANE = 5     #: sum of d b over the plane, of the first pass
    NORM = 6      #: sum of abs(X) over the plane, from the C-Core
    N = 7         #: positions of a plane


class ScalarFactor(enum.IntEnum):
    """``sf``, 18 bits signed; the operand is saturated to 48 bits before the product."""

    NONE = 0
    INV = 1
    MOMENTUM = 2
    LM = 3
    GAMMA = 4


class ScalarTerm(enum.IntEnum):
    """``st2``."""

    NONE = 0
    R = 1        #: channel register R[``r``]
    MASTER = 2   #: master in the entry
    TOTAL = 3    #: sum of the first pass over all planes that belongs to ``reg``: d b (SG, PLANE), d, a - d
    EPSILON = 4  #: register epsilon
    ONE = 5      #: 1: half of what a MEAN's unit is


class ScalarDestination(enum.IntEnum):
    """``sdst``: where t goes, saturated to the width named."""

    R = 0        #: channel register R[``r``], 64 bits
    R32 = 1      #: channel register R[``r``], 32 bits
    PARAMETER = 2  #: the entry = {R[``r``], t}, 28 bits (a master stays within -2^27 .. 2^27 - 1); not when dry
    ENTRY = 3    #: the entry, 64 bits; not when dry
    EPSILON = 4  #: register epsilon, at least 1; there is one for all channels, and the SCALAR is computed once
    MEAN = 5     #: plane register mean = t >> 1, 24 bits (u is the same for any wider mean)
    SCALE = 6    #: plane register scale, the low 16 bits (q or gamma q fits), and le of the entry to plane register le
    DIVIDE = 7   #: q, le of n / t to plane registers scale, le; {le, q} to the entry, not when dry


class Operand(enum.IntEnum):
    """``x``: the wide operand of the lanes."""

    ZERO = 0
    IN = 1    #: partial sums or weight gradients (+ XIN), as the command's xsrc says
    POOL = 2  #: maximum or sum of the window


class Factor(enum.IntEnum):
    """``factor`` of MUL1, 18 bits signed."""

    NONE = 0
    Q = 1    #: plane register scale, unsigned; only with ``sh1`` ZERO, RIGHT8 or RIGHT16
    INV = 2


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
    R = 1         #: channel register R[0]
    MOMENTUM = 2  #: (momentum * b) << 8


class Term3(enum.IntEnum):
    NONE = 0
    D = 1      #: align(d, sh3)
    DECAY = 2  #: the same, unless weight decay is off


class Multiplicand(enum.IntEnum):
    V = 0  #: value of encoder 1 (only with ``long``)
    U = 1  #: (only without ``long``)


class Multiplier(enum.IntEnum):
    GAMMA = 0
    SCALE = 1  #: plane register scale, signed (only without ``long``)
    LM = 2


class Base(enum.IntEnum):
    T = 0        #: (only without ``long``)
    PRODUCT = 1
    ZERO = 2


class Y2(enum.IntEnum):
    """Added to a base other than T."""

    NONE = 0
    BETA = 1  #: beta << 8
    A = 2     #: a << 16, with ``rest`` and its rest: a number of 16 bits


class Y3(enum.IntEnum):
    NONE = 0
    A = 1        #: + align(a, shy)
    PRODUCT = 2  #: - align(product, shy); the product has at most 22 bits


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
    MicroField("end", 0, 1, "last microinstruction of a program without a sweep"),
    MicroField("kind", 1, 2, "what it does", Kind),
    MicroField("keep", 3, 1, "d = a, whatever the bitmap says"),
    MicroField("reg", 4, 3, "first entry of a LOAD; entry and sum of a SCALAR", Register),
    MicroField("count", 7, 2, "entries of a LOAD"),
    MicroField("chain", 9, 1, "begin before all results of the SCALARs before are there"),
    MicroField("each", 10, 1, "how often a SCALAR is computed", Each),
    MicroField("sx", 11, 3, "operand of a SCALAR", ScalarOperand),
    MicroField("sf", 14, 3, "factor of a SCALAR", ScalarFactor),
    MicroField("ssh", 17, 4, "shift of a SCALAR's product", Shift),
    MicroField("sright", 21, 1, "ssh counts to the right"),
    MicroField("sminus", 22, 1, "subtract the product"),
    MicroField("st2", 23, 3, "term that is added", ScalarTerm),
    MicroField("sdst", 26, 3, "destination of a SCALAR", ScalarDestination),
    MicroField("r", 29, 2, "register R of a SCALAR; from 1 on it waits for what SCALARs before give it"),
    MicroField("x", 32, 2, "operand x", Operand),
    MicroField("factor", 34, 2, "factor of MUL1", Factor),
    MicroField("sh1", 36, 4, "shift of p before ADD1", Shift),
    MicroField("t2", 40, 2, "second term of ADD1", Term2),
    MicroField("t3", 42, 2, "third term of ADD1", Term3),
    MicroField("sh3", 44, 4, "shift of the third term", Shift),
    MicroField("c1", 48, 4, "shift of encoder 1", Shift),
    MicroField("c1le", 52, 1, "add le of the plane to it"),
    MicroField("long", 53, 1, "the stages from MUL2 on take encoder 1's result"),
    MicroField("m2a", 54, 1, "multiplicand of MUL2", Multiplicand),
    MicroField("m2b", 55, 2, "multiplier of MUL2", Multiplier),
    MicroField("base", 57, 2, "first term of ADD2", Base),
    MicroField("y2", 59, 2, "second term of ADD2", Y2),
    MicroField("y3", 61, 2, "third term of ADD2", Y3),
    MicroField("shy", 64, 4, "shift of the third term", Shift),
    MicroField("cmp", 68, 2, "comparison", Compare),
    MicroField("c2", 70, 4, "shift of encoder 2", Shift),
    MicroField("c2left", 74, 1, "c2 counts to the left"),
    MicroField("c2le", 75, 1, "add le of the plane to it"),
    MicroField("wa", 76, 1, "output A = code of encoder 2"),
    MicroField("wb", 77, 2, "output B", OutB),
    MicroField("wm", 79, 1, "output bitmap = bit"),
    MicroField("wx", 80, 1, "wide output = x"),
    MicroField("wl", 81, 1, "LOGIT[ob0 + plane om0] = encoder 2's aligned value of the plane's first position, 24 bits"),
    MicroField("rest", 82, 1, "AA at sm0 and OA at om0 hold rests, of a and of encoder 2, which rounds with error feedback"),
)}
"""Every field, in order."""


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
