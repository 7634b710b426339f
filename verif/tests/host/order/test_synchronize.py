"""What commands do to memories: order of several channels, places that are in use, rings."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS, Config
from gradloom.contracts.engines import LOAD_UNITS, TOKENS, Unit
from gradloom.contracts.isa import SEMAPHORES, Dest, Opcode
from gradloom.contracts.microprograms import TABLE
from gradloom.host.knobs import Knobs
from gradloom.host.order.accesses import Access, row_access
from gradloom.host.order.synchronize import Recorder
from gradloom.host.program.assembler import Instruction, Shift
from gradloom.host.schedule import compile_network
from gradloom.models.network import Conv, FullyConnected, GlobalAvgPool, Network, load_network
from gradloom.verif.checkout import NETWORKS


def test_a_memory_has_one_number_of_dimensions():
    recorder = Recorder(PRESETS["eta"])
    recorder.emit(Opcode.LOAD, {"dest": int(Dest.IBUF), "n0": 1, "n1": 1, "n2": 1}, writes=[row_access("IBUF", 0, 1)])
    with pytest.raises(ValueError, match="an access of 1 dimensions to a memory of 2"):
        recorder.when(Access("IBUF", ((0, 1),)))


@pytest.mark.parametrize(("config", "loads"), [("eta", 1), ("small", 4)])
def test_weights_come_once_where_the_buffer_keeps_them(config, loads):
    """A convolution in four tiles of images; on ``small`` those of its four output groups push each other out of the buffer."""
    layers = (
        Conv(name="conv", out=8, kernel=3, pad=1),
        GlobalAvgPool(name="mean", input="conv"),
        FullyConnected(name="fc", input="mean", out=4),
    )
    network = Network("conv", (8, 12, 12), 4, layers)
    machine = dataclasses.replace(PRESETS[config], wbuf_depth=32 if config == "small" else 512)
    plan = compile_network(network, machine, 4, knobs=Knobs(tiles={"conv FP": 1}))
    region = plan.memory["conv", "w"]
    brought = [
        command["n0"] * command["n1"] * command["n2"] * machine.beat_bytes
        for command in plan.instructions
        if command.opcode == Opcode.LOAD and command["dest"] == Dest.WBUF and command.tag // 8 == 1
    ]
    assert sum(brought) == loads * region.data_bytes()


def test_parts_of_one_load_take_one_channel():
    """Rows of several images of a layer that reads every second one lie between each other: no barrier has to order two Loaders."""
    layers = (
        Conv(name="wide", out=64, kernel=3, pad=1, norm="frn", act="tlu"),
        Conv(name="narrow", input="wide", out=128, kernel=1, stride=2, norm="frn", act="tlu"),
        FullyConnected(name="fc", input="narrow", out=4),
    )
    plan = compile_network(Network("strided", (8, 14, 14), 4, layers), PRESETS["eta"], 8)
    split = [
        command.unit(PRESETS["eta"])
        for command in plan.instructions
        if command.opcode == Opcode.LOAD and command["dest"] == Dest.IBUF and command.tag == 8 * 2 + 3
    ]
    assert len(set(split)) > 1, "several channels bring inputs"
    assert sum(command.opcode == Opcode.BARRIER for command in plan.instructions) == 2


@pytest.mark.parametrize(("network", "batch"), [
    ("resnet20", 8), *(pytest.param(*case, marks=pytest.mark.long("a minute; test_convolution compiles resnet18"))
                       for case in (("vgg16", 4), ("resnet18", 1)))])
def test_updates_use_the_weights_that_were_loaded_for_them(network, batch):
    """Between the tiles of an update other commands of the A-Core take its buffers, in these more than they hold."""
    compile_network(load_network(network), PRESETS["eta"], batch)


def scales_known(instructions: list[Instruction], config: Config) -> list[tuple[Instruction, int]]:
    """The Sequencer's commands behind the last engine's one, and the A-Core's command that is done, at the least, before each."""
    bit = 1 << TOKENS.index((Unit.ACORE, Unit.SEQ))
    signals = [place for place, command in enumerate(instructions) if command.signal & bit]
    assert all(instructions[place].unit(config) == Unit.ACORE for place in signals)
    last = max(place for place, command in enumerate(instructions) if command.unit(config) != Unit.SEQ)
    found, known = [], -1
    for command in instructions[last + 1 :]:
        if command.opcode == Opcode.BARRIER:
            break
        if command.wait & bit:
            known = signals.pop(0)
        found.append((command, known))
    assert not signals
    return found


