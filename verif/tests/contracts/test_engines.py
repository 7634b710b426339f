"""Which memory belongs to which channel, who has a semaphore for whom, and how many channels there may be."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS, ConfigError
from gradloom.contracts.engines import (
    LOAD_MAP,
    LOAD_UNITS,
    STORE_MAP,
    STORE_UNITS,
    TOKENS,
    Unit,
    load_channels,
    semaphore,
    unit_of,
    units,
)
from gradloom.contracts.isa import SEMAPHORES, Dest, Opcode, Source


def test_channels_divide_the_memories_and_number_the_semaphores():
    for channels, memories in ((LOAD_MAP, Dest), (STORE_MAP, Source)):
        for count, parts in channels.items():
            assert len(parts) == count
            listed = [memory for part in parts for memory in part]
            shared = [Dest.IBUF, Dest.WBUF] * (count - 1) if channels is LOAD_MAP and count > 2 else []
            assert sorted(listed) == sorted([*memories, *shared])
    assert [semaphore(*pair) for pair in TOKENS] == list(range(len(TOKENS))) and len(TOKENS) <= SEMAPHORES
    for config in PRESETS.values():
        for memory in Dest:
            core = Unit.CCORE if memory <= Dest.WBUF else Unit.ACORE
            loaders = [LOAD_UNITS[channel] for channel in load_channels(config, memory)]
            assert loaders == [unit_of(config, Opcode.LOAD, memory, way) for way in range(len(loaders))]
            for unit in loaders:
                assert semaphore(unit, core) is not None and semaphore(core, unit) is not None
    assert semaphore(Unit.LOAD, Unit.LOAD1) is None and semaphore(Unit.CCORE, Unit.STORE) is None
    eta, nano = PRESETS["eta"], PRESETS["nano"]
    assert units(eta) == (*LOAD_UNITS, Unit.CCORE, Unit.ACORE, *STORE_UNITS)
    assert units(nano) == (Unit.LOAD, Unit.CCORE, Unit.ACORE, Unit.STORE)
    for way, inputs in enumerate(LOAD_UNITS):
        weights = {Unit.LOAD: Unit.LOAD1, Unit.LOAD1: Unit.LOAD}.get(inputs, inputs)
        memories = (Dest.IBUF, Dest.EBUF, Dest.WBUF, Dest.AA, Dest.PBUF, 15)
        assert [unit_of(eta, Opcode.LOAD, memory, way) for memory in memories] == [
            inputs, Unit.LOAD1, weights, Unit.LOAD2, Unit.LOAD3, Unit.LOAD]
    assert unit_of(nano, Opcode.LOAD, Dest.AA, 1) == Unit.LOAD
    assert [unit_of(eta, Opcode.STORE, memory) for memory in (Source.OA, Source.OB, 15)] == [
        Unit.STORE, Unit.STORE1, Unit.STORE]
    assert unit_of(nano, Opcode.STORE, Source.OB) == Unit.STORE and unit_of(eta, Opcode.UCODE) == Unit.ACORE


@pytest.mark.parametrize(("field", "value", "message"), [
    ("load_channels", 5, "load_channels must be 1, 2, 3 or 4, not 5"),
    ("load_channels", 0, "load_channels must be a positive integer, not 0"),
    ("store_channels", 3, "store_channels must be 1 or 2, not 3"),
    ("store_channels", "2", "store_channels must be a positive integer, not '2'"),
])
def test_refused_numbers_of_channels(field, value, message):
    with pytest.raises(ConfigError) as caught:
        dataclasses.replace(PRESETS["nano"], **{field: value})
    assert str(caught.value) == message


def test_channels_are_part_of_the_digest():
    small = PRESETS["small"]
    assert len({dataclasses.replace(small, load_channels=n).digest() for n in (1, 2, 3, 4)}) == 4
