"""Where memories lie: block RAM, or distributed RAM where block RAM would stand more than half empty."""


import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from gradloom.contracts.config import FAMILIES
from gradloom.rtl.memories import cleared_read, make_memory, memory_apart
from gradloom.verif.ccore.collisions import colliding


@pytest.mark.parametrize(("width", "depth", "lutram_bits", "distributed"), [
    (128, 256, 65536, True),     # half of 4 blocks of 512 x 36, 128 of 144 bits
    (128, 512, 65536, False),    # full
    (128, 256, 32767, False),    # too large
    (128, 256, 0, False),        # none are wanted
    (16, 512, 8192, True),       # 8 of 18 Kbit
    (32, 512, 65536, False),     # 16 of 18 Kbit
    (1024, 64, 65536, True),
])
def test_style(width, depth, lutram_bits, distributed):
    assert make_memory(width, depth, lutram_bits).attrs == ({"ram_style": "distributed"} if distributed else {})


def test_contents():
    assert list(make_memory(8, 4, 0, (1, 2)).data.init) == [1, 2, 0, 0]


def test_memories_that_are_never_read_while_they_are_written():
    """Only ECP5 has to be told; elsewhere the memory is what it was."""
    assert memory_apart(128, 256, "ecp5", lutram_bits=65536).attrs == {"no_rw_check": 1}
    assert memory_apart(128, 256, "any", lutram_bits=65536).attrs == {"ram_style": "distributed"}
    assert memory_apart(128, 256, "any").attrs == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_word_that_is_read_while_it_is_written(family):
    """What benches put in the place of a block RAM of ECP5 gives every bit inverted; a read that is cleared gives 0."""
    m, at, clear = Module(), Signal(2), Signal()
    with colliding():
        m.submodules.memory = memory = memory_apart(8, 4, family)
    write, read = memory.write_port(), memory.read_port()
    cleared = cleared_read(m, memory, "cleared", at, clear)
    m.d.comb += [read.addr.eq(at), read.en.eq(1), write.en.eq(1)]

    async def bench(ctx):
        held = [0] * 4
        cases = ((1, 1, 0x55, 0), (1, 2, 0x33, 0), (2, 2, 0x0F, 0), (2, 2, 0x55, 1), (1, 2, 0, 0), (1, 2, 0, 1))
        for word, addr, value, clears in cases:
            for signal, content in ((write.addr, word), (at, addr), (write.data, value), (clear, clears)):
                ctx.set(signal, content)
            expected = held[addr] ^ (0xFF if family == "ecp5" and word == addr else 0)
            held[word] = value
            await ctx.tick()
            assert (ctx.get(read.data), ctx.get(cleared)) == (expected, 0 if clears else expected), (word, addr, clears)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
