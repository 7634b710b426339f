"""The address window at its edges, around 2^32 and against plain integers."""

import random

from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from gradloom.rtl.memory_path.window import in_window

EDGES = [0, 1, 2, 0xFFF, 0x1000, 0x7FFFFFFF, 0x80000000, 0xFFFFF000, 0xFFFFFFFE, 0xFFFFFFFF]


def test_window():
    m = Module()
    base, limit, address, size = (Signal(width, name=name) for name, width in
                                  (("base", 32), ("limit", 32), ("address", 32), ("size", 11)))
    inside = Signal()
    m.d.comb += inside.eq(in_window(base=base, limit=limit, address=address, end=address + size))
    rng = random.Random(1)
    cases = [(b, t, a, n) for b in EDGES for t in EDGES for a in EDGES for n in (1, 2, 1024)]
    for _ in range(3000):
        b, t = rng.getrandbits(32), rng.getrandbits(32)
        n = rng.randint(1, 1024)
        cases.append((b, t, (rng.choice([b, t - n]) + rng.randint(-2, 2)) % 2**32, n))

    async def testbench(ctx):
        for b, t, a, n in cases:
            for signal, value in ((base, b), (limit, t), (address, a), (size, n)):
                ctx.set(signal, value)
            assert ctx.get(inside) == (b <= a and a + n <= t), (b, t, a, n)

    sim = Simulator(m)
    sim.add_testbench(testbench)
    sim.run()
