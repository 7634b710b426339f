"""The cost model: a replay that keeps every order the machine keeps, and reacts to memory and machine as it should."""

import dataclasses

import numpy as np
import pytest

from gradloom.contracts import microprograms
from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Dest, Engine, Opcode, Source
from gradloom.contracts.pipeline import SWEEPS_APART
from gradloom.host.compilation.program_builder import shifts
from gradloom.host.cost_model.cost import Costs, DramCost
from gradloom.host.cost_model.replay import replay
from gradloom.host.cost_model.trace import step_programs
from gradloom.host.program.assembler import Instruction
from gradloom.host.schedule import compile_network
from gradloom.models.network import load_network

NETWORK = load_network("digits-cnn")


def programs(config: str, batch: int = 8) -> list[tuple[Instruction, ...]]:
    plan = compile_network(NETWORK, PRESETS[config], batch, slots=2, table=2)
    return step_programs(plan.instructions, plan.labels, 2)


@pytest.mark.parametrize("config", ["nano", "small", "eta"])
def test_replay_keeps_every_order(config):
    for step in replay(programs(config), PRESETS[config], DramCost()):
        engines = np.array([int(instruction.engine) for instruction in step.program])
        commands = np.flatnonzero(engines != Engine.SEQ)
        assert (step.done[commands] > step.start[commands]).all() and (step.done[engines == Engine.SEQ] == -1).all()
        assert step.cycles == step.done.max() and step.kind == "estimated"
        for places in step.by_engine.values():
            assert (np.diff(step.start[places]) > 0).all() and (np.diff(step.done[places]) >= 2).all()
        for place in commands:
            for producer in step.producers[place]:
                assert step.start[place] > step.done[producer]
        latest = 0
        for place, instruction in enumerate(step.program):
            if instruction.opcode == Opcode.BARRIER:
                latest = step.done[:place].max()
            elif instruction.engine != Engine.SEQ:
                assert step.start[place] >= latest


def test_steps_after_the_first_are_alike():
    body = programs("small")
    first, *rest = replay([body[0], body[1], body[1], body[1]], PRESETS["small"], DramCost())
    assert first.cycles > rest[0].cycles, "the first one uploads the microprograms"
    assert len({step.cycles for step in rest}) == 1


def cycles(dram: DramCost, config: str = "small") -> int:
    return replay(programs(config), PRESETS[config], dram)[-1].cycles


def test_a_slower_memory_takes_longer():
    by_latency = [cycles(DramCost(latency=latency)) for latency in (10, 40, 200)]
    by_bandwidth = [cycles(DramCost(bytes_per_cycle=share)) for share in (None, 4.0, 2.0, 0.5)]
    assert by_latency == sorted(by_latency) and by_bandwidth == sorted(by_bandwidth)
    costs = Costs(PRESETS["small"], DramCost())
    commands = programs("small")[1]
    moved = sum(costs(command).bytes for command in commands if command.engine != Engine.SEQ)
    moved += sum(4 * command.length for command in commands)
    assert moved / 0.5 <= by_bandwidth[-1] < 1.2 * moved / 0.5, "at half a byte a cycle the memory decides alone"


def test_a_larger_array_takes_fewer_cycles():
    assert cycles(DramCost(), "nano") > cycles(DramCost(), "small") > cycles(DramCost(), "eta")


def test_full_queue_holds_the_sequencer():
    """Ten loads of 1000 beats, then one convolution: it waits until the loads' queue takes the last of them."""
    load = Instruction(Opcode.LOAD, {"dest": 0, "n0": 1000, "n1": 1, "n2": 1, "xb": 1})
    conv = Instruction(Opcode.CONV, {"steps": 1, "units": 4, "cols": 4, "nr": 3, "nk": 3})
    many = tuple([load] * 40 + [conv])
    step = replay([many], PRESETS["small"], DramCost())[0]
    assert step.start[-1] > 20 * 1000
    few = replay([(load, conv)], PRESETS["small"], DramCost())[0]
    assert few.start[-1] < 100


def test_the_sequencer_waits_for_a_semaphore():
    load = {"dest": 0, "n0": 1000, "n1": 1, "n2": 1, "xb": 1}
    for wait, late in ((0, False), (1, True)):
        first, second = Instruction(Opcode.LOAD, load, signal=wait), Instruction(Opcode.LOAD, {**load, "dest": int(Dest.WBUF)})
        step = replay([(first, Instruction(Opcode.SETBASE, wait=wait), second)], PRESETS["eta"], DramCost())[0]
        assert (step.start[2] > step.done[0]) == late


def test_program_that_cannot_end():
    stuck = Instruction(Opcode.CONV, {"steps": 1, "units": 1, "cols": 1}, wait=1)
    with pytest.raises(RuntimeError, match="does not end"):
        replay([(stuck, Instruction(Opcode.BARRIER))], PRESETS["small"], DramCost())


