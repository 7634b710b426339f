"""Scenarios of the A-Core's bench: each runs some microprograms on random planes and compares every memory."""

import random
from collections.abc import Awaitable, Callable

from gradloom.contracts.isa import Opcode, PsumLayout, XSource
from gradloom.contracts.microprograms import TABLE
from gradloom.verif.acore.acore_bench import Bench
from gradloom.verif.acore.acore_commands import (
    NORMS,
    ROWS,
    TILE,
    WINDOWS,
    any_run,
    command,
    plane_fields,
    pool_fields,
    reciprocal,
    shared_fields,
    shift_sum,
    update_tiles,
)

__all__ = ["SCENARIOS"]

_NORMALISED = ("FRN_FWD", "FRN_ROWS_RES", "FRN_FWD_RES", "FRN_ROWS", "FRN_FWD_LIN", "FRN_ROWS_LIN", *NORMS)


async def forward(bench: Bench, seed: int) -> None:
    """FRN, ReLU, linear and backward output programs from partial sums in every layout."""
    ref, rng = bench.ref, random.Random(seed)
    for name in (*_NORMALISED, "RELU_FWD", "LIN_FWD", "BP_OUT", "BP_OUT_RES", "BP_OUT_ADD"):
        fields = plane_fields(rng) | {"pw0": rng.randrange(bench.config.wpus)}
        if name.startswith("FRN"):
            fields |= TILE if name in NORMS else {}
            shifts = shift_sum(0, -12, -10) + shift_sum(1, 20, 9) + shift_sum(2, 20, 11)
            ref.exponents[9] = rng.randint(-14, -8)
        elif name.startswith("BP"):
            shifts = shift_sum(1, 24, 9, -9) + shift_sum(2, rng.randint(-4, 20))
        else:
            shifts = shift_sum(0, rng.randint(-12, 6)) + shift_sum(1, rng.randint(4, 14))
        fields |= shared_fields(rng, bench.config.wpus, fields)
        if rng.random() < 0.3:
            fields |= {"r2": 1, "f2": 16, "idx0": rng.getrandbits(24), "s_k": rng.getrandbits(10), "s_ch": rng.getrandbits(8)}
        await bench.run(name, TABLE[name], fields, shifts)


async def layouts(bench: Bench, seed: int) -> None:
    """Every layout of partial sums, first units and parities."""
    rng = random.Random(seed)
    for layout in PsumLayout:
        for _ in range(4):
            fields = plane_fields(rng, layout) | {"pw0": rng.randrange(bench.config.wpus)}
            await bench.run("BP_OUT", TABLE["BP_OUT"], fields, shift_sum(1, rng.randint(8, 14)))


