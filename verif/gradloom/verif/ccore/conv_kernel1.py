"""CONV commands of kernel 1 and of fully connected layers for testbenches, all phases.

Kernel 1
    PE row r takes input groups r KT .. (r + 1) KT - 1, KT = ceil(groups / 3), one per step; output groups 0..2 are taps. Stride 2
    stores only the rows that are read. BP of stride 2 is computed at the size of the errors; the A-Core spreads it.
Fully connected (``fc``)
    Features are one row of C / G columns of G channels; KT is rounded up to even and a step is a column (``colstep``).
"""

import numpy as np

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Pattern
from gradloom.verif.ccore import conv_reference
from gradloom.verif.ccore.conv_fields import column_start, place_psum, row_walk
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

__all__ = ["kernel1"]


def kernel1(config: Config, layer: Layer, phase: str, x, w, e, place: dict, base: int, window: int) -> ConvCase:
    """All phases of kernel 1 and of fully connected layers."""
    g, s = config.group, layer.stride
    values = {"x": conv_reference.decode_code(x), "w": conv_reference.decode_code(w), "e": conv_reference.decode_code(e)}
    source = x[:, :, ::s] if phase != "bp" else e
    if layer.fc and phase != "bp":
        # Channel groups become columns of one row.
        source = x.reshape(layer.images, -1, g).transpose(0, 2, 1)[:, :, None, :]
        groups = source.shape[3]
        per_row = -(-groups // 3) + (-(-groups // 3) & 1)
    else:
        groups = source.shape[1] // g
        per_row = -(-groups // 3)
    yin, xin = source.shape[2:]
    outputs = min(3, (w.shape[0] if phase != "bp" else w.shape[1]) // g)
    upi = source.shape[2]
    cols = 1 if layer.fc else layer.xo
    column = 0
    case = ConvCase(config)
    if layer.fc and phase != "bp":
        xe = per_row // 2
        for r in range(3):
            part = source[:, :, :, r * per_row:(r + 1) * per_row]
            part = np.pad(part, ((0, 0), (0, 0), (0, 0), (0, per_row - part.shape[3])))
            store_rows(case.ibuf, part, base=base, wpus=config.wpus, kernel1_row=r)
        istep = 0
        column = window % per_row if phase == "wg" else 0
    else:
        xe = (xin + 1) // 2
        istep = -(-layer.images * yin // config.wpus) * xe
        for group in range(groups if phase != "wg" else min(3, groups)):
            r, step = divmod(group, per_row if phase != "wg" else 1)
            store_rows(case.ibuf, source[:, group * g:(group + 1) * g], base=base + step * istep, wpus=config.wpus,
                        kernel1_row=r)
    if phase == "wg":
        # One input group per PE row: fc takes column `column` of each row's part.
        taken = [r * per_row + column if layer.fc else r for r in range(3)]
        taken = [group if group < groups else None for group in taken]
        limits = [int(group is not None) for group in taken]
        steps = 1
    else:
        limits = [min(max(groups - r * per_row, 0), per_row) for r in range(3)]
        steps = limits[0]
    fields = {
        "pattern": Pattern.K1, "wg": int(phase == "wg"), "s2": int(s == 2 and phase != "bp"), "transpose": int(phase == "bp"),
        "colstep": int(layer.fc and phase == "fp"), "nr": 3, "nk": outputs, "steps": steps, "units": layer.images * upi,
        "cols": cols, "upi": upi, "yin": yin, "y0": 0, "xe": xe, "istep": istep, "wstep": 1, "koff": per_row,
        **{f"rlim{r}": limits[r] for r in range(3)}, **column_start(column, Pattern.K1),
        **row_walk(modulus=config.wpus, ystep=1, y0=0, yin=yin, upi=upi, xe=xe, base=base), **place}
    case.commands.append(fields)
    if phase == "wg":
        dwbase = drain_base(config, base)
        gap = drain_gap(config, dwbase, sum(limits) * outputs)
        fields.update(clear=1, drain=1, dwbase=dwbase, dgap=gap, **store_errors(case, e, outputs, base + 1))
        gradient = conv_reference.weight_gradient(values["x"], values["e"], layer)[:, :, 0, 0]
        expect_gradient(case, [gradient[k * g:(k + 1) * g, group * g:(group + 1) * g]
                                for group in taken if group is not None for k in range(outputs)], dwbase, gap)
        return case
    for k in range(outputs):
        for group in range(groups):
            rows, columns = (k, group) if phase == "fp" else (group, k)
            case.wbuf[k, place["wbase"] + group] = w[rows * g:(rows + 1) * g, columns * g:(columns + 1) * g, 0, 0]
    if phase == "fp":
        sums = conv_reference.forward(values["x"], values["w"], layer)
    else:
        sums = np.einsum("nmyx,mc->ncyx", values["e"], values["w"][:, :, 0, 0])
    expect_sums(case, sums[:, :outputs * g])
    for image in range(layer.images):
        for row in range(sums.shape[2]):
            for j in range(sums.shape[3]):
                for k in range(outputs):
                    case.psum[place_psum(config, fields, image * upi + row, j, k)] = \
                        sums[image, k * g:(k + 1) * g, row, j]
    return case
