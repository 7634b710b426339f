"""The register map itself, its exports, and the page in docs/."""

import json
import re

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.regmap import (
    ERROR_DOCS,
    REGISTERS,
    TOTALS,
    ErrorCode,
    offset,
    perf_entries,
    perf_index,
    register,
)
from gradloom.contracts.regmap_export import to_c_header, to_json, to_markdown
from gradloom.rtl.memory_path import axi
from gradloom.verif.checkout import DOCS


def test_offsets_are_words_without_overlap_in_order():
    offsets = [entry.offset for entry in REGISTERS]
    assert offsets == sorted(set(offsets))
    assert all(place % 4 == 0 and place < 2**16 for place in offsets)
    names = [entry.name for entry in REGISTERS]
    assert len(set(names)) == len(names)


def test_fields_fit_and_do_not_overlap():
    for entry in REGISTERS:
        used = 0
        for bits in entry.fields:
            assert bits.mask < 2**32 and not used & bits.mask, f"{entry.name}.{bits.name}"
            used |= bits.mask


def test_lookup():
    assert offset("STATUS") == register("STATUS").offset == 0x084
    assert register("ERROR").field("tag").lsb == 16
    with pytest.raises(KeyError, match="register ERROR has no field 'nothing'"):
        register("ERROR").field("nothing")
    assert perf_index(3, 0x12) == 0x30012
    assert [perf_entries(PRESETS[name]) for name in ("nano", "eta")] == [512, 512]


def test_every_error_code_is_described_and_the_axi_units_agree():
    assert set(ERROR_DOCS) == set(ErrorCode)
    assert (axi.ERROR_READ_RESPONSE, axi.ERROR_READ_WINDOW, axi.ERROR_WRITE_RESPONSE, axi.ERROR_WRITE_WINDOW) == (
        ErrorCode.READ_RESPONSE, ErrorCode.READ_WINDOW, ErrorCode.WRITE_RESPONSE, ErrorCode.WRITE_WINDOW)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_constants_fit_their_registers(preset):
    for entry in REGISTERS:
        if entry.constant:
            assert 0 <= entry.constant(PRESETS[preset]) < 2**32


def test_markdown_page_is_current():
    assert (DOCS / "registers.md").read_text() == to_markdown(), (
        "docs/registers.md is out of date: python -m gradloom.contracts.regmap_export > docs/registers.md")


def test_json_holds_every_register_and_code():
    config = PRESETS["small"]
    table = json.loads(to_json(config))
    assert [entry["name"] for entry in table["registers"]] == [entry.name for entry in REGISTERS]
    assert {error["code"] for error in table["errors"]} == set(ErrorCode)
    values = {entry["name"]: entry.get("value") for entry in table["registers"]}
    assert values["CONFIG"] == config.digest()
    assert values["STATUS"] is None
    assert "value" not in to_json()


def test_c_header_defines_each_name_once():
    names = re.findall(r"^#define (\w+)", to_c_header(PRESETS["eta"]), re.MULTILINE)
    assert len(names) == len(set(names))
    assert {f"GRADLOOM_{entry.name}" for entry in REGISTERS} <= set(names)
    assert "GRADLOOM_CONFIG_VALUE" in names
    assert "GRADLOOM_CONFIG_VALUE" not in to_c_header()
    assert {f"GRADLOOM_{name}_LOW" for name in TOTALS} <= set(names)
