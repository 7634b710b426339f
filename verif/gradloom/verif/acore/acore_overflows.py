"""Overflows of the A-Core's lanes, one value at a time: each flag of each channel and lane alone, in one of several beats.

Every other value of the same sweep, and the same value one step nearer to 0, is the last one that fits.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from gradloom.contracts.isa import Opcode, XSource
from gradloom.contracts.microcode import Y3, Base, Kind, Multiplicand, Multiplier, Register, Shift, encode
from gradloom.contracts.microprograms import TABLE
from gradloom.verif.acore.acore_bench import Bench
from gradloom.verif.acore.acore_case import AuxReference
from gradloom.verif.acore.acore_commands import command, shift_sum, shift_word
from gradloom.verif.plain_arith import code_of

__all__ = ["OVERFLOW", "SOURCES", "Place", "Source", "own_program", "places"]

OVERFLOW = 0x12
_BEATS = 6
_Q = 1 << 15


@dataclasses.dataclass(frozen=True)
class Place:
    """A value of the sweep, and the sign of what is added to it."""

    beat: int
    lane: int
    channel: int
    sign: int


class _Sums(dict[tuple[int, ...], int]):
    """Partial sums that are 0 but for those that are named."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: tuple[int, ...]) -> int:
        return 0


def _set_sum(ref: AuxReference, place: Place, value: int) -> None:
    """The partial sum of a place; all others are 0."""
    ref.psum_override = _Sums({(0, 0, place.lane, place.beat, place.channel): value})


def _stream(ref: AuxReference, memory: dict[int, int], value: int, place: Place | None = None) -> None:
    """A stream with the code of ``value`` everywhere, or at a place alone."""
    group = ref.config.group
    for beat in range(_BEATS):
        memory[beat] = sum(code_of(value) << (8 * i) for i in range(2 * group)
                           if place is None or (beat, i) == (place.beat, place.lane * group + place.channel))


def _wide(ref: AuxReference, others: int, value: int | None = None, place: Place | None = None) -> None:
    """XIN, such that weight gradients and it add up to ``others``, at a place to ``value``."""
    group = ref.config.group
    for beat in range(_BEATS):
        ref.xin[beat] = 0
        for lane, c in itertools.product(range(2), range(group)):
            here = place is not None and value is not None and (beat, lane, c) == (place.beat, place.lane, place.channel)
            total = (value if here else others) or 0
            ref.xin[beat] |= ((total - ref.dw(beat, lane, c)) & (1 << 64) - 1) << (64 * (lane * group + c))


@dataclasses.dataclass(frozen=True)
class Source:
    """One flag of the lanes.

    Parameters
    ----------
    program : :class:`str`
        Microprogram, or empty for :func:`own_program`.
    prepare : callable
        Sets memories so that the value at the place overflows (True), or is the last one that fits (False).
    weights : :class:`bool`
        It sweeps weight gradients.
    """

    program: str
    prepare: Callable[[AuxReference, Place, bool], None]
    shifts: tuple[dict[str, int], ...]
    weights: bool = False

    def words(self, address: int, **changes: int) -> list[int]:
        """The command; ``address`` of the own program."""
        fields: dict[str, Any] = {"planes": 1, "nb": _BEATS, "xe": _BEATS, "py": 1, "pj": 2 * _BEATS, "n": 2 * _BEATS, "pl0": 16,
                                  "f1": 8, "f2": 8, "inv": 1 << 15}
        if self.weights:
            fields |= {"xsrc": XSource.DW, "nr": 1, "nk": 3, "xin": 1}
        fields["uprog"] = TABLE[self.program] if self.program else address
        return command(Opcode.RUN, [shift_word(**s) for s in self.shifts], **fields | changes)


def _operand(ref: AuxReference, place: Place, overflow: bool) -> None:
    edge = (1 << 47) - (place.sign > 0)
    _wide(ref, place.sign * edge, place.sign * (edge + overflow), place)


