"""One RUN command on numpy memories: the streams, bitmaps, partial sums and parameters that its microprogram reads and writes."""

from typing import Any

import numpy as np

from gradloom.contracts.isa import PsumLayout, XSource
from gradloom.host.program.assembler import Instruction
from gradloom.models.arithmetic import dither, pint

__all__ = ["Run"]


class Run:
    """One RUN command.

    Attributes
    ----------
    m : :class:`gradloom.verif.interpreting.interpreter.Interpreter`
        The machine.
    chip : :class:`gradloom.verif.interpreting.interpreter.Memories`
        Its memories.
    f : dict
        Fields of the command.
    g : :class:`int`
        Channels of a group.
    x_columns : :class:`int`
        Columns of a plane.
    shape : tuple
        (planes, G, py, columns).
    sh : dict
        Shift registers that the command's list sets, by number.

    Raises
    ------
    ValueError
        No program may contain the command. Methods raise it, too.
    """

    def __init__(self, machine: Any, instruction: Instruction) -> None:
        self.m, self.f, self.chip, self.g = machine, instruction.fields, machine.chip, machine.config.group
        self.x_columns = 2 * self.f["xe"] - self.f["xodd"]
        self.shape = (self.f["planes"], self.g, self.f["py"], self.x_columns)
        self.sh: dict[int, int] = {}
        for entry in instruction.tail:
            value = entry.const + (-1 if entry.neg else 1) * machine.exponent(entry.tid)
            self.sh[entry.dst] = value + (0 if entry.first else self.sh[entry.dst])
        if self.f["planes"] < 1 or self.f["planes"] > machine.config.max_planes or not self.f["nb"]:
            raise ValueError(f"RUN over {self.f['planes']} planes of {self.f['nb']} beats")
        if self.f["shared"]:
            self._check_shared()

    def _check_shared(self) -> None:
        f, wpus = self.f, self.m.config.wpus
        if f["layout"] != PsumLayout.ROWS or wpus == 1 or f["shared"] > f["py"]:
            raise ValueError(f"RUN: {f['shared']} shared rows of {f['py']} of {PsumLayout(f['layout']).name}, {wpus} WPUs")
        if not f["sbeats"] or f["xe"] <= f["sbeats"] * (wpus - 1):
            raise ValueError(f"RUN: parts of {f['sbeats']} beats of shared rows of {f['xe']}, {wpus} WPUs")

    def stream(
        self, memory: np.ndarray, addr: int, rows: int | None = None, columns: int | None = None
    ) -> np.ndarray:
        """Bytes (planes, G, rows, columns) of a stream."""
        rows, columns = rows or self.f["py"], columns or self.x_columns
        xe = (columns + 1) // 2
        beats = self.f["planes"] * rows * xe
        if addr + beats > len(memory):
            raise ValueError(f"a stream of {beats} beats at {addr} leaves a buffer of {len(memory)}")
        data = memory[addr : addr + beats].reshape(self.f["planes"], rows, 2 * xe, self.g)
        return data.transpose(0, 3, 1, 2)[..., :columns]

    def decoded(self, memory: np.ndarray, addr: int, **size: int) -> np.ndarray:
        """Values of a stream."""
        return pint.decode(self.stream(memory, addr, **size)).astype(np.int64)

    def bits(self) -> np.ndarray:
        """Stored bits (planes, G, py, columns)."""
        f = self.f
        size = -(-f["nb"] // 8)
        raw = self.chip.am[f["sm0"] : f["sm0"] + f["planes"] * size].reshape(f["planes"], -1)
        bits = np.unpackbits(raw, axis=-1, bitorder="little")[:, : f["nb"] * 2 * self.g]
        return bits.reshape(f["planes"], f["py"], 2 * f["xe"], self.g).transpose(0, 3, 1, 2)[
            ..., : self.x_columns
        ]

    def put(self, memory: np.ndarray, addr: int, codes: np.ndarray) -> None:
        """Codes (planes, G, py, columns) to an output; padding columns become 0."""
        f = self.f
        full = np.zeros((f["planes"], f["py"], 2 * f["xe"], self.g), np.uint8)
        full[:, :, : self.x_columns] = codes.transpose(0, 2, 3, 1)
        self.place(memory, addr, full.reshape(-1, 2, self.g))

    def put_bits(self, bits: np.ndarray) -> None:
        """Bits (planes, G, py, columns) to their output; those behind a plane become 0."""
        f = self.f
        full = np.zeros((f["planes"], f["py"], 2 * f["xe"], self.g), np.uint8)
        full[:, :, : self.x_columns] = bits.transpose(0, 2, 3, 1)
        size = -(-f["nb"] // 8)
        packed = np.packbits(full.reshape(f["planes"], -1), axis=-1, bitorder="little")
        out = np.zeros((f["planes"], size * 2 * self.g), np.uint8)
        out[:, : packed.shape[1]] = packed
        self.place(self.chip.om, f["om0"], out.reshape(-1, 2 * self.g))

    def place(self, memory: np.ndarray, addr: int, values: np.ndarray) -> None:
        """Entries to a memory from ``addr`` on."""
        if addr + len(values) > len(memory):
            raise ValueError(f"{len(values)} beats at {addr} leave a buffer of {len(memory)}")
        memory[addr : addr + len(values)] = values

    def x(self) -> np.ndarray:
        """Wide operand (planes, G, py, columns)."""
        f = self.f
        out = np.zeros(self.shape, np.int64)
        if f["xsrc"] == XSource.NONE:
            return out
        psum = self.chip.psum[f["half"]]
        for plane in range(f["planes"]):
            for o in range(f["py"]):
                for x in range(self.x_columns):
                    place = self._position(plane, o, x)
                    if place is not None:
                        wpu, bank, addr = place
                        out[plane, :, o, x] = psum[wpu, bank, f["pbase"] + addr]
        return out

    def _position(self, plane: int, o: int, x: int) -> tuple[int, int, int] | None:
        """WPU, bank and address behind ``pbase`` of a position."""
        f, kind, wpus = self.f, PsumLayout(self.f["layout"]), self.m.config.wpus
        first = f["prg0"] * wpus + f["pw0"]
        if kind == PsumLayout.SPLIT:
            g, wpu = divmod(first + plane * -(-(f["py"] + f["psr"]) // 2) + (o + f["psr"] >> 1), wpus)
            sub, column, position = o + f["psr"] & 1, x + f["psc"] & 1, x + f["psc"] >> 1
            return wpu, 2 * sub + column, g * f["pj"] + position
        if kind == PsumLayout.ROWS:
            g, wpu = divmod(first + plane * f["py"] + o, wpus)
            beat = x >> 1
            if plane == f["planes"] - 1 and o >= f["py"] - f["shared"]:
                g, wpu, beat = self._shared(first, o, beat)
            return wpu, 2 * (g & 1) + (x & 1), (g >> 1) * -(-f["pj"] // 2) + beat
        units = f["py"]
        if kind == PsumLayout.K1_UP:
            if x & 1 or (o & 1 and not f["psr"]):
                return None
            units, o, x = (units, o, x // 2) if f["psr"] else (-(-units // 2), o // 2, x // 2)
        padded = f["pj"] + (f["pj"] & 1)
        bank = (f["pk"] + 2 * (x & 1)) % 4
        g, wpu = divmod(first + plane * units + o, wpus)
        return wpu, bank, 2 * (g * padded + x >> 1) + (f["pk"] == 2)

    def _shared(self, first: int, o: int, beat: int) -> tuple[int, int, int]:
        """Row group, WPU and beat of its part of a beat of a shared row; ``first``: unit of the first row."""
        f, wpus = self.f, self.m.config.wpus
        dealt = f["py"] - f["shared"]
        groups, rest = divmod(first + (f["planes"] - 1) * f["py"] + dealt, wpus)
        if rest:
            raise ValueError("RUN: a shared row behind a row group that is not whole")
        wpu = min(beat // f["sbeats"], wpus - 1)
        return groups + o - dealt, wpu, beat - f["sbeats"] * wpu

    def entry(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """(master, velocity) of an entry relative to pb0."""
        words = self.chip.pbuf[self.f["pb0"] + number].view("<i4").reshape(self.g, 2)
        return words[:, 0].astype(np.int64), words[:, 1].astype(np.int64)

    def master(self, number: int) -> np.ndarray:
        """Master of an entry relative to pb0."""
        return self.entry(number)[0]

    def add_sum(self, number: int, value: np.ndarray) -> None:
        """Sums (G) to those of an entry relative to pb0, unless dry."""
        if self.f["dry"]:
            return
        entry = self.chip.pbuf[self.f["pb0"] + number].view("<i8")
        entry[:] = entry + value

    def total(self, number: int) -> np.ndarray:
        """Sums (G) of an entry relative to pb0."""
        return self.chip.pbuf[self.f["pb0"] + number].view("<i8").astype(np.int64)

    def statistic(self, converter: int, value: int) -> None:
        """Into the statistic of a converter's tensor."""
        tid = self.f[f"t{converter}"]
        if tid:
            self.m.statistics[tid] |= value

    def mode(self, converter: int, idx: np.ndarray | None = None) -> pint.Mode:
        """Rounding of a converter; ``idx``: element indices, by default those of the planes (planes, G, py, columns)."""
        f = self.f
        if not f[f"r{converter}"]:
            return pint.Mode(f[f"f{converter}"], None)
        if idx is None:
            plane, channel, y, x = np.ogrid[: f["planes"], : self.g, : f["py"], : self.x_columns]
            every = 2 if f["layout"] == PsumLayout.K1_UP and f["psr"] else 1
            idx = f["idx0"] + plane * f["s_k"] + channel * f["s_ch"] + every * y * self.x_columns + x
        bits = dither.random_bits(self.m.seeds[f[f"t{converter}"]], idx & 0xFFFFFF, f[f"f{converter}"])
        return pint.Mode(f[f"f{converter}"], bits)

    def encode_out(self, wide: np.ndarray) -> None:
        """Values (planes, G, py, columns) by converter 2 to the first output."""
        mode = self.mode(2)
        encoded = pint.encode(wide, self.sh[1], f=mode.f, rnd=mode.rnd)
        self.statistic(2, encoded.stat)
        self.put(self.chip.oa, self.f["oa0"], encoded.code)
