"""An operand's memory: beats of a part of a word or of several words, bytes for one word each, columns one after the other."""

import os
import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from gradloom.rtl.matrix.operand_store import OperandStore
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.memory_bench import start_clock

SHAPES = {
    "block": {"columns": 4, "places": 4, "depth": 16, "beat_bytes": 4, "by_place": True, "turns": True},
    "several words in a beat": {"columns": 2, "places": 1, "depth": 32, "beat_bytes": 8, "by_place": True},
    "a word of a beat": {"columns": 4, "places": 1, "depth": 16, "beat_bytes": 4},
    "lanes": {"columns": 2, "places": 8, "depth": 8, "beat_bytes": 8},
    "rows of a stationary output": {"columns": 1, "places": 4, "depth": 16, "beat_bytes": 4},
}


class Model:
    """Bytes of words, [column][place]."""

    def __init__(self, shape):
        self.columns, self.places, self.depth, self.beat = (shape[key] for key in ("columns", "places", "depth", "beat_bytes"))
        self.by_place = shape.get("by_place", False)
        self.words = [[[None] * self.places for _ in range(self.columns)] for _ in range(self.depth)]

    def write(self, addr, data, turned):
        """Returns the cycles that it takes."""
        size = self.columns * self.places
        if turned:
            group, column = divmod(addr, self.columns)
            for i, byte in enumerate(data):
                self.words[(group * self.beat + i) % self.depth][column][0] = byte
            return self.beat
        for i, byte in enumerate(data):
            word, index = divmod(addr * self.beat + i, size)
            place, column = divmod(index, self.columns) if self.by_place else divmod(index, self.places)[::-1]
            self.words[word % self.depth][column][place] = byte
        return max(1, self.beat // size)


@cocotb.test()
async def writes_and_reads(dut):
    shape = SHAPES[os.environ["SHAPE"]]
    rng, model = random.Random(5), Model(shape)
    await start_clock(dut, write=0, data=0, at=0, turn=0)
    size, turns = shape["columns"] * shape["places"], shape.get("turns", False)
    beats = shape["depth"] * size // shape["beat_bytes"]

    async def write(addr, turned):
        data = rng.randbytes(shape["beat_bytes"])
        dut.write.value, dut.data.value = 1 | turned << 1 | addr << 2, int.from_bytes(data, "little")
        for cycle in range(model.write(addr, data, turned), 0, -1):
            await RisingEdge(dut.clk)
            assert int(dut.ready.value) == (cycle == 1)
        dut.write.value = rng.getrandbits(16) << 2

    for addr in range(beats):
        await write(addr, 0)
    for _ in range(60):
        for _ in range(rng.randint(0, 3)):
            await write(rng.randrange(1 << 16), int(shape["places"] == 1 and rng.random() < 0.5))
        turn = int(turns and rng.random() < 0.5)
        dut.turn.value = turn
        asked = []
        for cycle in range(12):
            # Words follow each other without a pause; column c is c cycles behind column 0.
            asked.append(rng.randrange(1 << 16))
            dut.at.value = asked[-1]
            await RisingEdge(dut.clk)
            # What is there before this edge was asked for at the edge before, and earlier.
            found = int(dut.word.value).to_bytes(size, "little")
            for column in range(min(cycle, shape["columns"])):
                word = model.words[asked[cycle - 1 - column] % shape["depth"]]
                part = list(found[column * shape["places"]:(column + 1) * shape["places"]])
                assert part == ([word[place][column] for place in range(shape["places"])] if turn else word[column])


@pytest.mark.parametrize("name", SHAPES)
def test_store(name, tmp_path):
    assert run_cocotb(lambda: OperandStore(**SHAPES[name]), __file__, tmp_path, env={"SHAPE": name}) == 1


def test_word_bytes():
    assert OperandStore(**SHAPES["lanes"]).word_bytes == 16
