"""Programs with one thing wrong: the validator finds it and says it."""

import dataclasses
import struct

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Dest, Opcode, Pattern, Source
from gradloom.contracts.microprograms import TABLE
from gradloom.host.program.assembler import Instruction, assemble
from gradloom.host.program.validator import validate
from gradloom.host.schedule import compile_network
from gradloom.verif.networks import two_layers

CONFIG = PRESETS["small"]
END = Instruction(Opcode.END)
BASE = Instruction(Opcode.SETBASE, {"breg": 0, "value": 0x1000})
_PAIR = {"pattern": int(Pattern.PAIR), "s2": 1, "steps": 1, "units": 1, "cols": 1, "upi": 1, "nr": 1, "nk": 2}


def _load(**fields):
    values = {"dest": int(Dest.AA), "n0": 1, "n1": 1, "n2": 1, **fields}
    return Instruction(Opcode.LOAD, values)


def _texts(instructions, **options):
    return [str(defect) for defect in validate(assemble([*instructions, END], CONFIG), CONFIG, **options)]


def _plan():
    return compile_network(two_layers(), CONFIG, 4, calibrate=True, slots=3, table=3)


def test_a_machine_program_has_no_defect():
    plan = _plan()
    assert validate(plan.program(7), CONFIG, window=(0, plan.size), steps=3, first_step=7) == []


def test_a_table_at_an_odd_word():
    table = [Instruction(Opcode.SETBASE, {"value": 4}), Instruction(Opcode.LDHYP, {"offset": 16}), END]
    found = [str(defect) for defect in validate(assemble(table, CONFIG), CONFIG)]
    assert found == ["byte 24: LDHYP: the table at 0x14 must begin at a multiple of 8 bytes"]


