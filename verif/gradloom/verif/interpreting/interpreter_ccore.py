"""CONV on numpy memories: docs/machine.md sections 3 and 4, read literally.

Where a command reads is told part by part and window by window, once for all its steps; what it reads is taken and multiplied in
arrays, as half the time of a training step would go here.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Pattern
from gradloom.models.arithmetic import pint

__all__ = ["conv"]

_ROFF = {Pattern.K3: (0, 1, 2), Pattern.BP2: (1, 0, 0), Pattern.K1: (0, 0, 0), Pattern.PAIR: (0, 1, 2)}
_TAPS = {
    (Pattern.K3, 0): ("p0", "p1", "c0"),
    (Pattern.K3, 1): ("p1", "c0", "c1"),
    (Pattern.BP2, 0): ("c1", "c0", "c0"),
    (Pattern.BP2, 1): ("c0", "p1", "p1"),
    (Pattern.K1, 0): ("c0",) * 3,
    (Pattern.K1, 1): ("c1",) * 3,
    (Pattern.PAIR, 0): ("c0", "c1", "c1"),
}
_DECODED = pint.decode(np.arange(256, dtype=np.uint8)).astype(np.float64)
"""Value of every byte."""


class _Part(NamedTuple):
    """What a WPU takes of a row group: a unit, or its part of a shared one."""

    unit: int
    wpu: int
    group: int
    y: int
    """Row of the unit within its image, of PE row offset 0."""
    bank: int
    addr: int
    entries: int
    """Of the stored row."""
    walked: int
    """Windows that it walks, of which the first ``windows`` count."""
    windows: int
    shared: bool


class _Rows(NamedTuple):
    """Where the units of a command lie; arrays by part, and PE row."""

    parts: list[_Part]
    wpu: np.ndarray
    group: np.ndarray
    windows: np.ndarray
    bank: np.ndarray
    addr: np.ndarray
    """Bank and address of the stored row."""
    there: np.ndarray
    """Whether it is a row of the image."""
    clash: bool
    """Whether two WPUs ask one bank for different rows."""


class _Walk(NamedTuple):
    """What the windows take of a stored row; arrays by part, window, PE row (one for all) and tap."""

    entries: np.ndarray
    columns: np.ndarray
    there: np.ndarray
    """Whether a tap takes anything; entry and column are 0 if not."""


_PLACED = ("pattern", "units", "shared", "u0", "upi", "p2", "y0", "yin", "ib0", "ia0", "sb", "sa", "cb", "ca", "xe", "cols",
           "s2", "scols", "sbank", "soff")
"""Fields on which it depends where the units lie. Many commands of a program differ in others only."""


@lru_cache(maxsize=64)
def _rows(wpus: int, row_banks: int, placed: tuple[int, ...]) -> _Rows:
    f = dict(zip(_PLACED, placed, strict=True))
    pattern, parts = Pattern(f["pattern"]), _parts(wpus, row_banks, f)
    there = np.array([[0 <= part.y + _ROFF[pattern][r] < f["yin"] for r in range(3)] for part in parts])
    stored = np.array([[_stored(row_banks, pattern, part, r) for r in range(3)] for part in parts])
    wpu, group, windows = (np.array([getattr(part, name) for part in parts]) for name in ("wpu", "group", "windows"))
    asked: dict[tuple[int, int], int] = {}
    clash = any(asked.setdefault((part.group, bank), addr) != addr
                for part, row, used in zip(parts, stored.tolist(), there.tolist(), strict=True)
                for r, (bank, addr) in enumerate(row[: 1 if pattern == Pattern.K1 else 3]) if used[r])
    return _Rows(parts, wpu, group, windows, stored[:, :, 0], stored[:, :, 1], there, clash)


def _rows_of(config: Config, f: dict[str, int]) -> _Rows:
    return _rows(*_placed(config, f))


def _placed(config: Config, f: dict[str, int]) -> tuple[int, int, tuple[int, ...]]:
    """All that it depends on where the units lie."""
    return config.wpus, config.row_banks, tuple(f[name] for name in _PLACED)


@lru_cache(maxsize=64)
def _walk(wpus: int, row_banks: int, placed: tuple[int, ...], preload: int, e0: int, par0: int) -> _Walk:
    f = dict(zip(_PLACED, placed, strict=True))
    parts = _rows(wpus, row_banks, placed).parts
    shape = len(parts), f["cols"], 1, 3
    entries, columns, there = np.zeros(shape, int), np.zeros(shape, int), np.zeros(shape, bool)
    walks = {key: _columns(f, e0, par0, preload=bool(preload) or key[0], walked=key[1])
             for key in {(part.shared, part.walked) for part in parts}}
    for at, part in enumerate(parts):
        entry, column = walks[part.shared, part.walked]
        first = 1 if part.shared and part.wpu == 0 else 0
        taken = (entry >= first) & (entry < part.entries)
        there[at, : part.walked, 0] = taken
        entries[at, : part.walked, 0], columns[at, : part.walked, 0] = np.where(taken, entry, 0), np.where(taken, column, 0)
    return _Walk(entries, columns, there)


def _columns(f: dict[str, int], e0: int, par0: int, *, preload: bool, walked: int) -> tuple[np.ndarray, np.ndarray]:
    """Entry of a stored row, and column of its pair, at every [window, tap]; entry -1 where there is none."""
    pattern, previous, current, parity = Pattern(f["pattern"]), -1, e0, par0
    shift_parity = 1 if pattern == Pattern.BP2 else 0
    if preload:
        previous, current = current, current + 1
    entries, columns = np.empty((walked, 3), int), np.empty((walked, 3), int)
    for window in range(walked):
        if window and (f["s2"] or (parity := parity ^ 1) == shift_parity):
            previous, current = current, current + 1
        for k, name in enumerate(_TAPS[pattern, parity]):
            entries[window, k], columns[window, k] = previous if name[0] == "p" else current, int(name[1])
    return entries, columns


def _parts(wpus: int, row_banks: int, f: dict[str, int]) -> list[_Part]:
    """Every unit with its WPU; of those that are left over, and shared, the parts of all WPUs."""
    n = wpus if f["pattern"] == Pattern.K1 else row_banks
    dealt = f["units"] - f["units"] % wpus if f["shared"] else f["units"]
    bank, addr, found = f["ib0"], f["ia0"], []
    entries = 1 + (f["scols"] if f["s2"] else -(-f["scols"] // 2))
    shared_addr = None
    for unit in range(f["units"]):
        y = (f["u0"] + unit) % f["upi"]
        row = y * (2 if f["p2"] else 1) + f["y0"]
        if unit < dealt:
            found.append(_Part(unit, unit % wpus, unit // wpus, row, bank, addr, f["xe"], f["cols"], f["cols"],
                               shared=False))
        else:
            shared_addr = addr + f["soff"] if shared_addr is None else shared_addr + entries
            for w in range(wpus):
                windows = f["scols"] if w == wpus - 1 else (f["cols"] - f["scols"]) // (wpus - 1)
                found.append(_Part(unit, w, dealt // wpus + unit - dealt, row, f["sbank"] + 3 * w, shared_addr, entries,
                                   f["scols"], windows, shared=True))
        last = y == f["upi"] - 1
        bank, addr = bank + f["cb" if last else "sb"], addr + f["ca" if last else "sa"]
        if bank >= n:
            bank, addr = bank - n, addr + f["xe"]
    return found


def _stored(row_banks: int, pattern: Pattern, part: _Part, r: int) -> tuple[int, int]:
    """Bank and address of the row that a PE row of a part reads."""
    if pattern == Pattern.K1:
        return 3 * part.bank + r, part.addr & 0xFFFF
    wrap, bank = divmod(part.bank + _ROFF[pattern][r], row_banks)
    return bank, (part.addr + wrap * part.entries) & 0xFFFF


def _operands(config: Config, chip: Any, f: dict[str, int], step: int) -> np.ndarray:
    """Taps [part, window, PE row, tap, channel] of one step, as integers in float64; channels are those of the laps."""
    e0, par0 = f["e0"], f["par0"]
    if f["colstep"]:
        column = 2 * e0 + par0 + step
        e0, par0, step = column >> 1, column & 1, 0
    rows = _rows_of(config, f)
    walk = _walk(*_placed(config, f), f["preload"], e0, par0)
    used = rows.there
    if f["pattern"] == Pattern.K1 and not f["wg"]:
        used = used & [step < f[f"rlim{r}"] for r in range(3)]
    start = (rows.addr + step * f["istep"]) & 0xFFFF
    there, addr = walk.there & used[:, None, :, None], walk.entries + start[:, None, :, None]
    beyond = there & (addr >= config.ibuf_depth)
    wrong = beyond.any(axis=(1, 3)) | (used & (rows.bank >= config.row_banks))
    if wrong.any():
        r, at = np.argwhere(wrong.T)[0]
        chip.ibuf[rows.bank[at, r]]  # numpy tells a bank that the machine does not have
        raise ValueError(f"CONV reads address {addr[at, :, r][beyond[at, :, r]][0]} of an input bank of {config.ibuf_depth}")
    if rows.clash:
        raise ValueError("two WPUs ask one bank for different rows")
    place = 2 * (rows.bank[:, None, :, None] * config.ibuf_depth + addr) + walk.columns
    codes = chip.ibuf.reshape(-1, config.group).take(np.where(there, place, 0), axis=0)[..., _channels(config, f)]
    return _DECODED.take(codes) * there[..., None]


def _channels(config: Config, f: dict[str, int]) -> slice:
    """Channels of a group that the laps of a command take."""
    return slice(f["lap"] * config.cols, (f["lap_end"] + 1) * config.cols)


def _check_shared(config: Config, f: dict[str, int]) -> None:
    """Fields of a command that shares rows."""
    if f["pattern"] != Pattern.K3 or config.wpus == 1:
        raise ValueError("CONV: rows are shared by K3 and by several WPUs")
    windows, rest = divmod(f["cols"] - f["scols"], config.wpus - 1)
    if not f["scols"] or windows < 0 or rest or windows % 2 or f["scols"] <= windows:
        raise ValueError(f"CONV: rows of {f['cols']} windows cannot be shared with {f['scols']} in the last part")
    if f["e0"] or f["par0"] != 1:
        raise ValueError("CONV: rows are shared where the padding is 1")
    if f["sbank"] >= config.row_banks:
        raise ValueError(f"CONV: parts from bank {f['sbank']} on, the machine has {config.row_banks}")
    dealt = f["units"] - f["units"] % config.wpus
    for unit in range(dealt, f["units"]) if f["sums"] and not f["sacc"] else ():
        if min(dealt, dealt - unit + (f["u0"] + unit) % f["upi"]) < config.wpus:
            raise ValueError("CONV: a WPU has not had a unit of the image whose row is shared")


def _weights(config: Config, chip: Any, f: dict[str, int], step: int) -> np.ndarray:
    """Weights [PE row, tap, channel, output] of one step; channels are those of the laps."""
    g, k1 = config.group, f["pattern"] == Pattern.K1
    lap = _channels(config, f)
    out = np.zeros((3, 3, lap.stop - lap.start, g))
    rows = [r for r in range(3) if (step < f[f"rlim{r}"] if k1 else r < f["nr"])]
    r, k = np.array(rows, int)[:, None], np.arange(min(3, f["nk"]))
    if k1:
        bank, addr = k, f["wbase"] + r * f["koff"] + step * f["wstep"]
    else:
        wide = np.array([f[f"wob{row}"] for row in rows], int)[:, None] + (2 - k if f["flip"] else k)
        addr = f["wbase"] + step * f["wstep"] + np.array([f[f"woa{row}"] for row in rows], int)[:, None] + wide // 3
        bank = wide % 3
    blocks = chip.wbuf.reshape(*chip.wbuf.shape[:2], -1)[bank, addr, : g * g].reshape(len(rows), k.size, g, g)
    blocks = _DECODED.take(blocks if f["transpose"] else blocks.swapaxes(2, 3))
    out[r, k] = blocks[:, :, lap]
    return out


def conv(config: Config, chip: Any, f: dict[str, int]) -> None:
    """One CONV command."""
    if not (f["units"] and f["steps"] and f["cols"] and f["nr"] and f["nk"]):
        raise ValueError("CONV: units, steps, cols, nr and nk must be above 0")
    if not f["lap"] <= f["lap_end"] < config.laps:
        raise ValueError(f"CONV: laps {f['lap']} to {f['lap_end']}, the machine has {config.laps}")
    if f["shared"]:
        _check_shared(config, f)
    pattern = Pattern(f["pattern"])
    if f["wg"]:
        if pattern in (Pattern.BP2, Pattern.PAIR):
            raise ValueError(f"CONV: weight gradients by {pattern.name}, they are by K3 or K1")
        _accumulate(config, chip, f)
        return
    if pattern == Pattern.PAIR and (not f["s2"] or f["par0"] or f["colstep"]):
        raise ValueError("CONV: PAIR takes a stored pair of columns in every window")
    g = config.group
    total = np.zeros((len(_rows_of(config, f).parts), f["cols"], 4, g))
    for step in range(f["steps"]):
        taps, weights = _operands(config, chip, f, step), _weights(config, chip, f, step)
        if pattern == Pattern.K3:
            total[:, :, 0] += np.tensordot(taps, weights, 3)
        elif pattern == Pattern.BP2:
            s = (taps.transpose(2, 3, 0, 1, 4).reshape(3, 3, -1, taps.shape[-1]) @ weights).reshape(3, 3, *taps.shape[:2], -1)
            total[:, :, 0] += s[1, 1]
            total[:, :, 1] += s[1, 0] + s[1, 2]
            total[:, :, 2] += s[2, 1] + s[0, 1]
            total[:, :, 3] += s[2, 0] + s[2, 2] + s[0, 0] + s[0, 2]
        else:
            for k in range(3):
                total[:, :, k] += np.tensordot(taps[:, :, :, k], weights[:, k], 2)
    _write(config, chip, f, total.astype(np.int64))


def _write(config: Config, chip: Any, f: dict[str, int], total: np.ndarray) -> None:
    pattern, psum, rows = Pattern(f["pattern"]), chip.psum[f["half"]], _rows_of(config, f)
    outputs = {Pattern.K3: 1, Pattern.BP2: 4, Pattern.PAIR: 2, Pattern.K1: 3}[pattern]
    g, j, i = rows.group[:, None, None], np.arange(f["cols"])[:, None], np.arange(outputs)
    if pattern == Pattern.K3:
        bank, addr = 2 * (g & 1) + (j & 1), (g >> 1) * -(-f["cols"] // 2) + (j >> 1)
    elif pattern == Pattern.BP2:
        bank, addr = i, g * f["cols"] + j
    elif pattern == Pattern.PAIR:
        bank, addr = 2 * (g & 1) + i, (g >> 1) * f["cols"] + j
    else:
        n = g * (f["cols"] + (f["cols"] & 1)) + j
        bank, addr = (i + 2 * (j & 1)) % 4, 2 * (n >> 1) + (i == 2)
    counted = np.broadcast_to(j < rows.windows[:, None, None], (len(rows.parts), f["cols"], outputs))
    wpu, bank, addr = (np.broadcast_to(index, counted.shape)[counted] for index in (rows.wpu[:, None, None], bank, addr))
    where = wpu, bank, f["pbase"] + addr  # each place once
    psum[where] = total[:, :, :outputs][counted] + (psum[where] if f["acc"] else 0)
    if not (f["sums"] and pattern in (Pattern.K3, Pattern.K1)):
        return
    if not f["sacc"]:
        chip.norms[f["half"]] = 0
    magnitudes = np.zeros((*counted.shape, config.group), np.int64)
    magnitudes[counted] = abs(psum[where])
    for part, magnitude in zip(rows.parts, magnitudes.sum(axis=1), strict=True):
        if part.windows:
            slot, y = divmod(f["u0"] + part.unit, f["upi"])
            running = chip.running[part.wpu, :outputs]
            if (y < config.wpus or part.unit < config.wpus) and not f["sacc"]:
                running[:] = 0
            running += magnitude
            chip.norms[f["half"], part.wpu, :outputs, slot] = running


def _accumulate(config: Config, chip: Any, f: dict[str, int]) -> None:
    pattern, g = Pattern(f["pattern"]), config.group
    if f["steps"] != 1:
        raise ValueError("a weight-gradient tile has one step")
    if f["lap"] != f["lap_end"]:
        raise ValueError("a weight-gradient tile has one lap")
    lap, taps, rows = _channels(config, f), _operands(config, chip, f, 0), _rows_of(config, f)
    at, window = np.nonzero(np.arange(f["cols"]) < rows.windows[:, None])
    bank, addr = 3 * rows.wpu[at], f["ebase"] + rows.group[at] * f["ee"] + (window >> 1)
    sums = np.zeros((3, 3, g, g), np.int64)
    for k in range(3):
        errors = _DECODED.take(chip.ebuf[bank + (k if pattern == Pattern.K1 else f["ebank"]), addr, window & 1])
        sums[:, k, :, lap] = np.tensordot(errors, taps[:, :, :, k][at, window], (0, 0)).swapaxes(0, 1)
    if f["clear"]:
        chip.accumulators = np.zeros_like(sums)
    chip.accumulators = chip.accumulators + sums
    if not f["drain"]:
        return
    place = f["dwbase"]
    for r in range(f["nr"]):
        if pattern == Pattern.K1 and not f[f"rlim{r}"]:
            continue
        for k in range(f["nk"]):
            block = np.zeros((2 * config.block_beats, g), np.int64)
            block[:g] = chip.accumulators[r, k]
            beats = slice(place, place + config.block_beats)
            chip.dw[beats, :, lap] = block.reshape(-1, 2, g)[:, :, lap] + (chip.dw[beats, :, lap] if f["dacc"] else 0)
            place += (f["dgap"] + 1) * config.block_beats