@pytest.mark.parametrize(("first", "n0"), [(0, 64), (0, 65), (0, 28), (36, 28), (63, 2), (0, 300)])
def test_bursts_of_a_load(first, n0):
    """Three runs, 28 beats apart, cut at multiples of 64 beats."""
    load = Instruction(Opcode.LOAD, {"dest": 0, "offset": first * 16, "n0": n0, "n1": 3, "stride1": 28 * 16, "n2": 1})
    cut = sum(len({beat // 64 for beat in range(start, start + n0)}) for start in range(first, first + 84, 28))
    assert Costs(PRESETS["eta"], DramCost())(load).bursts == cut


def run(program: str, beats: int) -> Instruction:
    fields = {"uprog": microprograms.TABLE[program], "planes": 1, "nb": beats, "xe": 1}
    return Instruction(Opcode.RUN, fields, tail=shifts(SH0=(0, (0,), ())))


def test_a_command_is_prepared_while_two_before_it_are_swept():
    """Short weight updates between long backward normalisations: a first pass begins when the update before it leaves the stage
    of preparation, not when sweeps as short as that one would have let it."""
    done = replay([tuple([run("FRN_BWD", 392), run("WU", 72)] * 8)], PRESETS["eta"], DramCost())[0].done
    each = np.diff(done[0::2])[3:]
    alone = np.diff(replay([tuple([run("FRN_BWD", 392)] * 8)], PRESETS["eta"], DramCost())[0].done)[3:]
    assert (alone == 405).all()
    assert (each <= alone + 72 + 50).all()


def test_sweeps_of_few_beats_keep_their_distance():
    done = replay([tuple([run("BP_OUT", 1)] * 8)], PRESETS["eta"], DramCost())[0].done
    assert (np.diff(done)[2:] >= SWEEPS_APART).all()


def test_a_short_way_through_the_lanes_does_not_overtake_a_long_one():
    """What follows a weight update ends as much later as the update's way is longer."""
    last = [replay([tuple([run(first, 144), run("BP_OUT", 144)])], PRESETS["eta"], DramCost())[0].done[-1]
            for first in ("BP_OUT", "WU")]
    assert last[1] > last[0]


@pytest.mark.parametrize(("program", "other", "apart"), [
    ("FRN_BWD", {}, 252), ("FRN_BWD", {"sa0": 1, "sb0": 1}, 253), ("FRN_BWD", {"sa0": 1}, 492), ("LIN_BWD", {}, 253)])
def test_a_first_pass_waits_for_the_sweep_before_it(program, other, apart):
    """Of 240 beats, behind another one whose streams lie at even addresses: where only one of its own does, it waits for the whole
    sweep (RTL: as here)."""
    commands = [run(program, 240), dataclasses.replace(run(program, 240), fields=run(program, 240).fields | other)] * 3
    assert set(np.diff(replay([tuple(commands)], PRESETS["nano"], DramCost())[0].done)[1:]) == {apart}


@pytest.mark.parametrize(("window", "apart"), [((4, 1), 189), ((2, 2), 167)])
def test_a_first_pass_goes_on_where_the_taps_of_a_pool_change_their_parity(window, apart):
    """64 beats behind pools of 64 taps: an address is read for 8 of them, or for 4 (RTL: 189 and 167 cycles to the next start)."""
    kernel, rows = window
    plane = {"planes": 8, "nb": 8, "xe": 2, "py": 4}
    fields = plane | {"pool": 2, "pkern": kernel, "pstride": kernel, "pyi": rows, "pxi": rows}
    pool, back = (Instruction(Opcode.RUN, of | {"uprog": microprograms.TABLE[name]}, tail=shifts(SH1=(0, (0,), ())))
                  for name, of in (("MAXPOOL_BWD", fields), ("FRN_BWD", plane)))
    (step,) = replay([(*[pool] * 12, *[back] * 3)], PRESETS["nano"], DramCost())
    assert list(np.diff(step.start)[12:]) == [apart, 76]


@pytest.mark.parametrize(("program", "beats", "alone", "together"), [("PARAM_UPD", 12, 166, 178), ("BIAS_UPD", 4, 70, 74)])
def test_scalars_wait_while_the_parameters_before_them_are_stored(program, beats, alone, together):
    """Updates of 16 channels one after the other, without stores and with one of each (RTL: as here)."""
    update = dataclasses.replace(run(program, 1), tail=shifts(**{name: (0, (0,), ()) for name in ("SH0", "SH1", "SH2")}))
    store = Instruction(Opcode.STORE, {"src": int(Source.PBUF), "n0": beats, "n1": 1, "n2": 1}, wait=1)
    eta2x = PRESETS["eta2x"]
    (apart,) = replay([tuple([update] * 8)], eta2x, DramCost())
    assert set(np.diff(apart.done)[3:]) == {alone}
    (both,) = replay([tuple([dataclasses.replace(update, signal=1), store] * 8)], eta2x, DramCost())
    # The stores of the last two come when no update is left.
    assert set(np.diff(both.done[0::2])[3:-1]) == {together}


def test_results_wait_while_parameters_are_loaded():
    """Twice 12 beats, at any time beside updates of parameters: each of them holds up a result, or none."""
    eta2x, update = PRESETS["eta2x"], run("PARAM_UPD", 1)
    alone = replay([tuple([update] * 4)], eta2x, DramCost())[0].done[-1]
    late = set[int]()
    for beats in range(20, 400, 20):
        before = Instruction(Opcode.LOAD, {"dest": int(Dest.AB), "n0": beats, "n1": 1, "n2": 1})
        load = Instruction(Opcode.LOAD, {"dest": int(Dest.PBUF), "n0": 12, "n1": 1, "n2": 1})
        done = replay([(*[update] * 4, before, load, load)], eta2x, DramCost())[0].done[3]
        late.add(int(done - alone))
    assert min(late) == 0 and 12 <= max(late) <= 24, late


def test_gradients_stay_in_the_array_until_those_before_have_left():
    """A tile of 4 windows behind one of 160: 9 blocks of 4 beats leave first, so the third tile begins 36 cycles behind the first's
    last window, and not 4."""
    fields = {"wg": 1, "clear": 1, "drain": 1, "steps": 1, "nr": 3, "nk": 3, "upi": 32}
    long, short = (Instruction(Opcode.CONV, fields | {"units": units, "cols": cols}) for units, cols in ((15, 32), (3, 4)))
    (step,) = replay([(long, short, long)], PRESETS["eta"], DramCost())
    assert list(np.diff(step.done)) == [36, 160]


WAYS = (1, 0, 2, 3)
"""`way` of a load of weights by channel."""


def ends(*loads: tuple[int, int, int, int], linear: int = 1, walks: tuple[int, ...] = ()) -> list[int]:
    """Cycles in which loads of (channel, bank of the weight buffer, beats of a run, runs) are done on ``eta``; those of ``walks``,
    channels, go from bank to bank."""
    commands = [
        Instruction(Opcode.LOAD, {"dest": int(Dest.WBUF), "way": WAYS[channel], "bank0": bank,
                                  "linear": 0 if channel in walks else linear, "n0": n0, "n1": n1, "n2": 1})
        for channel, bank, n0, n1 in loads
    ]
    return [int(end) for end in replay([tuple(commands)], PRESETS["eta"], DramCost())[0].done]


def test_channel_1_waits_for_channel_0_at_a_bank():
    """Two loads of 640 beats through either channel: they pass each other in two banks, and share one."""
    alone, apart, together = ends((1, 0, 64, 10)), ends((0, 1, 64, 10), (1, 0, 64, 10)), ends((0, 0, 64, 10), (1, 0, 64, 10))
    assert max(apart) <= alone[0] + 20 and together[0] == apart[0]
    assert 600 <= together[1] - apart[1] <= 680
    # Where channel 1 came first, channel 0 does not wait either, and what it takes from channel 1 is missing later.
    first, second, third = ends((1, 0, 64, 10), (0, 0, 64, 5), (1, 1, 64, 10))
    assert second <= alone[0] and third - first >= 640 + 256


def test_a_channel_waits_for_all_lower_ones_at_a_bank():
    """Four loads of 640 beats for one bank: it takes a beat a cycle, the lowest channel's first."""
    alone, = ends((0, 0, 64, 10))
    done = ends(*((channel, 0, 64, 10) for channel in (0, 1, 2, 3)))
    assert all(abs(end - alone - 640 * channel) <= 60 for channel, end in enumerate(done)), done


def test_loads_that_go_from_bank_to_bank_share_three_banks():
    """Four loads of 640 beats, three beats a cycle: the lowest three channels' are as fast as one alone, the last one's follows."""
    alone, = ends((0, 0, 64, 10), linear=0)
    *three, last = ends(*((channel, 0, 64, 10) for channel in (0, 1, 2, 3)), linear=0)
    assert max(three) <= alone + 60 and 600 <= last - alone <= 700, (alone, three, last)


def test_a_load_from_bank_to_bank_stands_before_a_bank_that_a_lower_channel_fills():
    """256 beats of channel 0 for one bank, and 640 of channel 1 from bank to bank: late by as much, whichever came first; the other
    way round nobody waits."""
    alone, = ends((1, 0, 64, 10), walks=(1,))
    for order in (((0, 0, 64, 4), (1, 0, 64, 10)), ((1, 0, 64, 10), (0, 0, 64, 4))):
        done = dict(zip((channel for channel, *_ in order), ends(*order, walks=(1,)), strict=True))
        assert 240 <= done[1] - alone <= 300, (done, alone)
    lower, = ends((0, 0, 64, 10), walks=(0,))
    assert abs(ends((1, 0, 64, 4), (0, 0, 64, 10), walks=(0,))[1] - lower) <= 20


def test_single_beats_take_what_the_memory_takes_for_as_many_as_are_under_way():
    """352 bursts of one beat, latency 40: 32 of them every 48 cycles, and the next load's follow without a gap (RTL: 571, 1099)."""
    one, two = ends((0, 0, 1, 352), (0, 1, 1, 352))
    assert abs(one - 571) <= 12 and abs(two - 1099) <= 24
