"""From a layer and a training phase to CONV commands, buffer contents and the sums that they must give.

An independent reading of ``docs/machine.md`` sections 3 to 5 for testbenches: the sums come from a brute-force convolution
over images, never from the commands. One case is one array tile: one group of output channels (three for kernel 1) and all
groups of input channels.

Windows
    Kernels are cut into windows of at most 3 x 3 taps (:func:`windows`), rows and columns alike, one CONV command each, with
    ``acc`` from the second on. Stride 1: starts 0, 3, 6, ... Stride 2: starts 0, 2, 4, ..., 2 taps each, the last one the rest.
FP, ``pair``
    One column kx of a kernel of 3 n + 1 columns, kx - p even, is left to PAIR; windows of three columns lie beside it. For each
    window of rows one command of PAIR, all of them before those of K3. The column's blocks are stored twice, side by side.
FP, WG
    Window (ky0, kx0) of unit oy, position ox reads row oy s + ky0 - p + r and column ox s + kx0 - p + k: ``y0 = ky0 - p``, first
    column x0 = kx0 - p (:func:`column_start`).
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
Kernel 1
    PE row r takes input groups r KT .. (r + 1) KT - 1, KT = ceil(groups / 3), one per step; output groups 0..2 are taps. Stride 2
    stores only the rows that are read. BP of stride 2 is computed at the size of the errors; the A-Core spreads it.
Fully connected (``fc``)
    Features are one row of C / G columns of G channels; KT is rounded up to even and a step is a column (``colstep``).
"""

import dataclasses

import numpy as np

from gradloom.rtl.config import Config
from gradloom.rtl.isa import COMMANDS, Opcode, Pattern
from gradloom.verif import conv_reference, shared_rows