def test_a_window_one_byte_short_is_noticed():
    plan = _plan()
    last = max(region.address + region.data_bytes() for region in plan.memory.regions.values())
    assert validate(plan.program(), CONFIG, window=(0, last), steps=3) == []
    found = validate(plan.program(), CONFIG, window=(0, last - CONFIG.beat_bytes), steps=3)
    assert found and all("lie outside the window" in defect.text for defect in found)
    logits = plan.memory["fc", "logits"]
    end = logits.address + logits.size
    late = [
        defect
        for defect in validate(plan.program(), CONFIG, window=(0, end), steps=4)
        if "of step 3" in defect.text
    ]
    assert late


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n1": 0}, "byte 24: LOAD: n0, n1 and n2 must be above 0"),
        ({"offset": 2}, "byte 24: LOAD: offset 2 is no multiple of the beat of 4 bytes"),
        ({"n0": 2049}, "byte 24: LOAD: AA addresses 0..2048 leave its 2048 addresses"),
        ({"addr0": 2048}, "byte 24: LOAD: AA addresses 2048..2048 leave its 2048 addresses"),
        (
            {"dest": int(Dest.PBUF), "n0": 6},
            "byte 24: LOAD: 6 beats are no whole number of PBUF addresses of 4 beats",
        ),
        ({"dest": 9}, "byte 24: LOAD: there is no memory 9"),
        ({"way": 1}, "byte 24: LOAD: there is no way 1 to AA: 1 of the load channels lead there"),
        (
            {"dest": int(Dest.IBUF), "n0": 6, "xb": 4, "bstep": 1},
            "byte 24: LOAD: 6 beats are no whole number of rows of 4",
        ),
        (
            {"dest": int(Dest.IBUF), "n0": 8, "xb": 4, "bstep": 2},
            "byte 24: LOAD: bank 0, step 2: banks are 0..2, steps 1 or 3",
        ),
        (
            {"dest": int(Dest.EBUF), "n0": 16, "xb": 4, "xe": 4, "bstep": 1, "addr0": 1017},
            "byte 24: LOAD: row bank addresses 1017..1024 leave its 1024 addresses",
        ),
        (
            {"dest": int(Dest.WBUF), "n0": 9, "n1": 200, "ostep": 3},
            "byte 24: LOAD: weight buffer addresses 0..599 leave its 512 addresses",
        ),
        ({"breg": 3}, "byte 24: LOAD: base register 3 has not been set"),
    ],
)
def test_loads(fields, message):
    assert message in _texts([BASE, _load(**fields)])


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (
            Instruction(Opcode.STORE, {"src": int(Source.LOGIT), "n0": 3, "n1": 1, "n2": 1}),
            "byte 24: STORE: 3 beats are no whole number of LOGIT addresses of 2 beats",
        ),
        (
            Instruction(Opcode.STORE, {"src": 6, "n0": 1, "n1": 1, "n2": 1}),
            "byte 24: STORE: there is no memory 6",
        ),
        (
            Instruction(Opcode.CONV, {"steps": 1, "units": 1, "cols": 1, "upi": 1, "nk": 1}),
            "byte 24: CONV: nr must be above 0",
        ),
        (
            Instruction(Opcode.CONV, {"steps": 1, "units": 1, "cols": 1, "upi": 2, "u0": 2, "nk": 1, "nr": 1}),
            "byte 24: CONV: u0 must be below upi, 2, not 2",
        ),
        (
            Instruction(Opcode.CONV, {"steps": 1, "units": 100, "cols": 12, "upi": 1, "nk": 1, "nr": 1}),
            "byte 24: CONV: partial-sum addresses 0..299 leave its 256 addresses",
        ),
        (
            Instruction(
                Opcode.CONV, {"steps": 1, "units": 1, "cols": 1, "upi": 1, "nk": 3, "nr": 3, "woa1": -1}
            ),
            "byte 24: CONV: weight buffer addresses -1..0 leave its 512 addresses",
        ),
        (
            Instruction(Opcode.RUN, {"nb": 1, "xe": 1}),
            "byte 24: RUN: 0 planes, the configuration takes 1..32",
        ),
        (
            Instruction(Opcode.RUN, {"planes": 1, "nb": 1, "xe": 1, "pl0": 256}),
            "byte 24: RUN: reciprocal entries 256..256 leave its 256 addresses",
        ),
        (
            Instruction(Opcode.RUN, {"planes": 1, "nb": 1, "xe": 1, "t2": 300}),
            "byte 24: RUN: tensor 300 (t2) is not below 256",
        ),
        (
            Instruction(Opcode.SOFTMAX, {"images": 1, "classes": 65}),
            "byte 24: SOFTMAX: 65 classes, the configuration takes 1..64",
        ),
        (Instruction(Opcode.SEED, {"tid": 256}), "byte 24: SEED: tensor 256 (tid) is not below 256"),
        (Instruction(Opcode.LOOP, {"target": 4}), "byte 24: LOOP goes to byte 4, where no command begins"),
    ],
)
def test_fields(instruction, message):
    assert message in _texts([BASE, instruction])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"units": 12, "cols": 65}, "partial-sum addresses 0..389 leave its 256 addresses"),
        ({"s2": 0}, "s2 must be 1 with PAIR, not 0: every window takes the next pair of columns"),
        ({"par0": 1}, "par0 must be 0 with PAIR, not 1: a window is a stored pair, which begins at an even column"),
        ({"colstep": 1}, "colstep must be 0 with PAIR, not 1: a window is a stored pair, which begins at an even column"),
        ({"preload": 1}, "preload must be 0 with PAIR, not 1: a window is one entry"),
        ({"nk": 3}, "nk must be at most 2 with PAIR, not 3: a window has two columns"),
        ({"sums": 1}, "sums must be 0 with PAIR, not 1: the K3 command that adds to its sums gathers them"),
        ({"transpose": 1}, "transpose must be 0 with PAIR, not 1: it is for the forward pass only"),
        ({"flip": 1}, "flip must be 0 with PAIR, not 1: it is for the forward pass only"),
        ({"wg": 1}, "pattern must be K3 or K1 with wg, not PAIR"),
        ({"wg": 1, "pattern": int(Pattern.BP2)}, "pattern must be K3 or K1 with wg, not BP2"),
    ],
)
def test_what_a_pair_of_columns_may_not_have(fields, message):
    assert f"byte 24: CONV: {message}" in _texts([BASE, Instruction(Opcode.CONV, _PAIR | fields)])


def test_a_pair_of_columns_has_no_defect():
    fields = _PAIR | {"units": 12, "cols": 42, "nr": 3, "acc": 1, "lap_end": CONFIG.laps - 1}
    assert _texts([BASE, Instruction(Opcode.CONV, fields)]) == []


def _of(config, instruction):
    return [str(defect) for defect in validate(assemble([BASE, instruction, END], config), config)]


