"""CONV on numpy memories: docs/machine.md sections 3 and 4, read literally."""

from typing import Any, NamedTuple

import numpy as np

from gradloom.models.arithmetic import pint
from gradloom.rtl.config import Config
from gradloom.rtl.isa import Pattern

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


def _columns(f: dict[str, int], e0: int, par0: int, *, shared: bool, walked: int) -> tuple[np.ndarray, np.ndarray]:
    """Entry of a stored row, and column of its pair, at every [window, tap]; entry -1 where there is none."""
    pattern, previous, current, parity = Pattern(f["pattern"]), -1, e0, par0
    shift_parity = 1 if pattern == Pattern.BP2 else 0
    if f["preload"] or shared:
        previous, current = current, current + 1
    entries, columns = np.empty((walked, 3), int), np.empty((walked, 3), int)
    for window in range(walked):
        if window and (f["s2"] or (parity := parity ^ 1) == shift_parity):
            previous, current = current, current + 1
        for k, name in enumerate(_TAPS[pattern, parity]):
            entries[window, k], columns[window, k] = previous if name[0] == "p" else current, int(name[1])
    return entries, columns


def _parts(config: Config, f: dict[str, int]) -> list[_Part]:
    """Every unit with its WPU; of those that are left over, and shared, the parts of all WPUs."""
    wpus, n = config.wpus, config.wpus if f["pattern"] == Pattern.K1 else config.row_banks
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


def _stored(config: Config, f: dict[str, int], part: _Part, r: int) -> tuple[int, int]:
    """Bank and address of the row that a PE row of a part reads."""
    pattern = Pattern(f["pattern"])
    if pattern == Pattern.K1:
        return 3 * part.bank + r, part.addr & 0xFFFF
    wrap, bank = divmod(part.bank + _ROFF[pattern][r], config.row_banks)
    return bank, (part.addr + wrap * part.entries) & 0xFFFF


def _operands(config: Config, chip: Any, f: dict[str, int], step: int) -> np.ndarray:
    """Taps [part, window, PE row, tap, channel] of one step, as integers in float64."""
    pattern = Pattern(f["pattern"])
    e0, par0 = f["e0"], f["par0"]
    if f["colstep"]:
        column = 2 * e0 + par0 + step
        e0, par0, step = column >> 1, column & 1, 0
    parts, lap = _parts(config, f), _channels(config, f)
    walks = {key: _columns(f, e0, par0, shared=key[0], walked=key[1]) for key in {(part.shared, part.walked) for part in parts}}
    out = np.zeros((len(parts), f["cols"], 3, 3, config.group))
    for r in range(3):
        if pattern == Pattern.K1 and step >= f[f"rlim{r}"] and not f["wg"]:
            continue
        for at, part in enumerate(parts):
            if not 0 <= part.y + _ROFF[pattern][r] < f["yin"]:
                continue
            bank, addr = _stored(config, f, part, r)
            start = (addr + step * f["istep"]) & 0xFFFF
            row = _DECODED[chip.ibuf[bank, start : start + part.entries, :, lap]]
            entries, columns = walks[part.shared, part.walked]
            first = 1 if part.shared and part.wpu == 0 else 0
            there = (entries >= first) & (entries < part.entries)
            if (beyond := entries[there & (entries >= len(row))]).size:
                raise ValueError(f"CONV reads address {start + beyond[0]} of an input bank of {config.ibuf_depth}")
            windows, taps = np.nonzero(there)
            out[at, windows, r, taps, lap] = row[entries[there], columns[there]]
    _check_banks(config, f, parts)
    return out


def _channels(config: Config, f: dict[str, int]) -> slice:
    """Channels of a group that the laps of a command take."""
    return slice(f["lap"] * config.cols, (f["lap_end"] + 1) * config.cols)


