"""Pool walker: the taps of every output position against their definition."""

import functools
import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from amaranth.hdl import Signal, signed
from amaranth.sim import Simulator

from gradloom.contracts.isa import Opcode
from gradloom.host.cost_model.pool_walk import pool_cycles
from gradloom.host.program.assembler import Instruction
from gradloom.rtl.acore.poolwalk import PoolWalk

Expected = Callable[[int, int], set[tuple[int, int, int]]]
LONGEST = 500
"""Cycles, more than any beat of these tests takes: two windows of 15 x 15 are 240."""
WIDTHS = {"pool": 2, "pkern": 4, "pstride": 4, "ppad": 4, "poff": signed(6), "pyi": 12, "pxi": 12}


def taps(fields: dict[str, int], y: int, x: int) -> set[tuple[int, int, int]]:
    """(row, column, tap number) of output position (y, x)."""
    kernel, stride, pad = fields["pkern"], fields["pstride"], fields["ppad"]
    found = set()
    for iy, ix in itertools.product(range(fields["pyi"]), range(fields["pxi"])):
        if fields["pool"] == 1:
            ky, kx = iy - y * stride + pad, ix - x * stride + pad
        else:
            ky, kx = y + pad - iy * stride, x + pad - ix * stride
        if 0 <= ky < kernel and 0 <= kx < kernel:
            found.add((iy, ix, ky * kernel + kx))
    return found


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (1, 1, 0), (2, 3, 0), (5, 2, 2),
                                                        (4, 1, 3), (15, 15, 0), (3, 15, 1), (15, 1, 7)])
def test_taps(kernel, stride, pad, backward):
    rows, columns = 7, 16 if kernel == 15 else 5
    rows = 16 if kernel == 15 else rows
    out_rows, out_columns = ((n + 2 * pad - kernel) // stride + 1 for n in (rows, columns))
    fields = {"pool": 2 if backward else 1, "pkern": kernel, "pstride": stride, "ppad": pad, "pyi": rows, "pxi": columns}
    if backward:
        fields |= {"pyi": out_rows, "pxi": out_columns}
        out_rows, out_columns = rows, columns
    # The one walk of many thousand cycles does without a second plane, which the others have.
    walk(fields, functools.partial(taps, fields), out_rows, out_columns, planes=1 if (kernel, stride) == (15, 1) else 2)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("pad", range(7, 15))
def test_wide_padding(pad, backward):
    """Windows of 15 x 15 that reach far beyond a plane of 2 x 3 on either side."""
    kernel, stride, rows, columns = 15, 6, 2, 3
    out_rows, out_columns = ((n + 2 * pad - kernel) // stride + 1 for n in (rows, columns))
    fields = {"pool": 2 if backward else 1, "pkern": kernel, "pstride": stride, "ppad": pad, "pyi": rows, "pxi": columns}
    if backward:
        fields |= {"pyi": out_rows, "pxi": out_columns}
        out_rows, out_columns = rows, columns
    walk(fields, functools.partial(taps, fields), out_rows, out_columns)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (1, 2, 0), (2, 3, 0), (5, 2, 2), (4, 1, 3)])
