"""The input side: row and column walks against section 4 of docs/machine.md, and the crossbars that feed the array."""

import itertools

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Dest, Pattern
from gradloom.rtl.ccore.column_sequencer import ColumnSequencer, array_control_layout
from gradloom.rtl.ccore.input_network import InputNetwork
from gradloom.rtl.ccore.row_sequencer import CONV_BITS, RowSequencer
from gradloom.verif.ccore.conv_fields import encode_conv
from gradloom.verif.inside import inside


class Walk(wiring.Component):
    """Row walk and column walk together."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({"cmd": In(CONV_BITS), "start": In(1), "free": Out(1), "weights": In(1), "drained": In(1),
                          "token": Out(array_control_layout(config))})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.rows = rows = RowSequencer(self.config)
        m.submodules.columns = columns = ColumnSequencer(self.config)
        m.d.comb += [rows.cmd.eq(self.cmd), rows.start.eq(self.start), self.free.eq(rows.free),
                     columns.group.eq(rows.group), columns.valid.eq(rows.valid), rows.ready.eq(columns.ready),
                     columns.weights.eq(self.weights), columns.drained.eq(self.drained), self.token.eq(columns.token)]
        return m


def row_reads(config: Config, f: dict[str, int], step: int) -> list[list[tuple[int, int] | None]]:
    """Per unit and PE row: (bank, row address), or None for padding. Shared units have those of each WPU, one behind the other."""
    k1 = f["pattern"] == Pattern.K1
    modulus = config.wpus if k1 else config.row_banks
    offsets = {Pattern.K3: (0, 1, 2), Pattern.BP2: (1, 0, 0), Pattern.K1: (0, 0, 0), Pattern.PAIR: (0, 1, 2)}[Pattern(f["pattern"])]
    b, a, result = f["ib0"], f["ia0"], []
    dealt = f["units"] - (f["units"] % config.wpus if f["shared"] else 0)
    entries, part = 1 + (f["scols"] if f["s2"] else -(-f["scols"] // 2)), 0
    for unit in range(f["units"]):
        y = (f["u0"] + unit) % f["upi"]
        reads = []
        part = a + f["soff"] if unit == dealt else part + entries
        firsts = [(b, a, f["xe"])] if unit < dealt else [(f["sbank"] + 3 * w, part, entries) for w in range(config.wpus)]
        for (first, start, xe), r in itertools.product(firsts, range(3)):
            present = step < f[f"rlim{r}"] if k1 else r < f["nr"]
            row = y * (1 + f["p2"]) + f["y0"] + offsets[r]
            bank, address = first + offsets[r], start
            if not k1 and bank >= modulus:
                bank, address = bank - modulus, start + xe
            address += 0 if f["colstep"] else step * f["istep"]
            reads.append((3 * bank + r if k1 else bank, address) if present and 0 <= row < f["yin"] else None)
        result.append(reads)
        last = y == f["upi"] - 1
        b, a = b + (f["cb"] if last else f["sb"]), a + (f["ca"] if last else f["sa"])
        if b >= modulus:
            b, a = b - modulus, a + f["xe"]
    return result


def expected_tokens(config: Config, f: dict[str, int]) -> list[dict]:
    """Every token of a command."""
    tokens = []
    pattern, wpus = f["pattern"], config.wpus
    dealt = f["units"] - (f["units"] % wpus if f["shared"] else 0)
    groups = [(range(first, min(first + wpus, dealt)), False) for first in range(0, dealt, wpus)]
    groups += [([unit] * wpus, True) for unit in range(dealt, f["units"])]
    laps = range(f["lap"], f["lap_end"] + 1)
    for step, lap in itertools.product(range(f["steps"]), laps):
        begins, ends = step == 0 and lap == laps[0], step == f["steps"] - 1 and lap == laps[-1]
        position = 2 * f["e0"] + f["par0"] + (step if f["colstep"] else 0)
        units = row_reads(config, f, step)
        for g, (units_of, shared) in enumerate(groups):
            reads = [read for unit in sorted(set(units_of)) for read in units[unit]]
            entry, parity, j = position >> 1, position & 1, 0
            row_tokens = [True] * f["scols" if shared else "cols"]
            if f["preload"] or shared:
                row_tokens.insert(0, False)
            entries = (1 + (f["scols"] if f["s2"] else -(-f["scols"] // 2))) if shared else f["xe"]
            part = (f["cols"] - f["scols"]) // (wpus - 1) if shared else 0
            for i, window in enumerate(row_tokens):
                first = window and j == 0
                shift = i == 0 or first or f["s2"] or parity == (pattern == Pattern.BP2)
                taking = [w for w in range(len(units_of)) if not shared or w == wpus - 1 or j < part]
                token = {"shift": int(shift), "clear": int(i == 0), "use": int(window), "sel": 2 * pattern + parity,
                         "swap": int(i == 0 and g == 0 and not f["wg"]), "mask": sum(1 << w for w in taking),
                         "last": int(ends and g == len(groups) - 1 and i == len(row_tokens) - 1), "lap": lap,
                         "half": f["half"], "taps": (1 << f["nk"]) - 1, "nk": f["nk"], "wg": f["wg"],
                         **{name: f[name] for name in ("dwbase", "dgap", "dacc", "ebank")}}
                token["snap"] = int(token["last"] and f["wg"] and f["drain"])
                limits = [f[f"rlim{r}"] if pattern == Pattern.K1 else f["nr"] > r for r in range(3)]
                token["drows"] = sum(1 << r for r in range(3) if limits[r])
                summed = f["sums"] and ends and not f["wg"] and pattern in (Pattern.K3, Pattern.K1)
                token["sum"] = int(window and summed)
                token["reads"] = {at: (read[0], (read[1] + entry) % 65536) for at, read in enumerate(reads)
                                  if read and shift and 0 <= entry < entries and (entry or not shared or at >= PE)}
                if token["sum"]:
                    token["begin"] = int(g == 0 and j == 0 and not f["sacc"])
                    places = [divmod(f["u0"] + unit, f["upi"]) for unit in units_of]
                    token["slots"] = [slot for slot, _ in places]
                    token["openers"] = [int(j == 0 and (g == 0 or (y < wpus and not shared)) and not f["sacc"]) for _, y in places]
                if window:
                    token["clr"] = int(f["clear"] and begins and g == 0 and j == 0)
                    half_cols = -(-f["cols"] // 2)
                    address = {Pattern.K3: (g >> 1) * half_cols + (j >> 1), Pattern.BP2: g * f["cols"] + j,
                               Pattern.K1: 2 * (g * half_cols + (j >> 1)), Pattern.PAIR: (g >> 1) * f["cols"] + j}[Pattern(pattern)]
                    token |= {"store": int(not f["wg"]), "pa": f["pbase"] + address, "odd": j & 1, "group": g & 1,
                              "fresh": int(begins and not f["acc"]), "ea": f["ebase"] + g * f["ee"] + (j >> 1), "lane": j & 1}
                    j += 1
                    parity ^= not f["s2"]
                entry += shift
                tokens.append(token)
    return tokens


PE = 3


def random_command(config: Config, rng: np.random.Generator) -> dict[str, int]:
    pattern = int(rng.integers(4))
    modulus = config.wpus if pattern == Pattern.K1 else config.row_banks
    names = ("s2", "p2", "acc", "clear", "drain", "preload", "par0", "colstep", "half", "sums", "dacc")
    bits = {name: int(rng.integers(2)) for name in names}
    laps = sorted(int(lap) for lap in rng.integers(0, config.laps, 2))
    upi = int(rng.integers(1, 6))
    scols, shared = int(rng.integers(1, 7)), int(pattern == Pattern.K3 and config.wpus > 1 and rng.integers(4) > 0)
    cols = 2 * (config.wpus - 1) * int(rng.integers((scols + 1) // 2)) + scols
    share = {"shared": 1, "cols": cols, "e0": 0, "par0": 1, "colstep": 0} if shared else {"shared": 0}
    return bits | {
        "lap": laps[0], "lap_end": laps[1],
        "pattern": pattern, "wg": int(rng.integers(2)) if pattern in (Pattern.K3, Pattern.K1) else 0, "nr": int(rng.integers(1, 4)),
        "nk": int(rng.integers(1, 4)), "dwbase": int(rng.integers(99)),
        "dgap": int(rng.integers(256)), "ebank": int(rng.integers(3)),
        "steps": int(rng.integers(1, 4)), "units": int(rng.integers(1, 12)), "cols": int(rng.integers(1, 7)),
        "upi": upi, "u0": int(rng.integers(upi)), "yin": int(rng.integers(1, 8)), "y0": int(rng.integers(-4, 4)),
        "xe": int(rng.integers(1, 5)), "e0": int(rng.integers(-3, 3)), "ib0": int(rng.integers(modulus)),
        "sb": int(rng.integers(modulus)), "cb": int(rng.integers(modulus)), "ia0": int(rng.integers(300)),
        "sa": int(rng.integers(30)), "ca": int(rng.integers(30)), "istep": int(rng.integers(90)),
        "pbase": int(rng.integers(50)), "ebase": int(rng.integers(50)), "ee": int(rng.integers(9)),
        "scols": scols, "sbank": int(rng.integers(config.row_banks)), "soff": int(rng.integers(256)),
        **{f"rlim{r}": int(rng.integers(4)) for r in range(3)}} | share


@pytest.mark.parametrize(("wpus", "laps"), [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2)])
def test_walk(wpus, laps):
    config = Config(name="test", clusters=4, cols=4 // laps, wpus=wpus)
    dut = Walk(config)
    rng = np.random.default_rng(wpus)

    commands = [random_command(config, rng) | {"sacc": n & 1} for n in range(90)]
    assert wpus == 1 or sum(fields["shared"] and fields["units"] % wpus > 0 for fields in commands) >= 4
    starts: list[int] = []
    now = 0

    async def give(ctx):
        """The next command as soon as the walk is free, but never in the cycle after a start."""
        for trial, fields in enumerate(commands):
            while not ctx.get(dut.free) or (trial % 5 == 0 and rng.integers(8)):
                await ctx.tick()
            ctx.set(dut.cmd, encode_conv(fields))
            ctx.set(dut.start, 1)
            starts.append(now)
            await ctx.tick()
            ctx.set(dut.start, 0)
            await ctx.tick()

    async def testbench(ctx):
        nonlocal now
        for trial, fields in enumerate(commands):
            hold = trial % 3 == 0
            expected = expected_tokens(config, fields)
            waited = 0
            for i, token in enumerate(expected):
                while True:
                    allowed = int(not hold or rng.integers(3) == 0)
                    ctx.set(dut.weights, allowed)
                    ctx.set(dut.drained, allowed)
                    if ctx.get(dut.token.shift) or ctx.get(dut.token.use):
                        break
                    assert not ctx.get(dut.token.read) and not ctx.get(dut.token.swap) and not ctx.get(dut.token.last)
                    assert not ctx.get(dut.token.snap)
                    if i and allowed:
                        raise AssertionError("a bubble between rows, groups or steps")
                    waited += allowed
                    await ctx.tick()
                    now += 1
                assert allowed or not (token["swap"] or token["snap"])
                for name, value in token.items():
                    if name not in ("reads", "slots", "openers"):
                        assert ctx.get(getattr(dut.token, name)) == value, (name, token, fields)
                if token["sum"]:
                    assert [ctx.get(dut.token.slot[w]) for w in range(len(token["slots"]))] == token["slots"]
                    assert [ctx.get(dut.token.opens) >> w & 1 for w in range(len(token["slots"]))] == token["openers"]
                read = ctx.get(dut.token.read)
                reads = {i: (ctx.get(dut.token.bank[i]), ctx.get(dut.token.addr[i])) for i in range(3 * wpus) if read >> i & 1}
                assert reads == token["reads"], (token, fields)
                if i == 0 and not hold:
                    bubbles.append((waited, now - starts[trial]))
                await ctx.tick()
                now += 1
        for _ in range(5):
            ctx.set(dut.weights, 1)
            ctx.set(dut.drained, 1)
            assert not ctx.get(dut.token.shift) and not ctx.get(dut.token.use)
            await ctx.tick()

    bubbles: list[tuple[int, int]] = []
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.add_testbench(give, background=True)
    simulator.run()
    # A command that was started in time follows without a bubble; else its first token comes 3 cycles after the start.
    assert all(waited == 0 or since == 3 for waited, since in bubbles), bubbles
    assert sum(waited == 0 for waited, _ in bubbles) > len(bubbles) // 3, bubbles


@pytest.mark.parametrize("wpus", [1, 3])
def test_far_walks(wpus):
    """Steps, units, columns, entries, rows and image slots around the powers of two up to the ends of their fields: the counters
    are preset to a few before the end, where long walks would have brought them."""
    config = Config(name="test", clusters=1, cols=1, wpus=wpus, max_planes=128)
    dut = Walk(config)
    simulator = Simulator(dut)
    rows = {name: inside(simulator, name, width)[0] for name, width in (("step", 16), ("left", 16), ("y", 12), ("slot", 8))}
    columns = {name: inside(simulator, name, width)[0] for name, width in (("j", 12), ("entry", 14))}
    good = {"pattern": Pattern.K3, "nr": 3, "nk": 3, "steps": 1, "units": 1, "cols": 1, "upi": 4095, "yin": 4095, "xe": 4095,
            "par0": 1}

    async def windows(ctx, fields: dict[str, int], presets: dict[str, int]) -> list:
        """Tokens with a window. Presets of the rows hold from the first row on, those of columns behind the first window."""
        ctx.set(dut.cmd, encode_conv(good | fields))
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        if "step" in presets:
            await ctx.tick()  # step 0 comes first: no later one may be taken for it
        for name in rows.keys() & presets.keys():
            ctx.set(rows[name], presets[name])
        found: list = []
        for _ in range(40):
            token = ctx.get(dut.token)
            await ctx.tick()
            if token.use:
                found.append(token)
                if len(found) == 1:
                    for name in columns.keys() & presets.keys():
                        ctx.set(columns[name], presets[name])
                if token.last:
                    return found
        raise AssertionError(f"the walk does not end: {fields} {presets}")

    async def testbench(ctx):
        ctx.set(dut.weights, 1)
        ctx.set(dut.drained, 1)
        ends = [(1 << k) + around for k in range(3, 17) for around in (-1, 0, 1) if (1 << k) + around < 65536]
        for count in ends:
            # The last three of so many steps of kernel 1, whose PE rows take part in all but the last, in all, and in half of them.
            limits = {"pattern": Pattern.K1, "rlim0": count - 1, "rlim1": count, "rlim2": count >> 1}
            found = await windows(ctx, {"steps": count, **limits}, {"step": count - 3})
            assert [token.read & 7 for token in found] == [7, 3, 3, 2], count
            assert [token.swap for token in found] == [1] * 4 and [token.fresh for token in found] == [1, 0, 0, 0], count
            # The last units, three row groups.
            found = await windows(ctx, {"units": count}, {"left": 2 * wpus + 1})
            assert [token.mask for token in found] == [(1 << wpus) - 1] * 2 + [1], count
        for count in (end for end in ends if end < 4096):
            # The last three columns; the partial sum of the last one.
            found = await windows(ctx, {"cols": count, "pbase": 100}, {"j": count - 3})
            assert [token.pa for token in found[1:]] == [100 + (j >> 1) for j in range(count - 3, count)], count
            assert [token.odd for token in found[1:]] == [j & 1 for j in range(count - 3, count)], count
            # The last entries of a stored row, and what lies behind them.
            found = await windows(ctx, {"xe": count, "cols": 5, "s2": 1, "ia0": 65000}, {"entry": count - 2})
            assert [(token.read & 1, token.addr[0]) for token in found[1:3]] == [
                (1, (65000 + entry) % 65536) for entry in (count - 2, count - 1)], count
            assert [token.read for token in found[3:]] == [0, 0], count
            # The last rows of an image, one a row group, and the first ones of the next; rows beyond those stored are padding.
            images = {"units": 4 * wpus, "upi": count, "yin": 3, "sums": 1, "ca": 7}
            found = await windows(ctx, images, {"y": count - 2, "slot": 126})
            slots = [token.slot[w] for token in found for w in range(wpus)]
            assert slots == [126, 126, *[127 + (unit - 2) // count for unit in range(2, 4 * wpus)]], count

    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


@pytest.mark.parametrize(("group", "cols", "wpus"), [(1, 1, 1), (2, 2, 3), (2, 2, 2), (4, 2, 3)])
def test_crossbars(group, cols, wpus):
    depth = 12
    config = Config(name="test", clusters=group, cols=cols, wpus=wpus, ibuf_depth=depth, ebuf_depth=depth)
    dut = InputNetwork(config)
    banks = config.row_banks
    rng = np.random.default_rng(cols + wpus)
    ibuf, ebuf = (rng.integers(0, 256, (banks, depth, 2, group), np.uint8) for _ in range(2))

    async def testbench(ctx):
        for dest, buffer in ((Dest.IBUF, ibuf), (Dest.EBUF, ebuf)):
            ctx.set(dut.load[0].valid, 1)
            ctx.set(dut.load[0].dest, dest)
            for bank, addr in np.ndindex(banks, depth):
                ctx.set(dut.load[0].bank, bank)
                ctx.set(dut.load[0].addr, addr)
                ctx.set(dut.load[0].data, int.from_bytes(buffer[bank, addr].tobytes(), "little"))
                await ctx.tick()
        ctx.set(dut.load[0].valid, 0)
        for trial in range(6):
            pattern, nk = (Pattern.K3, Pattern.K1)[trial % 2], int(rng.integers(1, 4))
            ctx.set(dut.token.taps, (1 << nk) - 1)
            history = []
            for _ in range(40):
                addresses = rng.integers(0, depth, banks)
                token = {"read": int(rng.integers(1 << 3 * wpus)), "mask": int(rng.integers(1 << wpus)), "use": 1, "wg": 1,
                         "sel": 2 * pattern + int(rng.integers(2)), "ea": int(rng.integers(depth)), "lane": int(rng.integers(2)),
                         "lap": int(rng.integers(config.laps)), "shift": int(rng.integers(2)),
                         "swap": int(rng.integers(2)), "snap": int(rng.integers(2))}
                # Banks of the rows of a WPU: those of K3, BP2 and K1.
                firsts, kind = rng.integers(0, banks, wpus), int(rng.integers(3))
                sources = [3 * (first // 3) + r if kind == 2 else (first + (r, r == 0)[kind]) % banks
                           for first in firsts for r in range(3)]
                for name, content in token.items():
                    ctx.set(getattr(dut.token, name), content)
                for i, bank in enumerate(sources):
                    ctx.set(dut.token.bank[i], int(bank))
                    ctx.set(dut.token.addr[i], int(addresses[bank]))
                history.append((token, [(int(bank), int(addresses[bank])) for bank in sources]))
                if len(history) > InputNetwork.LATENCY:
                    check(ctx, *history[-1 - InputNetwork.LATENCY], pattern, nk)
                await ctx.tick()
            assert not ctx.get(dut.fault)
        for i, bank in itertools.product(range(3 * wpus), range(banks)):
            # Each request alone, in every bank; one that is not made may lie anywhere.
            for read, address, expected in ((1, depth - 1, 0), (1, depth, 1), (1, depth + 4096, 1), (1, 65535, 1), (0, 65535, 0)):
                ctx.set(dut.token.use, 0)
                ctx.set(dut.token.read, read << i)
                ctx.set(dut.token.bank[i], bank)
                ctx.set(dut.token.addr[i], address)
                await ctx.tick().repeat(2)
                assert ctx.get(dut.fault) == expected, (i, bank, read, address)
            ctx.set(dut.token.addr[i], 0)
        for use, wg, address, expected in ((1, 1, depth + 32768, 1), (1, 1, 65535, 1), (1, 0, depth, 0), (0, 1, depth, 0)):
            for name, content in (("use", use), ("wg", wg), ("ea", address), ("read", 0)):
                ctx.set(getattr(dut.token, name), content)
            await ctx.tick().repeat(2)
            assert ctx.get(dut.fault) == expected, (use, wg, address)
        ctx.set(dut.token.bank[0], 0)
        for name, change in (("read", {"use": 0, "wg": 0, "read": 1}), ("ea", {"use": 1, "wg": 1, "read": 0})):
            for beyond in (0, 1):
                for field, content in change.items():
                    ctx.set(getattr(dut.token, field), content)
                ctx.set(dut.token.addr[0], depth - 1 + (beyond if name == "read" else 0))
                ctx.set(dut.token.ea, depth - 1 + (beyond if name == "ea" else 0))
                await ctx.tick().repeat(2)
                assert ctx.get(dut.fault) == beyond

    def check(ctx, token: dict[str, int], sources: list[tuple[int, int]], pattern: Pattern, nk: int) -> None:
        for name in ("shift", "sel", "use", "swap", "snap", "wg"):
            assert ctx.get(getattr(dut.ctl, name)) == token[name]
        for w in range(wpus):
            for r in range(3):
                bank, addr = sources[3 * w + r]
                beat = ibuf[bank, addr] * (token["read"] >> 3 * w + r & 1)
                for c in range(cols):
                    x = dut.x[w][r * cols + c]
                    channel = token["lap"] * cols + c
                    assert [ctx.get(x.x0), ctx.get(x.x1)] == [beat[0, channel], beat[1, channel]]
            for k in range(3):
                column = ebuf[3 * w + (k if pattern == Pattern.K1 else 0), token["ea"], token["lane"]]
                column = column * (token["mask"] >> w & 1) * (k < nk)
                assert [ctx.get(dut.e[w][m][k]) for m in range(group)] == column.tolist()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