async def shared_rows(bench: Bench, seed: int) -> None:
    """Rows that WPUs share, behind others or all of a plane, with parts of all sizes."""
    rng, wpus, ran = random.Random(seed), bench.config.wpus, 0
    for trial in range(40 if wpus > 1 else 0):
        fields = plane_fields(rng, PsumLayout.ROWS, widest=9)
        if trial % 4 == 0:
            fields |= {"planes": 1, "py": 1 + trial // 4 % 2}
            fields["nb"] = fields["py"] * fields["xe"]
        if shared := shared_fields(rng, wpus, fields):
            await bench.run("BP_OUT", TABLE["BP_OUT"], fields | shared, shift_sum(1, rng.randint(8, 14)))
            ran += 1
    assert ran >= 10 or wpus == 1


async def logits(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        fields = {"planes": rng.randint(1, 8), "nb": 1, "xe": 1, "py": 1, "xodd": 1, "layout": PsumLayout.K1, "pj": 1,
                  "pk": rng.randint(0, 2), "pbase": 8, "ob0": rng.randint(0, 3), "om0": rng.randint(1, 2)}
        await bench.run("LOGITS", TABLE["LOGITS"], fields, shift_sum(0, rng.randint(-6, 6)) + shift_sum(1, rng.randint(-12, 4)))


async def backward(bench: Bench, seed: int) -> None:
    """Backward of the normalisation and of the activations, dry and real, then the parameter updates."""
    rng = random.Random(seed)
    for name in ("FRN_BWD", "FRN_BWD_LIN", "RELU_BWD", "LIN_BWD", *ROWS):
        for dry in (1, 0):
            fields = plane_fields(rng) | {"xsrc": XSource.NONE, "dry": dry}
            fields |= {"planes": 1} if name in ROWS else {}
            fields["inv"], k = reciprocal(fields["n"])
            shifts = shift_sum(1, rng.randint(-12, -4) if name.startswith("FRN") else 0) + shift_sum(3, 18 + k)
            await bench.run(name, TABLE[name], fields, shifts)
    inv, k = reciprocal(rng.randint(1, 40))
    shifts = shift_sum(0, rng.randint(-20, -2) - k) + shift_sum(1, rng.randint(-12, -2) - k) + shift_sum(2, 0, -1)
    for name in ("PARAM_UPD", "BIAS_UPD", "PARAM_UPD"):
        await bench.run(name, TABLE[name], {"planes": 1, "nb": 1, "xe": 1, "xsrc": XSource.NONE, "inv": inv}, shifts)


async def weights(bench: Bench, seed: int) -> None:
    """Weight updates with stochastic rounding, weight decay on and off, and the export of weight gradients."""
    ref, rng, config = bench.ref, random.Random(seed), bench.config
    for i in range(5):
        nr, nk = rng.randint(1, 3), rng.randint(1, 3)
        planes, side = update_tiles(config, rng, nr, nk)
        nb = nr * nk * (side + 1) * config.block_beats
        # The last gradients, of a large reciprocal, reach the top one of the 64 bits that are encoded.
        wide = i == 4
        inv, k = reciprocal(33 if wide else rng.randint(1, 40))
        ref.decay_off = i & 1
        ref.lm, ref.momentum = rng.getrandbits(8), rng.getrandbits(8)
        fields = {"planes": planes, "nb": nb, "xe": nb, "xsrc": XSource.DW, "nr": nr, "nk": nk, "side": side, "inv": inv,
                  "s_t": rng.getrandbits(12), "dwbase": rng.randint(0, 5), "xin": rng.randint(0, 1), "r1": 1, "r2": 1,
                  "f1": 16, "f2": 16, "t1": 12, "t2": 13, "oa0": 3, "ob0": 1, "om0": 202, "sa0": 2, "sb0": 5, "sm0": 7} | {
                      name: rng.getrandbits(24) for name in ("idx0", "idx1", "idx2", "s_k", "s_lane", "s_ch")}
        fields["xin"] |= wide
        shifts = (shift_sum(0, 8 if wide else rng.randint(-36, -14) - k) + shift_sum(1, 16, 12, -12)
                  + shift_sum(2, rng.randint(-4, 8)) + shift_sum(3, rng.randint(-4, 8)) + shift_sum(4, 16))
        await bench.run("WU", TABLE["WU"], fields, shifts)
        await bench.run("WU_REST", TABLE["WU_REST"], fields, shifts)
        await bench.run("DW_EXPORT", TABLE["DW_EXPORT"], fields, [])
        # The short path behind the long one: no rest is left over for it.
        plane = plane_fields(rng, PsumLayout.ROWS) | {"xsrc": XSource.NONE, "planes": 4, "oa0": 100}
        pair = [bench.prepare("WU_REST", TABLE["WU_REST"], fields, shifts), bench.prepare("RELU_BWD", TABLE["RELU_BWD"], plane, [])]
        assert await bench.stream(pair, in_flight=2) == [0, 0]
        await bench.compare("rests before bits")


async def pools(bench: Bench, seed: int) -> None:
    """Maximum and average pools with every relation of window, stride and padding."""
    ref, rng = bench.ref, random.Random(seed)
    for window in WINDOWS:
        forward_fields, backward_fields, k = pool_fields(rng, *window)
        await bench.run("MAXPOOL_FWD", TABLE["MAXPOOL_FWD"], forward_fields | {"pmax": 1}, shift_sum(1, rng.randint(-2, 1)))
        for beat in range(forward_fields["planes"] * forward_fields["nb"]):
            ref.ab[forward_fields["sb0"] + beat] = ref.ob[forward_fields["ob0"] + beat]
        await bench.load_all()
        await bench.run("MAXPOOL_BWD", TABLE["MAXPOOL_BWD"], backward_fields | {"pmax": 1}, shift_sum(1, rng.randint(-2, 3)))
        await bench.run("AVGPOOL_FWD", TABLE["AVGPOOL_FWD"], forward_fields, shift_sum(1, 15 + k + rng.randint(-2, 1)))
        await bench.run("AVGPOOL_BWD", TABLE["AVGPOOL_BWD"], backward_fields, shift_sum(1, 15 + k + rng.randint(-2, 1)))
    # As far above the first stored row as the place of the first window is computed before the first tap.
    _, fields, _ = pool_fields(rng, 3, 1, 1)
    fields |= {"planes": 1, "pyi": 18, "pxi": 4, "poff": 15}
    await bench.run("MAXPOOL_BWD", TABLE["MAXPOOL_BWD"], fields | {"pmax": 0}, shift_sum(1, 0))


async def overlapping(bench: Bench, seed: int) -> None:
    """Commands that follow each other as closely as they can, now and then one that is illegal, and one to the program memory."""
    await _overlapping(bench, seed)


async def rivalling(bench: Bench, seed: int) -> None:
    """The same while Storers and the drain read memories of the A-Core's as well."""
    bench.rivals = random.Random(seed)
    await _overlapping(bench, seed)


async def _overlapping(bench: Bench, seed: int) -> None:
    ref, rng = bench.ref, random.Random(seed)
    bench.set_hyper()
    for in_flight in (4, 2, 4):
        commands, faults = [], []
        for i in range(25):
            ref.fault = 0
            name, fields, shifts = any_run(bench.config, rng, 10 * i)
            kind = rng.random()
            if kind < 0.05:
                commands.append(command(Opcode.RUN, [], uprog=TABLE[name], **(fields | {"nb": 0})))
                faults.append(0x20)
            elif kind < 0.1:
                commands.append(command(Opcode.UCODE, [rng.getrandbits(32)] * 3, address=4 * (bench.config.microcode_depth - 1)))
                faults.append(0)
            else:
                commands.append(bench.prepare(name, TABLE[name], fields, shifts))
                faults.append(ref.fault)
        assert await bench.stream(commands, in_flight=in_flight) == faults
        await bench.compare(f"{in_flight} commands under way")


SCENARIOS: dict[str, Callable[[Bench, int], Awaitable[None]]] = {
    "forward": forward, "layouts": layouts, "shared_rows": shared_rows, "logits": logits, "backward": backward,
    "weights": weights, "pools": pools, "overlapping": overlapping, "rivalling": rivalling}
"""By name; a scenario expects a bench whose reference was filled and loaded."""