_SHARED = {"steps": 1, "units": 4, "cols": 7, "upi": 4, "nr": 3, "nk": 3, "par0": 1, "shared": 1, "scols": 3}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pattern": int(Pattern.BP2)}, "shared must be 0 with BP2: two or three WPUs share rows, with K3"),
        ({"scols": 2}, "scols 2 of 7 windows: 2 parts of an even number and a longer last one must make up a row"),
        ({"scols": 5}, "scols 5 of 7 windows: 2 parts of an even number and a longer last one must make up a row"),
        ({"scols": 7}, "scols 7 of 7 windows: 2 parts of an even number and a longer last one must make up a row"),
        ({"cols": 6, "scols": 2}, "scols 2 of 6 windows: 2 parts of an even number and a longer last one must make up a row"),
        ({"e0": 1}, "e0 must be 0 where rows are shared, not 1: a row begins with one column of padding"),
        ({"par0": 0}, "par0 must be 1 where rows are shared, not 0: a row begins with one column of padding"),
        ({"sbank": 9}, "sbank must be below 9, not 9"),
    ],
)
def test_what_shared_rows_may_not_have(fields, message):
    eta = PRESETS["eta"]
    assert _of(eta, Instruction(Opcode.CONV, _SHARED)) == []
    assert f"byte 24: CONV: {message}" in _of(eta, Instruction(Opcode.CONV, _SHARED | fields))
    assert "byte 24: CONV: shared must be 0 with one WPU: two or three WPUs share rows, with K3" in _of(
        CONFIG, Instruction(Opcode.CONV, _SHARED | fields)
    )


def test_a_shared_row_group_needs_its_own_sums():
    fields = _SHARED | {"units": 5, "pbase": 512 - 8}
    text = "byte 24: CONV: partial-sum addresses 504..511 leave its 511 addresses"
    config = dataclasses.replace(PRESETS["eta"], psum_depth=511)
    assert text in _of(config, Instruction(Opcode.CONV, fields)), "three row groups: one of three rows, two of one"


@pytest.mark.parametrize(("field", "text"), [
    ("sm0", "sm0 6 and sa0 4 are both odd or both even: weights and rests must be in different halves of AA"),
    ("om0", "om0 6 and oa0 4 are both odd or both even: weights and rests must be in different halves of OA"),
])
def test_rests_lie_beside_weights(field, text):
    run = {"planes": 1, "nb": 1, "xe": 1, "py": 1, "nr": 1, "nk": 1, "sa0": 4, "oa0": 4, "sm0": 7, "om0": 7,
           "uprog": TABLE["WU_REST"]}
    assert _of(CONFIG, Instruction(Opcode.RUN, run)) == []
    assert [f"byte 24: RUN: {text}, its even and its odd addresses"] == _of(CONFIG, Instruction(Opcode.RUN, run | {field: 6}))


@pytest.mark.parametrize("fields", [{"shared": 3}, {"sbeats": 0}, {"sbeats": 2}])
def test_shared_rows_of_a_sweep(fields):
    run = {"planes": 1, "nb": 8, "xe": 4, "py": 2, "shared": 2, "sbeats": 1, "uprog": TABLE["BP_OUT"]}
    eta = PRESETS["eta"]
    assert _of(eta, Instruction(Opcode.RUN, run)) == []
    found = _of(eta, Instruction(Opcode.RUN, run | fields))
    assert "byte 24: RUN: shared must be 0 with layout 2, not 2: sums of shared rows lie in rows" in _of(
        eta, Instruction(Opcode.RUN, run | {"layout": 2})
    )
    assert any("each of 3 WPUs must have a part of a row's 4 beats, and a plane has 2 rows" in text for text in found)


def test_headers():
    data = bytearray(assemble([END], CONFIG))
    for word, value, message in (
        (0, 7, "header: the magic is 0x00000007, it must be 0x4d4c5247"),
        (1, 9, "header: the version is 9, this machine runs version 6"),
    ):
        wrong = bytearray(data)
        struct.pack_into("<I", wrong, 4 * word, value)
        assert [str(d) for d in validate(bytes(wrong), CONFIG)] == [message]
    assert "configuration digest" in str(validate(bytes(data), PRESETS["nano"])[0])
    assert "promises" in str(validate(bytes(data[:-4]), CONFIG)[0])
    assert [str(d) for d in validate(assemble([Instruction(Opcode.BARRIER)], CONFIG), CONFIG)] == [
        "byte 0: the program does not end with END"
    ]
