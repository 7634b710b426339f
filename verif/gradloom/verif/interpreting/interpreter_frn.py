"""The microprograms of FRN on numpy memories: norms, forward and backward, by planes or by tiles of rows."""

import numpy as np

from gradloom.models.arithmetic import arith, frn
from gradloom.verif.interpreting.interpreter_run import Run

__all__ = ["add_norm", "backward", "forward", "put_quotient"]

_PLANE = 6
"""Entry relative to pb0 of the sum of products of a plane in rows."""


def _lam(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """q and le (planes, G) from the parameter buffer."""
    words = run.chip.pbuf[run.f["pl0"] : run.f["pl0"] + run.f["planes"]].copy().view("<u8").astype(np.int64)
    le = words >> 16 & 0xFF
    return words & 0xFFFF, np.where(le > 127, le - 256, le)


def _put_lam(run: Run, x: np.ndarray) -> None:
    """lambda of every plane from the C-Core's sums of magnitudes, of which ``x`` may be a tile of rows."""
    f = run.f
    norms = run.chip.norms[f["half"], :, f["pk"], f["ps0"] : f["ps0"] + f["planes"]].sum(axis=0)
    if f["n"] == f["py"] * run.x_columns and (norms != abs(x).sum(axis=(2, 3))).any():
        raise ValueError("FRN over planes whose sums of magnitudes the C-Core has not gathered")
    put_quotient(run, norms)


def put_quotient(run: Run, norms: np.ndarray) -> None:
    """lambda of planes with these sums of magnitudes (planes, G)."""
    f = run.f
    total = norms.astype(object) + max(1, int(arith.align(f["n"], run.sh[0])))
    q, le = frn.reciprocal_norm(f["n"], np.minimum(total, arith.INT64_MAX))
    value = q | (le & 0xFF) << 16
    run.place(run.chip.pbuf, f["pl0"], value.astype("<i8").view(np.uint8).reshape(f["planes"], 8 * run.g))


def add_norm(run: Run, *, first: bool) -> None:
    """Sum of magnitudes of a tile of rows to the entry where lambda of its plane will be."""
    f = run.f
    if f["planes"] != 1 or f["dry"]:
        raise ValueError("rows of more than one plane, or dry")
    entry = run.chip.pbuf[f["pl0"]].view("<i8")
    entry[:] = run.chip.norms[f["half"], :, f["pk"], f["ps0"]].sum(axis=0) + (0 if first else entry)


def forward(run: Run, *, residual: bool, threshold: bool, whole: bool) -> None:
    """``whole``: lambda comes from the norms and is kept, unless dry; else it is in the parameter buffer."""
    f = run.f
    gamma, beta, tau = (run.master(i) >> 12 for i in range(3))
    extra = arith.align(run.decoded(run.chip.aa, f["sa0"]), run.sh[2]) if residual else None
    x = run.x()
    kept = run.chip.pbuf.copy()
    if whole:
        _put_lam(run, x)
    q, le = _lam(run)
    if f["dry"]:
        run.chip.pbuf[:] = kept
    result = frn.normalise(
        x, gamma, beta, tau, q, le, sh_z=run.sh[1], residual=extra, threshold=threshold,
        mode_xhat=run.mode(1), mode_z=run.mode(2),
    )
    run.statistic(2, result.z.stat)
    run.put(run.chip.oa, f["oa0"], result.z.code)
    run.put(run.chip.ob, f["ob0"], result.xhat_code)
    if threshold:
        run.put_bits(np.asarray(result.bit).astype(np.uint8))


def backward(run: Run, *, threshold: bool, sums: str, sweep: bool) -> None:
    """``sums``: "plane" of each plane, "first" and "add" of a tile of rows, "" none but the one that tiles have left."""
    f = run.f
    inv, k = arith.reciprocal(f["n"])
    if sweep and (f["inv"] != inv or run.sh[3] != 18 + k):
        raise ValueError("FRN_BWD: inv or SH3 do not belong to the plane's size")
    if sums == "plane" and f["n"] != f["py"] * run.x_columns:
        raise ValueError(f"FRN_BWD over {f['n']} positions of a plane of {f['py']} x {run.x_columns}")
    if sums != "plane" and f["planes"] != 1:
        raise ValueError("rows of more than one plane")
    dz = run.decoded(run.chip.aa, f["sa0"])
    xhat = run.decoded(run.chip.ab, f["sb0"])
    d = np.where(run.bits(), dz, 0) if threshold else dz
    products = (d * xhat).sum(axis=(2, 3))
    if sums == "first" and not f["dry"]:
        run.chip.pbuf[f["pb0"] + _PLANE].view("<i8")[:] = 0
    if sums in ("first", "add"):
        run.add_sum(_PLANE, products[0])
    if sweep:
        plane = products if sums else run.total(_PLANE)[None]
        dx = frn.error(d, xhat, plane, run.master(0) >> 12, *_lam(run), n=f["n"], sh0=run.sh[1], mode=run.mode(2))
        run.statistic(2, dx.stat)
        run.put(run.chip.oa, f["oa0"], dx.code)
    if sums:
        for number, value in ((3, products), (4, d.sum(axis=(2, 3))), (5, (dz - d).sum(axis=(2, 3)))):
            run.add_sum(number, value.sum(axis=0))
