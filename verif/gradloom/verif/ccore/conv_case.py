"""From a layer and a training phase to CONV commands, buffer contents and the sums that they must give.

An independent reading of ``docs/machine.md`` sections 3 to 5 for testbenches: the sums come from a brute-force convolution
over images, never from the commands. One case is one array tile: one group of output channels (three for kernel 1) and all
groups of input channels.

Here are the tiles of kernels of 2 x 2 taps and more; those of kernel 1 are in :mod:`gradloom.verif.ccore.conv_kernel1`.

Windows
    Kernels are cut into windows of at most 3 x 3 taps, rows and columns alike, one CONV command each, with ``acc`` from the second
    on. Stride 1: starts 0, 3, 6, ... Stride 2: starts 0, 2, 4, ..., 2 taps each, the last one the rest.
FP, ``pair``
    One column kx of a kernel of 3 n + 1 columns, kx - p even, is left to PAIR; windows of three columns lie beside it. For each
    window of rows one command of PAIR, all of them before those of K3. The column's blocks are stored twice, side by side.
FP, WG
    Window (ky0, kx0) of unit oy, position ox reads row oy s + ky0 - p + r and column ox s + kx0 - p + k: ``y0 = ky0 - p``, first
    column x0 = kx0 - p (:func:`gradloom.verif.ccore.conv_fields.column_start`).
BP, stride 1
    FP on the errors with the kernel rotated: the windows are those of the rotated kernel (tap k'0 + k is tap K - 1 - k'0 - k of
    the layer), pad K - 1 - p. PE row r takes kernel row K - 1 - ky'0 - r, its blocks begin at column K - 3 - kx'0 (which may lie
    before the row; those taps are not valid) and ``flip`` reverses them.
BP, stride 2
    With p' = p - window start, error row i gives output rows 2 i + 1 - p' (tap 1) and 2 i + 2 - p' (tap 2; tap 0 from row
    i + 1). So that all windows of a tile add to the same place, unit v of an image is error row v + floor((p' - 1) / 2) =
    v + y0: for p odd it holds output rows (2 v, 2 v + 1), for p even (2 v - 1, 2 v), i.e. ``psr = 1`` and the first row lies
    before the plane. Units per image: ceil((Y + psr) / 2). Columns alike: first position t0 = floor((p' - 1) / 2), ``psc``,
    cols = ceil((X + psc) / 2).
"""

import numpy as np

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Pattern
from gradloom.verif.ccore import conv_reference, shared_rows
from gradloom.verif.ccore.conv_fields import column_start, pair_windows, place_psum, row_walk, windows
from gradloom.verif.ccore.conv_kernel1 import kernel1
from gradloom.verif.ccore.conv_tile import (
    ConvCase,
    Layer,
    drain_base,
    drain_gap,
    expect_gradient,
    expect_sums,
    store_errors,
    store_rows,
)

__all__ = ["make_case"]


def _groups(values: np.ndarray, g: int, axis: int) -> np.ndarray:
    """Pad ``axis`` with code 0 to a multiple of ``g``."""
    pad = [(0, 0)] * values.ndim
    pad[axis] = (0, -values.shape[axis] % g)
    return np.pad(values, pad)


