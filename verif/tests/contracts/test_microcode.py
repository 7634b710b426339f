"""Microinstruction format and the built-in microprograms, as data."""

import random
import re

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.microcode import (
    FIELDS,
    MICRO_BITS,
    MICRO_WORDS,
    Base,
    Each,
    Kind,
    OutB,
    Register,
    ScalarOperand,
    ScalarTerm,
    decode,
    encode,
)
from gradloom.contracts.microprograms import PROGRAMS, TABLE, WORDS
from gradloom.rtl.acore.micro_layout import MicroLayout
from gradloom.verif.acore.prepare_bench import conflict

NAMES = {"FRN_FWD", "FRN_FWD_RES", "FRN_FWD_LIN", "RELU_FWD", "LIN_FWD", "LOGITS", "BP_OUT", "BP_OUT_RES", "BP_OUT_ADD",
         "FRN_NORM", "FRN_NORM_ADD", "FRN_LAM", "FRN_ROWS", "FRN_ROWS_RES", "FRN_ROWS_LIN",
         "FRN_SUM", "FRN_SUM_LIN", "FRN_ADD", "FRN_ADD_LIN", "FRN_ERR", "FRN_ERR_LIN",
         "FRN_BWD", "FRN_BWD_LIN", "RELU_BWD", "LIN_BWD", "PARAM_UPD", "BIAS_UPD", "WU", "WU_REST", "DW_EXPORT", "MAXPOOL_FWD",
         "MAXPOOL_BWD", "AVGPOOL_FWD", "AVGPOOL_BWD"}


def test_fields_do_not_overlap():
    taken = set()
    for field in FIELDS.values():
        bits = set(range(field.lsb, field.lsb + field.width))
        assert not bits & taken, field.name
        assert max(bits) < MICRO_BITS
        assert field.lsb // 32 == max(bits) // 32, f"{field.name} crosses a word"
        if field.kind:
            assert max(field.kind) < 1 << field.width
        taken |= bits


def test_round_trip():
    rng = random.Random(1)
    for _ in range(200):
        values = {f.name: rng.choice(list(f.kind)) if f.kind else rng.randrange(1 << f.width) for f in FIELDS.values()}
        words = encode(**values)
        assert len(words) == MICRO_WORDS
        assert words[3] == 0
        assert decode(words) == values


def test_layout_agrees_with_fields():
    layout = MicroLayout()
    assert layout.size == MICRO_BITS
    for name, field in layout:
        assert (field.offset, field.width) == (FIELDS[name].lsb, FIELDS[name].width)


def test_unknown_field():
    with pytest.raises(ValueError, match=re.escape("a microinstruction has no field 'foo'; the fields are end, kind, keep,")):
        encode(foo=1)


@pytest.mark.parametrize("values", [{"x": 3}, {"end": 2}, {"t2": -1}, {"sdst": 8}, {"sh1": 3}])
def test_values_that_do_not_fit(values):
    name, value = next(iter(values.items()))
    with pytest.raises(ValueError, match=re.escape(f"field {name!r} of a microinstruction cannot be {value!r}")):
        encode(**values)


def test_table():
    assert set(TABLE) == NAMES
    micro = [decode(WORDS[i:i + MICRO_WORDS]) for i in range(0, len(WORDS), MICRO_WORDS)]
    for name, address in TABLE.items():
        length = len(PROGRAMS[name])
        assert [m["end"] for m in micro[address:address + length]] == [0] * (length - 1) + [1]
    assert all(len(micro) <= config.microcode_depth for config in PRESETS.values())


def test_programs_keep_the_rules():
    """What the hardware leaves to the microprograms (docstrings of gradloom.contracts.microcode)."""
    for name, program in PROGRAMS.items():
        kinds = [micro["kind"] for micro in program]
        assert Kind.SWEEP not in kinds[:-1], name
        assert Kind.SUMS not in kinds[1:], name
        under_way = []
        for micro in program:
            if micro["kind"] == Kind.SCALAR:
                uses_sums = micro["sx"] == ScalarOperand.PLANE or micro.get("st2") == ScalarTerm.TOTAL
                assert not uses_sums or kinds[0] == Kind.SUMS, name
                under_way = under_way if micro.get("chain") else []
                assert not conflict(micro, under_way), name
                under_way = [*under_way, micro]
                if micro["sx"] in (ScalarOperand.Q, ScalarOperand.NORM):
                    assert micro["each"] == Each.PLANE, name
                if micro["sx"] == ScalarOperand.PLANE:
                    # The sum of a command's only plane is one for each channel.
                    assert micro["each"] == Each.PLANE or micro["reg"] == Register.PLANE, name
            if micro["kind"] == Kind.SWEEP and micro.get("long"):
                assert micro.get("wb") == OutB.CODE1, name
                assert micro["base"] != Base.T, name
            if micro["kind"] == Kind.SWEEP and micro.get("base") == Base.T:
                assert "y2" not in micro, name
                assert "y3" not in micro, name
