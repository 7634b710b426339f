"""Pooling block: maxima, sums and positions of windows of any taps against their definition."""

import dataclasses
import itertools
import random

import pytest
from amaranth.sim import Simulator

from gradloom.rtl.acore.pool import POOL_LATENCY, Pool
from gradloom.rtl.acore.poolwalk import LANES
from gradloom.verif.plain_arith import decode

LARGEST, LEAST = 0x3F, 0x40
"""Codes of 4032 and of -4096."""


@dataclasses.dataclass
class Stored:
    """A stored beat: bytes of both columns, and by output lane and column whether it is a tap and its number."""

    a: list[int]
    b: list[int]
    inside: list[list[int]]
    k: list[list[int]]


def pooled(window: list[Stored], lane: int, *, maximum: int, match: int) -> tuple[int, int]:
    """Maximum or sum of the taps that count, and the number of the first maximum; 0 if there is none."""
    taps = [(decode(beat.a[c]), beat.k[lane][c]) for beat in window for c in range(LANES)
            if beat.inside[lane][c] and (not match or beat.b[c] == beat.k[lane][c])]
    largest = max((value for value, _ in taps), default=0)
    value = largest if maximum else sum(value for value, _ in taps)
    return value, next((k for value, k in taps if value == largest), 0)


def of_channel(beat: Stored, channel: int) -> Stored:
    """What a further channel has stored beside a beat: other values, the numbers of the other column."""
    return dataclasses.replace(beat, a=[value + 37 * channel & 255 for value in beat.a], b=beat.b[::-1] if channel % 2 else beat.b)


def check(windows: list[list[Stored]], *, maximum: int, match: int, rng: random.Random, channels: int = 1,
          lanes: int = LANES) -> None:
    """Windows one after the other, with cycles without a tap between their beats; of several channels, or with one lane, in
    turns."""
    turns = [(column, channel) for column in range(LANES // lanes) for channel in range(channels)]
    dut = Pool(lanes, len(turns))
    values: list[list[int]] = []
    indices: list[list[int]] = []
    ends: list[int] = []

    async def cycle(ctx, tap: dict[str, object]) -> None:
        ctx.set(dut.tap, tap)
        values.append([ctx.get(dut.value[lane]) for lane in range(lanes)])
        indices.append([ctx.get(dut.index[lane]) for lane in range(lanes)])
        await ctx.tick()

    async def bench(ctx):
        ctx.set(dut.maximum, maximum)
        ctx.set(dut.match, match)
        for window in windows:
            for number, beat in enumerate(window):
                while rng.random() < 0.1:
                    # What comes without a tap counts nowhere.
                    await cycle(ctx, {"v": 0, "first": rng.randrange(2), "last": rng.randrange(2), "inside": [[1, 1], [1, 1]]})
                last = number == len(window) - 1
                for turn, (column, channel) in enumerate(turns):
                    stored = of_channel(beat, channel)
                    ctx.set(dut.a, stored.a)
                    ctx.set(dut.b, stored.b)
                    for name, value in (("turn", turn), ("column", column)):
                        if hasattr(dut, name):
                            ctx.set(getattr(dut, name), value)
                    if last:
                        ends.append(len(values))
                    await cycle(ctx, {"v": 1, "first": int(number == 0), "last": int(last), "inside": beat.inside, "k": beat.k})
        for _ in range(POOL_LATENCY + 2):
            await cycle(ctx, {"v": 0})

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    for number, ((window, (column, channel)), end) in enumerate(zip(itertools.product(windows, turns), ends, strict=True)):
        stored = [of_channel(beat, channel) for beat in window]
        expected = [pooled(stored, lane, maximum=maximum, match=match) for lane in range(column, column + lanes)]
        assert values[end + POOL_LATENCY] == [value for value, _ in expected], number
        if maximum:
            assert indices[end + POOL_LATENCY + 1] == [index for _, index in expected], number


@pytest.mark.parametrize(("maximum", "match", "channels", "lanes"), [
    *((maximum, match, 1, LANES) for maximum, match in itertools.product(range(2), range(2))), (1, 0, 2, 1),
    (1, 1, 2, 1), (0, 1, 4, 2)])
def test_windows(maximum, match, channels, lanes):
    """Random beats in windows of one to eight, all numbers of taps, few codes (so that maxima meet) or many, and no taps at all."""
    rng = random.Random(maximum + 2 * match)
    windows = []
    for _ in range(120 // channels):
        codes = rng.choice((range(256), (LARGEST, LEAST, 0, 1, 0x7F)))
        share = rng.choice((0.0, 0.3, 0.8, 1.0))
        window = []
        for _ in range(rng.randint(1, 8)):
            k = [[rng.getrandbits(8) for _ in range(LANES)] for _ in range(LANES)]
            window.append(Stored([rng.choice(codes) for _ in range(LANES)],
                                 [rng.choice((k[0][c], k[1][c], rng.getrandbits(8))) for c in range(LANES)],
                                 [[int(rng.random() < share) for _ in range(LANES)] for _ in range(LANES)], k))
        windows.append(window)
    check(windows, maximum=maximum, match=match, rng=rng, channels=channels, lanes=lanes)


@pytest.mark.parametrize("code", [LARGEST, LEAST])
def test_the_largest_window(code):
    """Sums of 15 x 15 taps of the largest codes; of a maximum, each of the numbers 0 to 224."""
    rng = random.Random(code)

    def window(best: int | None) -> list[Stored]:
        """Rows of eight beats; behind the 15th column lies none."""
        beats = []
        for row, beat in itertools.product(range(15), range(8)):
            k = [15 * row + 2 * beat + c for c in range(LANES)]
            inside = [int(2 * beat + c < 15) for c in range(LANES)]
            beats.append(Stored([code if best is None else LARGEST if best == at else LEAST for at in k], [0, 0],
                                [inside] * LANES, [k] * LANES))
        return beats

    check([window(None)] * 2, maximum=0, match=0, rng=rng)
    check([*(window(best) for best in (0, 1, 15, 127, 128, 129, 223, 224)), window(None)], maximum=1, match=0, rng=rng)


@pytest.mark.parametrize("code", [LARGEST, LEAST])
def test_sums_fill_their_22_bits(code):
    """Of more taps than a window of 15 x 15 has."""
    beat = Stored([code] * LANES, [0] * LANES, [[1] * LANES] * LANES, [[0] * LANES] * LANES)
    check([[beat] * 256] * 2, maximum=0, match=0, rng=random.Random(code))