__all__ = ["ConvCase", "Layer", "bank_conflict", "column_start", "encode_conv", "make_case", "place_psum", "windows"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """A convolution of ``images`` x ``c`` x ``y`` x ``x`` with ``m`` kernels of ``kernel`` x ``kernel``.

    ``fc``: fully connected; ``pair``: the left-over column of a kernel of 4, 7, ... columns by PAIR (FP of stride 1); ``shared``:
    rows that are left over are shared where they can be (K3, kernel 3, pad 1).
    """

    images: int
    c: int
    y: int
    x: int
    m: int
    kernel: int = 3
    stride: int = 1
    pad: int = 0
    fc: bool = False
    pair: bool = False
    shared: bool = False

    @property
    def yo(self) -> int:
        return (self.y + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def xo(self) -> int:
        return (self.x + 2 * self.pad - self.kernel) // self.stride + 1


@dataclasses.dataclass
class ConvCase:
    """Commands of one tile with what they read and what they give.

    Attributes
    ----------
    commands : list of dict
        Fields of the CONV commands, in order.
    ibuf, ebuf : dict
        (bank, address) -> codes [2 lanes][G].
    wbuf : dict
        (bank, address) -> codes [G out][G in].
    psum : dict
        (wpu, bank, address) -> sums [G], after the last command.
    dw : dict
        Beat -> sums [2 lanes][G], after the last command.
    sums : dict
        (output group, image) -> sum of |X| over the plane [G]; empty if the last command does not gather them.
    """

    config: Config
    commands: list[dict[str, int]] = dataclasses.field(default_factory=list)
    ibuf: dict[tuple[int, int], np.ndarray] = dataclasses.field(default_factory=dict)
    ebuf: dict[tuple[int, int], np.ndarray] = dataclasses.field(default_factory=dict)
    wbuf: dict[tuple[int, int], np.ndarray] = dataclasses.field(default_factory=dict)
    psum: dict[tuple[int, int, int], np.ndarray] = dataclasses.field(default_factory=dict)
    dw: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)
    sums: dict[tuple[int, int], np.ndarray] = dataclasses.field(default_factory=dict)


def encode_conv(fields: dict[str, int]) -> int:
    """A CONV command as one integer, word 0 lowest."""
    command = COMMANDS[Opcode.CONV]
    known = {field.name: field for field in command.fields}
    value = Opcode.CONV | command.words << 8
    for name, content in fields.items():
        field = known[name]
        low, high = (-(1 << field.width - 1), 1 << field.width - 1) if field.signed else (0, 1 << field.width)
        if not low <= content < high:
            raise ValueError(f"CONV field {name} cannot hold {content}")
        value |= (content & (1 << field.width) - 1) << 32 * field.word + field.lsb
    return value


def windows(kernel: int, stride: int) -> list[tuple[int, int]]:
    """(start, taps) of the windows of a kernel row or column."""
    result, start, step = [], 0, 3 if stride == 1 else 2
    while kernel - start > 3:
        result.append((start, step))
        start += step
    return [*result, (start, kernel - start)]


def pair_windows(layer: Layer) -> tuple[int, list[tuple[int, int]]]:
    """The column of the kernel that PAIR takes, and (start, taps) of the windows beside it."""
    if layer.kernel % 3 != 1 or layer.stride != 1:
        raise ValueError(f"no column is left over by a kernel of {layer.kernel} columns and stride {layer.stride}")
    # Its first window begins at an even column.
    left = 3 * (layer.pad & 1)
    return left, [(start + (start >= left), 3) for start in range(0, layer.kernel - 1, 3)]


def column_start(x0: int, pattern: Pattern) -> dict[str, int]:
    """Fields of a row whose first window is at column ``x0`` (BP2: position t0)."""
    if pattern == Pattern.K1:
        return {"e0": x0 >> 1, "par0": x0 & 1, "preload": 0}
    if pattern == Pattern.PAIR:
        return {"e0": x0 >> 1, "par0": 0, "preload": 0}
    if pattern == Pattern.BP2 and not x0 & 1:
        return {"e0": x0 >> 1, "par0": 0, "preload": 0}
    # The first window needs entries x0 >> 1 and the next; the first of them may be padding, which `clear` gives.
    preload = int(x0 >= 0)
    return {"e0": (x0 >> 1) + 1 - preload, "par0": x0 & 1, "preload": preload}


def place_psum(config: Config, fields: dict[str, int], unit: int, j: int, output: int = 0) -> tuple[int, int, int]:
    """(wpu, bank, address) of an output of window ``j`` of a unit."""
    g, w, j = shared_rows.place(config, fields, unit, j)
    if fields["pattern"] == Pattern.K3:
        return w, 2 * (g & 1) + (j & 1), fields["pbase"] + (g >> 1) * -(-fields["cols"] // 2) + (j >> 1)
    if fields["pattern"] == Pattern.BP2:
        return w, output, fields["pbase"] + g * fields["cols"] + j
    if fields["pattern"] == Pattern.PAIR:
        return w, 2 * (g & 1) + output, fields["pbase"] + (g >> 1) * fields["cols"] + j
    n = g * (fields["cols"] + 1 & ~1) + j
    return w, (output + 2 * (j & 1)) % 4, fields["pbase"] + 2 * (n >> 1) + (output == 2)


def bank_conflict(config: Config, fields: dict[str, int]) -> bool:
    """Whether a row group asks one bank for two addresses: a placement that the scheduler must not choose."""
    k1 = fields["pattern"] == Pattern.K1
    modulus = config.wpus if k1 else config.row_banks
    offsets = (0, 0, 0) if k1 else (1, 0, 0) if fields["pattern"] == Pattern.BP2 else (0, 1, 2)
    y, row, b, a = 0, fields["y0"], fields["ib0"], fields["ia0"]
    requests: dict[int, int] = {}
    for unit in range(shared_rows.dealt(config, fields)):
        if unit % config.wpus == 0:
            requests = {}
        for r in range(3):
            if 0 <= row + offsets[r] < fields["yin"]:
                wrap, bank = divmod(b + offsets[r], modulus)
                address = (a + wrap * fields["xe"]) % 65536
                if requests.setdefault(3 * bank + r if k1 else bank, address) != address:
                    return True
        y, row = y + 1, row + 1 + fields.get("p2", 0)
        bank_step, address_step = fields["sb"], fields["sa"]
        if y == fields["upi"]:
            y, row, bank_step, address_step = 0, fields["y0"], fields["cb"], fields["ca"]
        wrap, b = divmod(b + bank_step, modulus)
        a = (a + address_step + wrap * fields["xe"]) % 65536
    return False


def _row_walk(*, modulus: int, ystep: int, y0: int, yin: int, upi: int, xe: int, base: int) -> dict[str, int]:
    """Bank counter and row address of unit 0 and their advances, rows of all images stacked."""
    sb, cb = ystep, yin - (upi - 1) * ystep
    return {"ib0": y0 % modulus, "ia0": (base + y0 // modulus * xe) % 65536,
            "sb": sb % modulus, "sa": sb // modulus * xe, "cb": cb % modulus, "ca": cb // modulus * xe % 65536}


def _pack(rows: np.ndarray) -> np.ndarray:
    """[G][X] codes to beats [X'/2][2][G]."""
    g, x = rows.shape
    padded = np.zeros((g, x + (x & 1)), np.uint8)
    padded[:, :x] = rows
    return padded.T.reshape(-1, 2, g)


def _groups(values: np.ndarray, g: int, axis: int) -> np.ndarray:
    """Pad ``axis`` with code 0 to a multiple of ``g``."""
    pad = [(0, 0)] * values.ndim
    pad[axis] = (0, -values.shape[axis] % g)
    return np.pad(values, pad)


def _store_rows(target: dict, image_rows: np.ndarray, *, base: int, wpus: int, kernel1_row: int | None) -> None:
    """Stacked rows [image][G][Y][X]: row g in bank g mod 3 wpus, or, for PE row r of kernel 1, in bank r + 3 (g mod wpus)."""
    count = 0
    for image in image_rows:
        for y in range(image.shape[1]):
            beats = _pack(image[:, y])
            modulus = 3 * wpus if kernel1_row is None else wpus
            bank = count % modulus if kernel1_row is None else kernel1_row + 3 * (count % wpus)
            for i, beat in enumerate(beats):
                target[bank, base + count // modulus * len(beats) + i] = beat
            count += 1


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
        case = _kernel1(config, layer, phase, x, w, e, place, base, window)
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


def _expect_sums(case: ConvCase, sums: np.ndarray) -> None:
    """``sums`` [N][channels of all output groups][Y][X]."""
    g = case.config.group
    for image, channels in enumerate(np.abs(sums).sum((2, 3))):
        for k in range(len(channels) // g):
            case.sums[k, image] = channels[k * g:(k + 1) * g]


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
        _store_rows(case.ibuf, source[:, step * g:(step + 1) * g], base=base + step * istep, wpus=config.wpus,
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
        walk = _row_walk(modulus=config.row_banks, ystep=ystep, y0=y0, yin=yin, upi=upi, xe=xe, base=base)
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
        _expect_sums(case, sums)
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


def _store_errors(case: ConvCase, e: np.ndarray, groups: int, ebase: int, *, first: int = 0) -> dict[str, int]:
    """Errors of ``groups`` output groups, in the banks from ``first`` on of every WPU."""
    g = case.config.group
    for k in range(groups):
        _store_rows(case.ebuf, e[:, k * g:(k + 1) * g], base=ebase, wpus=case.config.wpus, kernel1_row=first + k)
    return {"ebase": ebase, "ee": (e.shape[3] + 1) // 2, "ebank": first}


def _dwbase(config: Config, base: int) -> int:
    """First beat of a drain: an even one with two laps."""
    return base + base % config.laps


def _gap(config: Config, base: int, blocks: int) -> int:
    """Blocks between those of a tile in the weight-gradient buffer; 0 where they would not fit."""
    gap = base % 3
    return gap if base + (blocks * (gap + 1) - gap) * config.block_beats <= config.dw_depth else 0


def _expect_gradient(case: ConvCase, blocks: list[np.ndarray], dwbase: int, gap: int) -> None:
    """Blocks [G out][G in] in the order of the drain, ``gap`` blocks between them."""
    g = case.config.group
    beat = dwbase
    for block in blocks:
        for b in range(case.config.block_beats):
            lanes = np.zeros((2, g), np.int64)
            lanes[:min(2, g)] = block[2 * b:2 * b + 2]
            case.dw[beat] = lanes
            beat += 1
        beat += gap * case.config.block_beats


def _window_gradient(config: Config, layer: Layer, x, e, base: int, window: int, rng: np.random.Generator) -> ConvCase:
    """WG of one window of a kernel of 2 and more; odd windows are computed twice and added."""
    g, s, p = config.group, layer.stride, layer.pad
    starts = [(a, b) for a in windows(layer.kernel, s) for b in windows(layer.kernel, s)]
    (ky0, nr), (kx0, nk) = starts[window % len(starts)]
    case = ConvCase(config)
    xe = (layer.x + 1) // 2
    _store_rows(case.ibuf, x[:, :g], base=base, wpus=config.wpus, kernel1_row=None)
    walk = _row_walk(modulus=config.row_banks, ystep=s, y0=ky0 - p, yin=layer.y, upi=layer.yo, xe=xe, base=base)
    dwbase = _dwbase(config, base)
    gap = _gap(config, dwbase, nr * nk)
    case.commands.append({
        "pattern": Pattern.K3, "wg": 1, "s2": int(s == 2), "p2": int(s == 2), "clear": 1, "drain": 1, "nr": nr, "nk": nk,
        "steps": 1, "units": layer.images * layer.yo, "cols": layer.xo, "upi": layer.yo, "yin": layer.y,
        "y0": ky0 - p, "xe": xe, "dwbase": dwbase, "dgap": gap, **column_start(kx0 - p, Pattern.K3), **walk,
        **_store_errors(case, e, 1, base + 1, first=(window + base) % 3)})
    fields = case.commands[0]
    if (shared := _share(config, layer, rng, upi=layer.yo, yin=layer.y, ystep=s, xe=xe, cols=layer.xo)) is not None:
        shared.copy(case.ibuf, base)
        shared.share_errors(case.ebuf, fields["ebase"], fields["ebank"])
        fields.update(shared.fields)
    if window % 2:
        case.commands.append(fields | {"dacc": 1})
    codes = conv_reference.decode_code(x), conv_reference.decode_code(e)
    gradient = len(case.commands) * conv_reference.weight_gradient(*codes, layer)[:g, :g]
    _expect_gradient(case, [gradient[:, :, ky0 + r, kx0 + k] for r in range(nr) for k in range(nk)], dwbase, gap)
    return case


def _kernel1(config: Config, layer: Layer, phase: str, x, w, e, place: dict, base: int, window: int) -> ConvCase:
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
            _store_rows(case.ibuf, part, base=base, wpus=config.wpus, kernel1_row=r)
        istep = 0
        column = window % per_row if phase == "wg" else 0
    else:
        xe = (xin + 1) // 2
        istep = -(-layer.images * yin // config.wpus) * xe
        for group in range(groups if phase != "wg" else min(3, groups)):
            r, step = divmod(group, per_row if phase != "wg" else 1)
            _store_rows(case.ibuf, source[:, group * g:(group + 1) * g], base=base + step * istep, wpus=config.wpus,
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
        **_row_walk(modulus=config.wpus, ystep=1, y0=0, yin=yin, upi=upi, xe=xe, base=base), **place}
    case.commands.append(fields)
    if phase == "wg":
        dwbase = _dwbase(config, base)
        gap = _gap(config, dwbase, sum(limits) * outputs)
        fields.update(clear=1, drain=1, dwbase=dwbase, dgap=gap, **_store_errors(case, e, outputs, base + 1))
        gradient = conv_reference.weight_gradient(values["x"], values["e"], layer)[:, :, 0, 0]
        _expect_gradient(case, [gradient[k * g:(k + 1) * g, group * g:(group + 1) * g]
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
    _expect_sums(case, sums[:, :outputs * g])
    for image in range(layer.images):
        for row in range(sums.shape[2]):
            for j in range(sums.shape[3]):
                for k in range(outputs):
                    case.psum[place_psum(config, fields, image * upi + row, j, k)] = \
                        sums[image, k * g:(k + 1) * g, row, j]
    return case
