"""Microinstruction format and the built-in microprograms, as data."""

import random
import re

import pytest

from gradloom.rtl.config import PRESETS
from gradloom.rtl.microcode import FIELDS, MICRO_BITS, MICRO_WORDS, Kind, MicroLayout, Operand, decode, encode
from gradloom.rtl.microprograms import PROGRAMS, TABLE, WORDS

NAMES = {"FRN_FWD", "FRN_FWD_RES", "FRN_FWD_LIN", "RELU_FWD", "LIN_FWD", "LOGITS", "BP_OUT", "BP_OUT_RES", "BP_OUT_ADD",
         "FRN_BWD", "FRN_BWD_LIN", "RELU_BWD", "LIN_BWD", "PARAM_UPD", "BIAS_UPD", "WU", "DW_EXPORT", "MAXPOOL_FWD",
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
    with pytest.raises(ValueError, match=re.escape("a microinstruction has no field 'foo'; the fields are end, kind, loop,")):
        encode(foo=1)


@pytest.mark.parametrize("values", [{"x": 8}, {"end": 2}, {"t2": -1}, {"dst": 9}, {"sh1": 3}])
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


def test_programs_store_only_what_they_loaded():
    for name, program in PROGRAMS.items():
        loaded = set()
        for micro in program:
            entries = set(range(micro.get("reg", 0), micro.get("reg", 0) + micro.get("count", 0)))
            if micro.get("kind") == Kind.LOAD:
                loaded |= entries
            if micro.get("kind") == Kind.STORE:
                assert entries <= loaded, name
            if micro.get("x") == Operand.SUM:
                assert micro["reg"] in loaded, name