def _check_banks(config: Config, f: dict[str, int], parts: list[_Part]) -> None:
    """Rows that the WPUs read together lie in different banks or are the same."""
    pattern = Pattern(f["pattern"])
    asked: dict[tuple[int, int], int] = {}
    for part in parts:
        for r in range(1 if pattern == Pattern.K1 else 3):
            if 0 <= part.y + _ROFF[pattern][r] < f["yin"]:
                bank, addr = _stored(config, f, part, r)
                if asked.setdefault((part.group, bank), addr) != addr:
                    raise ValueError("two WPUs ask one bank for different rows")


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
    """Weights [PE row, tap, m, c] of one step."""
    g, k1 = config.group, f["pattern"] == Pattern.K1
    out = np.zeros((3, 3, g, g))
    for r in range(3):
        for k in range(3):
            if k >= f["nk"] or (not k1 and r >= f["nr"]) or (k1 and step >= f[f"rlim{r}"]):
                continue
            if k1:
                bank, addr = k, f["wbase"] + r * f["koff"] + step * f["wstep"]
            else:
                bank = f[f"wob{r}"] + (2 - k if f["flip"] else k)
                addr = f["wbase"] + step * f["wstep"] + f[f"woa{r}"] + bank // 3
                bank %= 3
            block = pint.decode(chip.wbuf[bank, addr].reshape(-1)[: g * g]).reshape(g, g)
            out[r, k] = block.T if f["transpose"] else block
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
    total = np.zeros((len(_parts(config, f)), f["cols"], 4, config.group))
    for step in range(f["steps"]):
        taps, weights = _operands(config, chip, f, step), _weights(config, chip, f, step)
        if pattern == Pattern.K3:
            total[:, :, 0] += np.einsum("ujrkc,rkmc->ujm", taps, weights)
        elif pattern == Pattern.BP2:
            s = np.einsum("ujrkc,rkmc->ujrkm", taps, weights)
            total[:, :, 0] += s[:, :, 1, 1]
            total[:, :, 1] += s[:, :, 1, 0] + s[:, :, 1, 2]
            total[:, :, 2] += s[:, :, 2, 1] + s[:, :, 0, 1]
            total[:, :, 3] += s[:, :, 2, 0] + s[:, :, 2, 2] + s[:, :, 0, 0] + s[:, :, 0, 2]
        else:
            total[:, :, :3] += np.einsum("ujrkc,rkmc->ujkm", taps, weights)
    _write(config, chip, f, total.astype(np.int64))


def _write(config: Config, chip: Any, f: dict[str, int], total: np.ndarray) -> None:
    pattern, psum = Pattern(f["pattern"]), chip.psum[f["half"]]
    sums = f["sums"] and pattern in (Pattern.K3, Pattern.K1)
    if sums and not f["sacc"]:
        chip.norms[f["half"]] = 0
    for at, part in enumerate(_parts(config, f)):
        wpu, g = part.wpu, part.group
        for j in range(part.windows):
            if pattern == Pattern.K3:
                places = [(2 * (g & 1) + (j & 1), (g >> 1) * -(-f["cols"] // 2) + (j >> 1))]
            elif pattern == Pattern.BP2:
                places = [(i, g * f["cols"] + j) for i in range(4)]
            elif pattern == Pattern.PAIR:
                places = [(2 * (g & 1) + i, (g >> 1) * f["cols"] + j) for i in range(2)]
            else:
                n = g * (f["cols"] + (f["cols"] & 1)) + j
                places = [((k + 2 * (j & 1)) % 4, 2 * (n >> 1) + (k == 2)) for k in range(3)]
            for i, (bank, addr) in enumerate(places):
                where = wpu, bank, f["pbase"] + addr
                psum[where] = total[at, j, i] + (psum[where] if f["acc"] else 0)
                if sums:
                    slot, y = divmod(f["u0"] + part.unit, f["upi"])
                    if j == 0 and (y < config.wpus or part.unit < config.wpus) and not f["sacc"]:
                        chip.running[wpu, i] = 0
                    chip.running[wpu, i] += abs(psum[where])
                    chip.norms[f["half"], wpu, i, slot] = chip.running[wpu, i]


def _accumulate(config: Config, chip: Any, f: dict[str, int]) -> None:
    pattern, g = Pattern(f["pattern"]), config.group
    if f["steps"] != 1:
        raise ValueError("a weight-gradient tile has one step")
    if f["lap"] != f["lap_end"]:
        raise ValueError("a weight-gradient tile has one lap")
    taps = _operands(config, chip, f, 0)
    parts = _parts(config, f)
    errors = np.zeros((len(parts), f["cols"], 3, g))
    for at, part in enumerate(parts):
        windows, start = np.arange(part.windows), f["ebase"] + part.group * f["ee"]
        for k in range(3):
            bank = (k if pattern == Pattern.K1 else f["ebank"]) + 3 * part.wpu
            errors[at, windows, k] = _DECODED[chip.ebuf[bank, start + (windows >> 1), windows & 1]]
    sums = np.einsum("ujrkc,ujkm->rkmc", taps, errors).astype(np.int64)
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
            lap = _channels(config, f)
            chip.dw[beats, :, lap] = block.reshape(-1, 2, g)[:, :, lap] + (chip.dw[beats, :, lap] if f["dacc"] else 0)
            place += (f["dgap"] + 1) * config.block_beats