def test_a_tile_of_rows(kernel, stride, pad, backward):
    """Rows from the third output row on, and only the stored rows that they use; the rows above are not there."""
    rows, columns = 17, 6
    out_rows, out_columns = ((n + 2 * pad - kernel) // stride + 1 for n in (rows, columns))
    whole = {"pool": 2 if backward else 1, "pkern": kernel, "pstride": stride, "ppad": pad, "pyi": rows, "pxi": columns}
    first, count = 2, 3
    stored = max(0, first * stride - pad)
    poff = stored - first * stride
    if backward:
        whole |= {"pyi": out_rows, "pxi": out_columns}
        out_columns = columns
        stored = max(0, (first + pad) // stride - (kernel - 1) // stride)
        poff = first - stored * stride

    def expected(y: int, x: int) -> set[tuple[int, int, int]]:
        return {(row - stored, column, k) for row, column, k in taps(whole, y + first, x)}

    used = [row for y in range(count) for row, _, _ in expected(y, 0) | expected(y, 1)]
    walk(whole | {"pyi": max(used) + 1, "poff": poff}, expected, count, out_columns)


def walk(fields: dict[str, int], expected: Expected, out_rows: int, out_columns: int, planes: int = 2) -> None:
    """Planes of ``out_rows`` x ``out_columns`` outputs."""
    backward = fields["pool"] == 2
    signals = SimpleNamespace(**{name: Signal(width, name=name) for name, width in WIDTHS.items()})
    dut = PoolWalk(signals)
    beats = (out_columns + 1) // 2
    cycles = 0
    stored_row = (fields["pxi"] + 1) // 2

    async def bench(ctx):
        nonlocal cycles
        for name, value in fields.items():
            ctx.set(getattr(signals, name), value)
        ctx.set(dut.plane_beats, fields["pyi"] * stored_row)
        ctx.set(dut.prepare, 1)
        await ctx.tick()
        ctx.set(dut.prepare, 0)
        for _ in range(16):
            await ctx.tick()
        assert ctx.get(dut.ready)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.step, 1)
        for plane, y, t in itertools.product(range(planes), range(out_rows), range(beats)):
            ctx.set(dut.row_last, t == beats - 1)
            ctx.set(dut.plane_last, t == beats - 1 and y == out_rows - 1)
            single = 2 * t + 1 == out_columns
            ctx.set(dut.single, single)
            found, order, first, last, begin = [set(), set()], [[], []], True, False, cycles
            while not last:
                assert cycles - begin < LONGEST, "the walk of a beat does not end"
                assert ctx.get(dut.tap.first) == first
                first = False
                address = ctx.get(dut.addr) - plane * fields["pyi"] * stored_row
                for lane, column in itertools.product(range(2), range(2)):
                    if ctx.get(dut.tap.inside[lane][column]):
                        k = ctx.get(dut.tap.k[lane][column])
                        found[lane].add((address // stored_row, address % stored_row * 2 + column, k))
                        order[lane].append(k)
                last = ctx.get(dut.tap.last)
                assert ctx.get(dut.beat_done) == last
                cycles += 1
                await ctx.tick()
            for lane in range(1 if single else 2):
                assert found[lane] == expected(y, 2 * t + lane), (plane, y, t, lane)
                assert len(order[lane]) == len(found[lane])
                assert backward or order[lane] == sorted(order[lane])

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    command = Instruction(Opcode.RUN, fields | {"py": out_rows, "xe": beats, "xodd": out_columns & 1})
    assert cycles == planes * pool_cycles(command), "the cost model counts as many"


@pytest.mark.parametrize("backward", [False, True])
def test_large_planes(backward):
    """Rows and columns up to the 4095th, one position a window: inside a plane that ends behind it and outside one that ends before
    it; addresses of 16 bits, of the second plane too."""
    signals = SimpleNamespace(**{name: Signal(width, name=name) for name, width in WIDTHS.items()})
    dut = PoolWalk(signals)

    async def bench(ctx):
        async def begin(stride: int, **fields: int) -> None:
            for name, value in ({"pool": 1 + backward, "pkern": 1, "pstride": stride, "ppad": 0, "poff": 0} | fields).items():
                ctx.set(getattr(signals, name), value)
            ctx.set(dut.step, 0)
            for port in ("prepare", "start"):
                ctx.set(getattr(dut, port), 1)
                await ctx.tick()
                ctx.set(getattr(dut, port), 0)
                await ctx.tick().repeat(17)
            ctx.set(dut.step, 1)

        async def next_beat() -> None:
            while not ctx.get(dut.beat_done):
                await ctx.tick()
            await ctx.tick()

        ctx.set(dut.single, 1)
        ctx.set(dut.plane_beats, 0xFFFF)
        stride = 1 if backward else 15
        for plane in range(2):
            await begin(stride, pyi=4095, pxi=4095)
            ctx.set(dut.plane_last, plane)
            if plane:
                await next_beat()
            ctx.set(dut.plane_last, 0)
            ctx.set(dut.row_last, 1)
            for row in range(0, 4096, stride):
                if not backward or row & row + 1 == 0 or row & row - 1 == 0:
                    for size in (row, row + 1, row ^ 1 << 11):
                        ctx.set(signals.pyi, size)
                        assert ctx.get(dut.tap.inside[0][0]) == (row < size & 4095), (row, size)
                    assert ctx.get(dut.addr) == (plane * 0xFFFF + row * 2048) & 0xFFFF, row
                await next_beat()
        await begin(1, pyi=1, pxi=4095)
        ctx.set(dut.row_last, 0)
        for beat in range(2048):
            if beat & beat + 1 == 0 or beat & beat - 1 == 0:
                for column, size in itertools.product(range(2), (2 * beat, 2 * beat + 1, 2 * beat + 2)):
                    ctx.set(signals.pxi, size)
                    assert ctx.get(dut.tap.inside[column][column]) == (2 * beat + column < size & 4095), (beat, column, size)
                assert ctx.get(dut.addr) == beat
            await next_beat()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(("fields", "cycles"), [
    # Two pairs of columns, each of two rows.
    ({"pool": 1, "pkern": 2, "pstride": 2, "py": 1, "xe": 1}, 4),
    # One output position on a plane of 8 x 8: a beat a cycle.
    ({"pool": 1, "pkern": 8, "pstride": 8, "py": 1, "xe": 1, "xodd": 1}, 32),
    # Both positions of a beat lie in one window.
    ({"pool": 2, "pkern": 2, "pstride": 2, "py": 4, "xe": 2}, 8),
])
def test_cycles(fields, cycles):
    assert pool_cycles(Instruction(Opcode.RUN, fields)) == cycles