@pytest.mark.parametrize(("name", "config"), [("tiny-residual", "small"), ("digits-cnn", "nano"), ("resnet20", "eta")])
@pytest.mark.parametrize("calibrate", [False, True])
def test_exponents_change_when_the_a_core_is_through_with_them(name, config, calibrate):
    network = load_network(str(NETWORKS / f"{name}.toml") if name.startswith("tiny") else name)
    plan = compile_network(network, PRESETS[config], 4, calibrate=calibrate)
    uses: dict[int, int] = {}
    for place, command in enumerate(plan.instructions):
        if command.unit(plan.config) == Unit.ACORE:
            tail = (entry.tid for entry in command.tail if isinstance(entry, Shift))
            uses |= dict.fromkeys((command["t1"], command["t2"], *tail), place)
    scales = scales_known(plan.instructions, plan.config)
    last = max(place for place, command in enumerate(plan.instructions) if command.unit(plan.config) != Unit.SEQ)
    done = max((place for place in range(last) if plan.instructions[place].opcode == Opcode.BARRIER), default=-1)
    assert calibrate or len({known for _, known in scales}) > 3, "they are behind different commands"
    for command, known in scales:
        for tid in {command["tid"], command["target"]} - {0}:
            assert uses.get(tid, -1) <= max(known, done)
    assert {command.opcode for command, _ in scales} == {Opcode.SCALE, Opcode.EXPSET}


@pytest.mark.parametrize(("most", "tokens"), [(10, 5), (5, 5), (4, 3), (2, 2), (1, 1)])
def test_tokens_of_the_sequencer_are_thinned_out(most, tokens):
    recorder = Recorder(PRESETS["eta"], most)
    places = [recorder.emit(Opcode.RUN, {"uprog": TABLE["BP_OUT"], "planes": 1, "nb": 6}) for _ in range(5)]
    recorder.behind_acore([(place, Instruction(Opcode.SCALE, {"tid": 9 - n})) for n, place in enumerate([-1, *places])][::-1])
    scales = scales_known(recorder.instructions, PRESETS["eta"])
    assert [command["tid"] for command, _ in scales] == [9, 8, 7, 6, 5, 4]
    assert all(known >= place for (_, known), place in zip(scales, [-1, *places], strict=True))
    assert sum(command.wait != 0 for command, _ in scales) == tokens
    assert scales[0][1] == -1


def test_a_token_of_the_sequencer_is_not_taken_for_an_earlier_one():
    """Two groups of commands behind the A-Core's without a barrier between them: an exponent of the second group that the A-Core
    used last before those of the first must not signal what the first group waits for."""
    recorder = Recorder(PRESETS["eta"])

    def run() -> int:
        return recorder.emit(Opcode.RUN, {"uprog": TABLE["BP_OUT"], "planes": 1, "nb": 6})

    places = [run() for _ in range(4)]
    recorder.behind_acore([(places[2], Instruction(Opcode.SCALE, {"tid": places[2]}))])
    places.append(run())
    recorder.behind_acore([(place, Instruction(Opcode.SCALE, {"tid": place})) for place in (*places, -1)])
    bit = 1 << TOKENS.index((Unit.ACORE, Unit.SEQ))
    signals = [place for place, command in enumerate(recorder.instructions) if command.signal & bit]
    known, scaled = -1, []
    for command in recorder.instructions:
        if command.opcode == Opcode.SCALE:
            known = signals.pop(0) if command.wait & bit else known
            assert command["tid"] <= known
            scaled.append(command["tid"])
    assert not signals and sorted(scaled) == sorted([places[2], *places, -1])


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
def test_channels_share_the_weights_and_order_what_they_overwrite(wbuf_depth):
    """A clock for each engine (its latest finished command that is known of) follows every token through the program."""
    config = dataclasses.replace(PRESETS["small"], wpus=2, wbuf_depth=wbuf_depth, load_channels=4, store_channels=2)
    plan = compile_network(load_network(str(NETWORKS / "tiny-deep.toml")), config, 2)
    signals: dict[int, list[dict[Unit, int]]] = {bit: [] for bit in range(SEMAPHORES)}
    behind: dict[Unit, dict[Unit, int]] = {}
    latest: dict[Unit, int] = {}
    floor: dict[Unit, int] = {}
    writers: dict[tuple[int, int], tuple[Unit, int]] = {}
    beats, meetings = dict.fromkeys(LOAD_UNITS, 0), 0
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
    *shared, last = beats.values()
    assert min(shared) > sum(shared) / 16
    assert last == 0, "the buffer has three banks"
