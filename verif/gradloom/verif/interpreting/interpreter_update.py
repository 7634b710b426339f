"""The microprograms that change weights and parameters on numpy memories, and the export of weight gradients."""

from typing import Any

import numpy as np

from gradloom.models.arithmetic import feedback, pint, update
from gradloom.verif.interpreting.interpreter_run import Run

__all__ = ["parameters", "weight_gradient"]


def parameters(run: Run, numbers: tuple[int, ...]) -> None:
    """Entries relative to pb0 (0 gamma, 1 beta or bias, 2 tau) by the sums of their gradients, three entries on."""
    for number in numbers:
        master, velocity = run.entry(number)
        result = update.parameter(
            master,
            velocity,
            run.total(number + 3),
            inv=run.f["inv"],
            shift=run.sh[min(number, 1)],
            momentum=run.m.momentum,
            lm=run.m.lm,
            le_lr=-run.sh[2],
        )
        words = run.chip.pbuf[run.f["pb0"] + number].view("<i4").reshape(run.g, 2)
        words[:, 0], words[:, 1] = np.asarray(result.master), np.asarray(result.velocity)


def weight_gradient(run: Run, *, export: bool, rests: bool = False) -> None:
    """Weight gradients, with those of XIN if asked for, to XOUT and, but for ``export``, into weights and velocities; ``rests``:
    with error feedback."""
    f, g, bb = run.f, run.g, run.m.config.block_beats
    if f["nb"] != f["nr"] * f["nk"] * (f["side"] + 1) * bb:
        raise ValueError("a sweep over weight gradients that is not nr nk blocks of each tile long")
    beats = f["planes"] * f["nb"]
    where = slice(f["dwbase"], f["dwbase"] + beats)
    dw = run.chip.dw[where]
    if run.m.config.export_depth:
        moved = np.arange(f["dwbase"], f["dwbase"] + beats) % run.m.config.export_depth
        dw = dw + (run.chip.xin[moved] if f["xin"] else 0)
        run.chip.xout[moved] = dw
    elif export or f["xin"]:
        raise ValueError("sums of weight gradients are exported or imported, and there are no buffers for them")
    if export:
        return
    plane, r, k, side, b, lane, i = np.meshgrid(
        *(np.arange(n) for n in (f["planes"], f["nr"], f["nk"], f["side"] + 1, bb, 2, g)), indexing="ij"
    )
    idx = (
        np.array([f["idx0"], f["idx1"], f["idx2"]])[r]
        + (plane + side) * f["s_t"]
        + k * f["s_k"]
        + (2 * b + lane) * f["s_lane"]
        + i * f["s_ch"]
    )
    valid = slice(0, 1) if g == 1 else slice(0, 2)
    places = idx.reshape(dw.shape)[:, valid]
    rounding = run.mode(2, places)
    more: dict[str, Any] = {"mode_w": rounding}
    if rests:
        if rounding.rnd is None:
            raise ValueError("WU_REST: r2 must be 1, as rests are rounded by random bits")
        more |= {"rest": run.chip.aa[f["sm0"] : f["sm0"] + beats][:, valid],
                 "rnd": rounding.rnd >> feedback.FEEDBACK_F - feedback.RANDOM_BITS}
    arrays = [
        array[:, valid]
        for array in (
            dw,
            run.chip.aa[f["sa0"] : f["sa0"] + beats],
            run.chip.ab[f["sb0"] : f["sb0"] + beats],
        )
    ]
    result = update.weights(
        arrays[0],
        pint.decode(arrays[1]),
        pint.decode(arrays[2]),
        inv=f["inv"],
        momentum=run.m.momentum,
        lm=run.m.lm,
        shifts=[run.sh[j] for j in range(5)],
        decay=run.m.exponent(3) != 255,
        mode_v=run.mode(1, places),
        **more,
    )
    run.statistic(1, result.v.stat)
    run.statistic(2, result.w.stat)
    outputs = [(run.chip.ob, f["ob0"], result.v.code), (run.chip.oa, f["oa0"], result.w.code)]
    if result.rest is not None:
        outputs.append((run.chip.oa, f["om0"], result.rest))
    for memory, addr, codes in outputs:
        full = np.zeros((beats, 2, g), np.uint8)
        full[:, valid] = codes
        run.place(memory, addr, full)