def _bias(ref: AuxReference, place: Place, overflow: bool) -> None:
    for c in range(ref.config.group):
        ref.set_entry(1, c, place.sign * (1 << 26) & 0xFFFFFFFF)
    _set_sum(ref, place, place.sign * overflow)


def _added(ref: AuxReference, place: Place, overflow: bool) -> None:
    _stream(ref, ref.aa, place.sign)
    _set_sum(ref, place, place.sign * overflow)


def _decay(ref: AuxReference, place: Place, overflow: bool) -> None:
    _wide(ref, place.sign << 40)
    _stream(ref, ref.aa, place.sign * overflow, place)
    _stream(ref, ref.ab, 0)


def _residual(ref: AuxReference, place: Place, overflow: bool) -> None:
    for c in range(ref.config.group):
        ref.set_entry(0, c, 1 << 12)
        for entry in (1, 2):
            ref.set_entry(entry, c, 0)
        ref.set_entry(16, c, _Q | 23 << 16)
    _added(ref, place, overflow)


def _step(ref: AuxReference, place: Place, overflow: bool) -> None:
    # v' = -sign everywhere, so that minus its aligned product is the largest number, or more than that by one.
    _wide(ref, -place.sign)
    _stream(ref, ref.ab, 0)
    if place.sign > 0:
        # -(-2^63) does not fit: where w is -1 it does.
        for beat in range(_BEATS):
            ref.aa[beat] = int.from_bytes(bytes([code_of(-1)] * (2 * ref.config.group)), "little")
        if overflow:
            ref.aa[place.beat] &= ~(0xFF << 8 * (place.lane * ref.config.group + place.channel))
    else:
        _stream(ref, ref.aa, -1 * overflow, place)


def _product(ref: AuxReference, place: Place, overflow: bool) -> None:
    _stream(ref, ref.aa, place.sign)
    _stream(ref, ref.ab, 0)
    bit = place.beat % 8 * 2 * ref.config.group + place.lane * ref.config.group + place.channel
    ref.am[0] = overflow << bit
    for c in range(ref.config.group):
        ref.set_entry(0, c, 1 << 12)


SOURCES: dict[str, Source] = {
    "operand of MUL1": Source("WU", _operand, (*shift_sum(0, -40),), weights=True),
    "bias and partial sum": Source("RELU_FWD", _bias, (*shift_sum(0, 60),)),
    "shortcut error and partial sum": Source("BP_OUT_ADD", _added, (*shift_sum(2, 63),)),
    "gradient and weight decay": Source("WU", _decay, (*shift_sum(0, 10), *shift_sum(3, -20)), weights=True),
    "normalised value and residual": Source("FRN_ROWS_RES", _residual, (*shift_sum(2, 63),)),
    "weight and its step": Source("WU", _step, (*shift_sum(0, -15), *shift_sum(3, 63)), weights=True),
    "product and a stream": Source("", _product, (*shift_sum(2, 63),)),
}
"""By what is added; each has a flag of its own in every lane of every channel."""


def own_program() -> list[int]:
    """Words of gamma 16 d + align(a, SH2), where b = 0: on the short path, where no microprogram has a sum behind MUL2."""
    load = encode(kind=Kind.LOAD, reg=Register.GAMMA, count=1)
    return load + encode(kind=Kind.SWEEP, m2a=Multiplicand.U, m2b=Multiplier.GAMMA, base=Base.PRODUCT, y3=Y3.A, shy=Shift.SH2, wa=1)


def places(bench: Bench, source: Source) -> Iterator[Place]:
    """Every lane of every channel, in the first beat or in the middle, up and down in turns."""
    lanes = 1 if source.weights and bench.config.group == 1 else 2
    for number, (lane, channel) in enumerate(itertools.product(range(lanes), range(bench.config.group))):
        for beat, sign in ((0, 1), (2, -1)) if number % 2 else ((0, -1), (2, 1)):
            yield Place(beat, lane, channel, sign)
