"""Loads of one memory by two channels: both work, and never write one place unordered."""

import dataclasses

import pytest

from gradloom.host.schedule import compile_network
from gradloom.models.network import load_network
from gradloom.rtl.channels import LOAD_UNITS, Unit
from gradloom.rtl.config import PRESETS, Config
from gradloom.rtl.isa import SEMAPHORES, Dest, Opcode
from gradloom.verif.system_bench import NETWORKS


def weight_blocks(command, config: Config) -> set[tuple[int, int]]:
    """(bank, address) that a load of WBUF writes, from the loops of docs/machine.md section 3."""
    places = set()
    for i in range(command["n2"] * command["n1"]):
        bank, addr = command["bank0"], command["addr0"] + i * command["ostep"]
        for _ in range(command["n0"] // config.block_beats):
            places.add((bank, addr))
            if command["linear"]:
                addr += 1
            else:
                bank, addr = (bank + 1) % 3, addr + (bank == 2)
    return places


@pytest.mark.parametrize("wbuf_depth", [256, 512])
def test_two_channels_share_the_weights_and_order_what_they_overwrite(wbuf_depth):
    """A clock for each engine (its latest finished command that is known of) follows every token through the program."""
    config = dataclasses.replace(PRESETS["small"], wpus=2, wbuf_depth=wbuf_depth, load_channels=4, store_channels=2)
    plan = compile_network(load_network(str(NETWORKS / "tiny-deep.toml")), config, 2)
    signals: dict[int, list[dict[Unit, int]]] = {bit: [] for bit in range(SEMAPHORES)}
    behind: dict[Unit, dict[Unit, int]] = {}
    latest: dict[Unit, int] = {}
    floor: dict[Unit, int] = {}
    writers: dict[tuple[int, int], tuple[Unit, int]] = {}
    beats, meetings = dict.fromkeys(LOAD_UNITS[:2], 0), 0
    for number, command in enumerate(plan.instructions):
        unit = command.unit(config)
        if command.opcode == Opcode.BARRIER:
            floor = dict(latest)
        if unit == Unit.SEQ:
            continue
        known = dict(floor)
        for other in (behind.get(unit, {}), *(signals[bit].pop(0) for bit in range(SEMAPHORES) if command.wait >> bit & 1)):
            known |= {engine: max(place, known.get(engine, -1)) for engine, place in other.items()}
        behind[unit] = known | {unit: number}
        latest[unit] = number
        for bit in range(SEMAPHORES):
            if command.signal >> bit & 1:
                signals[bit].append(behind[unit])
        if command.opcode == Opcode.LOAD and command["dest"] == Dest.WBUF:
            beats[unit] += command["n0"] * command["n1"] * command["n2"]
            for place in weight_blocks(command, config):
                if place in writers and writers[place][0] != unit:
                    meetings += 1
                    writer, when = writers[place]
                    assert known.get(writer, -1) >= when, f"command {number} overwrites what command {when} brings"
                writers[place] = unit, number
    assert meetings
    assert min(beats.values()) > max(beats.values()) / 4
