"""Order of the A-Core's commands: which ones overlap and which do not, on Amaranth's simulator."""

from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Opcode, XSource
from gradloom.contracts.microprograms import TABLE
from gradloom.contracts.regmap import ErrorCode
from gradloom.rtl.acore.acore import ACore
from gradloom.verif.acore.acore_commands import command
from gradloom.verif.acore.tail_memory import TailMemory, head

_RUN = command(Opcode.RUN, uprog=TABLE["RELU_FWD"], planes=1, nb=1, xe=1, py=1, pj=1, xsrc=XSource.NONE, n=1, inv=1 << 15)
_COMMANDS = {
    "a": (_RUN, 0),
    "b": (command(Opcode.SOFTMAX, images=2, classes=3), 0),
    "c": (command(Opcode.SOFTMAX, images=1, classes=0), ErrorCode.ILLEGAL_FIELD),
    "d": (command(Opcode.UCODE, [1], address=0xFFFF), ErrorCode.ILLEGAL_FIELD),
}
"""Words and fault."""
_EVERY_PAIR = "aabacadbbcbdccdda"
_CYCLES = 2000


def test_softmax_and_ucode_work_alone():
    """Each kind of command behind each other one, given as soon as the core is free: done in order, each with its own fault;
    SOFTMAX and UCODE begin behind the last done of those before (theirs follows at once if they are at fault), and what comes
    behind them reads its first seed behind theirs."""
    dut = ACore(PRESETS["nano"])
    barriers = [max((at + 1 for at, kind in enumerate(_EVERY_PAIR[:number]) if kind != "a"), default=0)
                for number, kind in enumerate(_EVERY_PAIR) if kind == "a"]
    faults: list[int] = []
    begun: list[int] = []

    async def bench(ctx):
        waiting, reading, tails = list(_EVERY_PAIR), False, TailMemory()
        for _ in range(_CYCLES):
            start = bool(waiting) and ctx.get(dut.port.free) and not ctx.get(dut.port.start)
            ctx.set(dut.port.start, start)
            if start:
                words, _ = _COMMANDS[waiting.pop(0)]
                ctx.set(dut.port.cmd, head(words))
                ctx.set(dut.port.slot, tails.put(words))
            # A RUN reads its two seeds one after the other.
            if ctx.get(dut.seeds.en) and not reading:
                begun.append(len(faults))
            reading = bool(ctx.get(dut.seeds.en))
            if ctx.get(dut.port.done):
                faults.append(ctx.get(dut.port.fault))
            if len(faults) == len(_EVERY_PAIR):
                break
            pair = tails.read(ctx.get(dut.port.tail_at.as_value()))
            await ctx.tick()
            ctx.set(dut.port.tail, pair)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    assert faults == [_COMMANDS[kind][1] for kind in _EVERY_PAIR]
    assert len(begun) == len(barriers)
    assert all(done >= barrier for done, barrier in zip(begun, barriers, strict=True)), (begun, barriers)
