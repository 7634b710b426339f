"""CONV on numpy memories: docs/machine.md sections 3 and 4, read literally."""

from typing import Any

import numpy as np

from gradloom.models import pint
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


def _columns(f: dict[str, int], e0: int, par0: int) -> list[tuple[int | None, int, int]]:
    """(previous entry or None, current entry, parity) at every window of a row."""
    shift_parity = 1 if f["pattern"] == Pattern.BP2 else 0
    previous: int | None = None
    current, parity, found = e0, par0, []
    if f["preload"]:
        previous, current = current, current + 1
    for window in range(f["cols"]):
        if window and (f["s2"] or (parity := parity ^ 1) == shift_parity):
            previous, current = current, current + 1
        found.append((previous, current, parity))
    return found


def _rows(config: Config, f: dict[str, int]) -> list[tuple[int, int, int]]:
    """(row within its image, bank counter, row address) of PE row offset 0 of every unit."""
    n = config.wpus if f["pattern"] == Pattern.K1 else config.row_banks
    bank, addr, found = f["ib0"], f["ia0"], []
    for unit in range(f["units"]):
        y = (f["u0"] + unit) % f["upi"]
        found.append((y * (2 if f["p2"] else 1) + f["y0"], bank, addr))
        last = y == f["upi"] - 1
        bank, addr = bank + f["cb" if last else "sb"], addr + f["ca" if last else "sa"]
        if bank >= n:
            bank, addr = bank - n, addr + f["xe"]
    return found


def _operands(config: Config, chip: Any, f: dict[str, int], step: int) -> np.ndarray:
    """Taps [unit, window, PE row, tap, channel] of one step, as integers in float64."""
    pattern = Pattern(f["pattern"])
    decoded = pint.decode(np.arange(256, dtype=np.uint8)).astype(np.float64)
    e0, par0 = f["e0"], f["par0"]
    if f["colstep"]:
        column = 2 * e0 + par0 + step
        e0, par0, step = column >> 1, column & 1, 0
    columns = _columns(f, e0, par0)
    rows = _rows(config, f)
    out = np.zeros((f["units"], f["cols"], 3, 3, config.group))
    for r in range(3):
        if pattern == Pattern.K1 and step >= f[f"rlim{r}"] and not f["wg"]:
            continue
        for unit, (y, bank, addr) in enumerate(rows):
            if not 0 <= y + _ROFF[pattern][r] < f["yin"]:
                continue
            if pattern == Pattern.K1:
                bank = 3 * bank + r
            else:
                bank += _ROFF[pattern][r]
                if bank >= config.row_banks:
                    bank, addr = bank - config.row_banks, addr + f["xe"]
            start = (addr + step * f["istep"]) & 0xFFFF
            row = decoded[chip.ibuf[bank, start : start + f["xe"]]]
            for window, (previous, current, parity) in enumerate(columns):
                for k, name in enumerate(_TAPS[pattern, parity]):
                    entry = previous if name[0] == "p" else current
                    if entry is not None and 0 <= entry < f["xe"]:
                        if entry >= len(row):
                            raise ValueError(f"CONV reads address {start + entry} of an input bank of {config.ibuf_depth}")
                        out[unit, window, r, k, _channels(config, f)] = row[entry, int(name[1]), _channels(config, f)]
    _check_banks(config, f, rows)
    return out


def _channels(config: Config, f: dict[str, int]) -> slice:
    """Channels of a group that the laps of a command take."""
    return slice(f["lap"] * config.cols, (f["lap_end"] + 1) * config.cols)


def _check_banks(config: Config, f: dict[str, int], rows: list[tuple[int, int, int]]) -> None:
    """Rows that the WPUs read together lie in different banks or are the same."""
    pattern = Pattern(f["pattern"])
    for group in range(0, len(rows), config.wpus):
        asked: dict[int, int] = {}
        for y, bank, addr in rows[group : group + config.wpus]:
            for r in range(1 if pattern == Pattern.K1 else 3):
                if 0 <= y + _ROFF[pattern][r] < f["yin"]:
                    place = addr * config.row_banks + bank + _ROFF[pattern][r]
                    if pattern != Pattern.K1 and bank + _ROFF[pattern][r] >= config.row_banks:
                        place += (f["xe"] - 1) * config.row_banks
                    if (
                        asked.setdefault(place % config.row_banks if pattern != Pattern.K1 else bank, place)
                        != place
                    ):
                        raise ValueError("two WPUs ask one bank for different rows")


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
    pattern = Pattern(f["pattern"])
    if f["wg"]:
        if pattern in (Pattern.BP2, Pattern.PAIR):
            raise ValueError(f"CONV: weight gradients by {pattern.name}, they are by K3 or K1")
        _accumulate(config, chip, f)
        return
    if pattern == Pattern.PAIR and (not f["s2"] or f["par0"] or f["colstep"]):
        raise ValueError("CONV: PAIR takes a stored pair of columns in every window")
    total = np.zeros((f["units"], f["cols"], 4, config.group))
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
    for unit in range(f["units"]):
        wpu, g = unit % config.wpus, unit // config.wpus
        for j in range(f["cols"]):
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
                psum[where] = total[unit, j, i] + (psum[where] if f["acc"] else 0)
                if sums:
                    slot, y = divmod(f["u0"] + unit, f["upi"])
                    if j == 0 and (y < config.wpus or unit < config.wpus) and not f["sacc"]:
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
    errors = np.zeros((f["units"], f["cols"], 3, g))
    for unit in range(f["units"]):
        wpu, group = unit % config.wpus, unit // config.wpus
        for j in range(f["cols"]):
            for k in range(3):
                bank = (k if pattern == Pattern.K1 else f["ebank"]) + 3 * wpu
                errors[unit, j, k] = pint.decode(
                    chip.ebuf[bank, f["ebase"] + group * f["ee"] + (j >> 1), j & 1]
                )
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