def make_case(config: Config, layer: Layer, phase: str, rng: np.random.Generator, *, window: int = 0,
              place: dict[str, int] | None = None) -> ConvCase:
    """A tile of ``layer`` in ``phase`` (``"fp"``, ``"bp"``, ``"wg"``) with random codes.

    Parameters
    ----------
    window : :class:`int`
        WG: which of the kernel's windows (``fc``: which input column) the tile is; FP and BP take all in turn.
    place : dict
        Instead of random ones: ``base`` (first address in the operand buffers, and beat in the DW buffer), ``pbase``, ``half``,
        ``wbase``.
    """
    g = config.group
    shape_x = (layer.images, layer.c, layer.y, layer.x)
    x = _groups(rng.integers(0, 256, shape_x, np.uint8), g, 1)
    w = _groups(_groups(rng.integers(0, 256, (layer.m, layer.c, layer.kernel, layer.kernel), np.uint8), g, 0), g, 1)
    e = _groups(rng.integers(0, 256, (layer.images, layer.m, layer.yo, layer.xo), np.uint8), g, 1)
    if place is None:
        place = {"pbase": int(rng.integers(0, 5)), "half": int(rng.integers(0, 2)), "wbase": int(rng.integers(0, 4)),
                 "base": int(rng.integers(0, 9))}
    place = dict(place)
    base = place.pop("base")
    if layer.kernel == 1:
        case = kernel1(config, layer, phase, x, w, e, place, base, window)
    elif phase == "wg":
        case = _window_gradient(config, layer, x, e, base, window, rng)
    else:
        case = _window_sums(config, layer, phase, x, w, e, place, base, rng)
    if phase == "wg":
        laps = [{"lap": lap, "lap_end": lap} for lap in range(config.laps)]
    else:
        laps = [{"lap": 0, "lap_end": min(config.laps, -(-(layer.c if phase == "fp" else layer.m) // config.cols)) - 1}]
    case.commands = [fields | lap for fields in case.commands for lap in laps]
    # BP2 and WG ignore the field.
    case.commands[-1]["sums"] = 1
    return case


def _share(config: Config, layer: Layer, rng: np.random.Generator, **sizes: int) -> shared_rows.Shared | None:
    """How rows of a window of 3 x 3 are shared, if they are."""
    if not layer.shared or (layer.kernel, layer.pad) != (3, 1):
        return None
    return shared_rows.plan(config, rng, images=layer.images, **sizes)


def _window_sums(config: Config, layer: Layer, phase: str, x, w, e, place: dict, base: int, rng: np.random.Generator) -> ConvCase:
    """FP and BP with kernels of 2 and more."""
    g, kernel, s, p = config.group, layer.kernel, layer.stride, layer.pad
    forward = phase == "fp"
    pattern = Pattern.BP2 if not forward and s == 2 else Pattern.K3
    source = x if forward else e
    steps = source.shape[1] // g
    yin, xin = source.shape[2:]
    xe = (xin + 1) // 2
    psr = int(pattern == Pattern.BP2 and p % 2 == 0)
    if forward:
        upi, cols = layer.yo, layer.xo
    elif s == 1:
        upi, cols = layer.y, layer.x
    else:
        upi, cols = -(-(layer.y + psr) // 2), -(-(layer.x + psr) // 2)
    case = ConvCase(config)
    istep = -(-layer.images * yin // config.row_banks) * xe
    ystep = 2 if forward and s == 2 else 1
    shared = _share(config, layer, rng, upi=upi, yin=yin, ystep=ystep, xe=xe, cols=cols) if pattern == Pattern.K3 else None
    if shared is not None:
        istep = shared.istep
    parts = [(rows, columns, pattern) for rows in windows(kernel, s) for columns in windows(kernel, s)]
    left = None
    if layer.pair and forward:
        left, beside = pair_windows(layer)
        parts = [(rows, columns, one) for columns, one in (((left, 2), Pattern.PAIR), *((columns, pattern) for columns in beside))
                 for rows in windows(kernel, s)]
    # Behind the kernel's blocks those of the column that PAIR takes, twice.
    twice = kernel * kernel
    wstep = -(-(twice + (0 if left is None else 2 * kernel)) // 3)
    for step in range(steps):
        store_rows(case.ibuf, source[:, step * g:(step + 1) * g], base=base + step * istep, wpus=config.wpus,
                    kernel1_row=None)
        if shared is not None:
            shared.copy(case.ibuf, base + step * istep)
        for ky in range(kernel):
            for kx in range(kernel):
                block = w[:g, step * g:(step + 1) * g, ky, kx] if forward else w[step * g:(step + 1) * g, :g, ky, kx]
                for index in (ky * kernel + kx, *((twice + 2 * ky, twice + 2 * ky + 1) if kx == left else ())):
                    case.wbuf[index % 3, place["wbase"] + step * wstep + index // 3] = block
    for (ky0, nr), (kx0, nk), one in parts:
        pair = one == Pattern.PAIR
        if forward:
            y0, x0 = ky0 - p, kx0 - p
            first = [twice + 2 * (ky0 + r) if pair else (ky0 + r) * kernel + kx0 for r in range(3)]
        elif s == 1:
            y0, x0 = ky0 - (kernel - 1 - p), kx0 - (kernel - 1 - p)
            first = [(kernel - 1 - ky0 - r) * kernel + kernel - 3 - kx0 for r in range(3)]
        else:
            y0, x0 = (p - ky0 - 1) // 2, (p - kx0 - 1) // 2
            first = [(ky0 + r) * kernel + kx0 for r in range(3)]
        walk = row_walk(modulus=config.row_banks, ystep=ystep, y0=y0, yin=yin, upi=upi, xe=xe, base=base)
        case.commands.append({
            "pattern": one, "s2": int(pair or (forward and s == 2)), "p2": int(forward and s == 2), "transpose": int(not forward),
            "flip": int(not forward and s == 1), "acc": int(bool(case.commands)), "nr": nr, "nk": nk, "steps": steps,
            "units": layer.images * upi, "cols": -(-cols // 2) if pair else cols, "upi": upi, "yin": yin, "y0": y0, "xe": xe,
            "istep": istep, "wstep": wstep, **{f"woa{r}": first[r] // 3 for r in range(3)},
            **{f"wob{r}": first[r] % 3 for r in range(3)}, **column_start(x0, one), **walk, **place,
            **(shared.fields if shared is not None else {})})
    fields = case.commands[-1]
    if forward:
        sums = conv_reference.forward(conv_reference.decode_code(x), conv_reference.decode_code(w), layer)[:, :g]
    else:
        sums = conv_reference.backward(conv_reference.decode_code(e), conv_reference.decode_code(w), layer)[:, :g]
    if pattern == Pattern.K3:
        expect_sums(case, sums)
    for image in range(layer.images):
        for row in range(sums.shape[2]):
            for column in range(sums.shape[3]):
                if pattern == Pattern.BP2:
                    (v, subrow), (j, subcol) = divmod(row + psr, 2), divmod(column + psr, 2)
                    key = place_psum(config, fields, image * upi + v, j, 2 * subrow + subcol)
                else:
                    key = place_psum(config, fields, image * upi + row, column)
                case.psum[key] = sums[image, :, row, column]
    return case


def _window_gradient(config: Config, layer: Layer, x, e, base: int, window: int, rng: np.random.Generator) -> ConvCase:
    """WG of one window of a kernel of 2 and more; odd windows are computed twice and added."""
    g, s, p = config.group, layer.stride, layer.pad
    starts = [(a, b) for a in windows(layer.kernel, s) for b in windows(layer.kernel, s)]
    (ky0, nr), (kx0, nk) = starts[window % len(starts)]
    case = ConvCase(config)
    xe = (layer.x + 1) // 2
    store_rows(case.ibuf, x[:, :g], base=base, wpus=config.wpus, kernel1_row=None)
    walk = row_walk(modulus=config.row_banks, ystep=s, y0=ky0 - p, yin=layer.y, upi=layer.yo, xe=xe, base=base)
    dwbase = drain_base(config, base)
    gap = drain_gap(config, dwbase, nr * nk)
    case.commands.append({
        "pattern": Pattern.K3, "wg": 1, "s2": int(s == 2), "p2": int(s == 2), "clear": 1, "drain": 1, "nr": nr, "nk": nk,
        "steps": 1, "units": layer.images * layer.yo, "cols": layer.xo, "upi": layer.yo, "yin": layer.y,
        "y0": ky0 - p, "xe": xe, "dwbase": dwbase, "dgap": gap, **column_start(kx0 - p, Pattern.K3), **walk,
        **store_errors(case, e, 1, base + 1, first=(window + base) % 3)})
    fields = case.commands[0]
    if (shared := _share(config, layer, rng, upi=layer.yo, yin=layer.y, ystep=s, xe=xe, cols=layer.xo)) is not None:
        shared.copy(case.ibuf, base)
        shared.share_errors(case.ebuf, fields["ebase"], fields["ebank"])
        fields.update(shared.fields)
    if window % 2:
        case.commands.append(fields | {"dacc": 1})
    codes = conv_reference.decode_code(x), conv_reference.decode_code(e)
    gradient = len(case.commands) * conv_reference.weight_gradient(*codes, layer)[:g, :g]
    expect_gradient(case, [gradient[:, :, ky0 + r, kx0 + k] for r in range(nr) for k in range(nk)], dwbase, gap)
    return case
