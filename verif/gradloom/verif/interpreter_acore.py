"""RUN and SOFTMAX on numpy memories: docs/machine.md sections 5 and 8 with the golden model's operations."""

from typing import Any

import numpy as np

from gradloom.host.assembler import Instruction
from gradloom.models import activation, arith, dither, frn, pint, update
from gradloom.models import softmax as loss
from gradloom.rtl.isa import PsumLayout, XSource
from gradloom.rtl.microprograms import TABLE

__all__ = ["run", "softmax"]

_NAMES = {address: name for name, address in TABLE.items()}
_NEVER = -(1 << 62)
_PLANE = 6
"""Entry relative to pb0 of the sum of products of a plane in rows."""


class _Run:
    """One RUN command."""

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

    # Streams

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
        return pint.decode(self.stream(memory, addr, **size)).astype(np.int64)

    def bits(self) -> np.ndarray:
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
        self._place(memory, addr, full.reshape(-1, 2, self.g))

    def put_bits(self, bits: np.ndarray) -> None:
        f = self.f
        full = np.zeros((f["planes"], f["py"], 2 * f["xe"], self.g), np.uint8)
        full[:, :, : self.x_columns] = bits.transpose(0, 2, 3, 1)
        size = -(-f["nb"] // 8)
        packed = np.packbits(full.reshape(f["planes"], -1), axis=-1, bitorder="little")
        out = np.zeros((f["planes"], size * 2 * self.g), np.uint8)
        out[:, : packed.shape[1]] = packed
        self._place(self.chip.om, f["om0"], out.reshape(-1, 2 * self.g))

    def _place(self, memory: np.ndarray, addr: int, values: np.ndarray) -> None:
        if addr + len(values) > len(memory):
            raise ValueError(f"{len(values)} beats at {addr} leave a buffer of {len(memory)}")
        memory[addr : addr + len(values)] = values

    # X

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

    # Parameters

    def entry(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """(master, velocity) of an entry relative to pb0."""
        words = self.chip.pbuf[self.f["pb0"] + number].view("<i4").reshape(self.g, 2)
        return words[:, 0].astype(np.int64), words[:, 1].astype(np.int64)

    def master(self, number: int) -> np.ndarray:
        return self.entry(number)[0]

    def add_sum(self, number: int, value: np.ndarray) -> None:
        if self.f["dry"]:
            return
        entry = self.chip.pbuf[self.f["pb0"] + number].view("<i8")
        entry[:] = entry + value

    def total(self, number: int) -> np.ndarray:
        return self.chip.pbuf[self.f["pb0"] + number].view("<i8").astype(np.int64)

    def statistic(self, converter: int, value: int) -> None:
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

    # Microprograms

    def encode_out(self, wide: np.ndarray) -> None:
        mode = self.mode(2)
        encoded = pint.encode(wide, self.sh[1], f=mode.f, rnd=mode.rnd)
        self.statistic(2, encoded.stat)
        self.put(self.chip.oa, self.f["oa0"], encoded.code)

    def lam(self) -> tuple[np.ndarray, np.ndarray]:
        """q and le (planes, G) from the parameter buffer."""
        words = self.chip.pbuf[self.f["pl0"] : self.f["pl0"] + self.f["planes"]].copy().view("<u8").astype(np.int64)
        le = words >> 16 & 0xFF
        return words & 0xFFFF, np.where(le > 127, le - 256, le)

    def put_lam(self, x: np.ndarray) -> None:
        """lambda of every plane from the C-Core's sums of magnitudes, of which ``x`` may be a tile of rows."""
        f = self.f
        norms = self.chip.norms[f["half"], :, f["pk"], f["ps0"] : f["ps0"] + f["planes"]].sum(axis=0)
        if f["n"] == f["py"] * self.x_columns and (norms != abs(x).sum(axis=(2, 3))).any():
            raise ValueError("FRN over planes whose sums of magnitudes the C-Core has not gathered")
        self.put_quotient(norms)

    def put_quotient(self, norms: np.ndarray) -> None:
        """lambda of planes with these sums of magnitudes (planes, G)."""
        f = self.f
        total = norms.astype(object) + max(1, int(arith.align(f["n"], self.sh[0])))
        q, le = frn.reciprocal_norm(f["n"], np.minimum(total, arith.INT64_MAX))
        value = q | (le & 0xFF) << 16
        self._place(self.chip.pbuf, f["pl0"], value.astype("<i8").view(np.uint8).reshape(f["planes"], 8 * self.g))

    def add_norm(self, *, first: bool) -> None:
        """Sum of magnitudes of a tile of rows to the entry where lambda of its plane will be."""
        f = self.f
        if f["planes"] != 1 or f["dry"]:
            raise ValueError("rows of more than one plane, or dry")
        entry = self.chip.pbuf[f["pl0"]].view("<i8")
        entry[:] = self.chip.norms[f["half"], :, f["pk"], f["ps0"]].sum(axis=0) + (0 if first else entry)

    def frn_forward(self, *, residual: bool, threshold: bool, whole: bool) -> None:
        f = self.f
        gamma, beta, tau = (self.master(i) >> 12 for i in range(3))
        extra = arith.align(self.decoded(self.chip.aa, f["sa0"]), self.sh[2]) if residual else None
        x = self.x()
        kept = self.chip.pbuf.copy()
        if whole:
            self.put_lam(x)
        q, le = self.lam()
        if f["dry"]:
            self.chip.pbuf[:] = kept
        result = frn.normalise(
            x, gamma, beta, tau, q, le, sh_z=self.sh[1], residual=extra, threshold=threshold,
            mode_xhat=self.mode(1), mode_z=self.mode(2),
        )
        self.statistic(2, result.z.stat)
        self.put(self.chip.oa, f["oa0"], result.z.code)
        self.put(self.chip.ob, f["ob0"], result.xhat_code)
        if threshold:
            self.put_bits(np.asarray(result.bit).astype(np.uint8))

    def frn_backward(self, *, threshold: bool, sums: str, sweep: bool) -> None:
        """``sums``: "plane" of each plane, "first" and "add" of a tile of rows, "" none but the one that tiles have left."""
        f = self.f
        inv, k = arith.reciprocal(f["n"])
        if sweep and (f["inv"] != inv or self.sh[3] != 19 + k):
            raise ValueError("FRN_BWD: inv or SH3 do not belong to the plane's size")
        if sums == "plane" and f["n"] != f["py"] * self.x_columns:
            raise ValueError(f"FRN_BWD over {f['n']} positions of a plane of {f['py']} x {self.x_columns}")
        if sums != "plane" and f["planes"] != 1:
            raise ValueError("rows of more than one plane")
        dz = self.decoded(self.chip.aa, f["sa0"])
        xhat = self.decoded(self.chip.ab, f["sb0"])
        d = np.where(self.bits(), dz, 0) if threshold else dz
        products = (d * xhat).sum(axis=(2, 3))
        if sums == "first" and not f["dry"]:
            self.chip.pbuf[f["pb0"] + _PLANE].view("<i8")[:] = 0
        if sums in ("first", "add"):
            self.add_sum(_PLANE, products[0])
        if sweep:
            plane = products if sums else self.total(_PLANE)[None]
            dx = frn.error(d, xhat, plane, self.master(0) >> 12, *self.lam(), n=f["n"], sh0=self.sh[1], mode=self.mode(2))
            self.statistic(2, dx.stat)
            self.put(self.chip.oa, f["oa0"], dx.code)
        if sums:
            for number, value in ((3, products), (4, d.sum(axis=(2, 3))), (5, (dz - d).sum(axis=(2, 3)))):
                self.add_sum(number, value.sum(axis=0))

    def biased(self) -> np.ndarray:
        return self.x() + arith.align(self.master(1), self.sh[0]).reshape(1, -1, 1, 1)

    def relu_forward(self) -> None:
        y = self.biased()
        self.put_bits((y > 0).astype(np.uint8))
        self.encode_out(np.maximum(y, 0))

    def logits(self) -> None:
        f = self.f
        value = arith.saturate(arith.align(self.biased(), self.sh[1]), 24)[:, :, 0, 0]
        for plane in range(f["planes"]):
            self.chip.logit[f["ob0"] + plane * f["om0"]] = value[plane]

    def bp_out(self, *, bits: bool) -> None:
        error = self.decoded(self.chip.aa, self.f["sa0"])
        if bits:
            error = error * self.bits()
        self.encode_out(self.x() + arith.align(error, self.sh[2]))

    def relu_backward(self) -> None:
        result = activation.relu_backward(self.decoded(self.chip.aa, self.f["sa0"]), self.bits())
        if self.sh[1] != 0 or self.f["t2"]:
            raise ValueError("RELU_BWD: SH1 and t2 must be 0")
        self.put(self.chip.oa, self.f["oa0"], result.dx.code)
        self.add_sum(4, result.sb.sum(axis=0))

    def parameters(self, numbers: tuple[int, ...]) -> None:
        for number in numbers:
            master, velocity = self.entry(number)
            result = update.parameter(
                master,
                velocity,
                self.total(number + 3),
                inv=self.f["inv"],
                shift=self.sh[min(number, 1)],
                momentum=self.m.momentum,
                lm=self.m.lm,
                le_lr=-self.sh[2],
            )
            words = self.chip.pbuf[self.f["pb0"] + number].view("<i4").reshape(self.g, 2)
            words[:, 0], words[:, 1] = np.asarray(result.master), np.asarray(result.velocity)

    def pool(self, *, maximum: bool) -> None:
        f = self.f
        kernel = f["pkern"]
        stored = self.decoded(self.chip.aa, f["sa0"], rows=f["pyi"], columns=f["pxi"])
        if f["pool"] == 1:
            windows = self._windows(stored, fill=_NEVER if maximum else 0)
            if maximum:
                wide, index = windows.max(axis=-1), windows.argmax(axis=-1)
                self.put(self.chip.ob, f["ob0"], index.astype(np.uint8))
            else:
                wide = windows.sum(axis=-1) * f["inv"]
        else:
            index = self.stream(self.chip.ab, f["sb0"], f["pyi"], f["pxi"]) if maximum else None
            wide = self._scatter(stored, index) * (1 if maximum else f["inv"])
        if not maximum and f["inv"] != arith.reciprocal(kernel * kernel)[0]:
            raise ValueError("average pool: inv does not belong to the kernel")
        self.encode_out(wide)

    def _windows(self, stored: np.ndarray, *, fill: int) -> np.ndarray:
        """Values (planes, G, py, columns, ky kx) of the windows of every output position; rows that are not stored are ``fill``."""
        f = self.f
        kernel, stride, above, left = f["pkern"], f["pstride"], f["ppad"] + f["poff"], f["ppad"]
        planes, channels, rows, columns = stored.shape
        size = (stride * f["py"] + kernel + above + rows, stride * self.x_columns + kernel + left + columns)
        padded = np.full((planes, channels, *size), fill, np.int64)
        padded[:, :, above : above + rows, left : left + columns] = stored
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
        return windows[:, :, ::stride, ::stride][:, :, : f["py"], : self.x_columns].reshape(*self.shape, -1)

    def _scatter(self, stored: np.ndarray, index: np.ndarray | None) -> np.ndarray:
        """Sums (planes, G, py, columns) of the stored errors over the windows that hold a position (and whose index names it)."""
        f = self.f
        kernel, stride, above, left = f["pkern"], f["pstride"], f["ppad"] + f["poff"], f["ppad"]
        planes, channels, rows, columns = stored.shape
        size = (stride * rows + kernel + above + f["py"], stride * columns + kernel + left + self.x_columns)
        total = np.zeros((planes, channels, *size), np.int64)
        for tap in range(kernel * kernel):
            ky, kx = divmod(tap, kernel)
            total[:, :, ky : ky + stride * rows : stride, kx : kx + stride * columns : stride] += (
                stored if index is None else np.where(index == tap, stored, 0)
            )
        return total[:, :, above : above + f["py"], left : left + self.x_columns]

    # Weight gradients

    def weight_gradient(self, *, export: bool) -> None:
        f, g, bb = self.f, self.g, self.m.config.block_beats
        if f["nb"] != f["nr"] * f["nk"] * (f["side"] + 1) * bb:
            raise ValueError("a sweep over weight gradients that is not nr nk blocks of each tile long")
        beats = f["planes"] * f["nb"]
        where = slice(f["dwbase"], f["dwbase"] + beats)
        moved = np.arange(f["dwbase"], f["dwbase"] + beats) % self.m.config.export_depth
        dw = self.chip.dw[where] + (self.chip.xin[moved] if f["xin"] else 0)
        self.chip.xout[moved] = dw
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
        mode_v, mode_w = (self.mode(c, idx.reshape(dw.shape)[:, valid]) for c in (1, 2))
        arrays = [
            array[:, valid]
            for array in (
                dw,
                self.chip.aa[f["sa0"] : f["sa0"] + beats],
                self.chip.ab[f["sb0"] : f["sb0"] + beats],
            )
        ]
        result = update.weights(
            arrays[0],
            pint.decode(arrays[1]),
            pint.decode(arrays[2]),
            inv=f["inv"],
            momentum=self.m.momentum,
            lm=self.m.lm,
            shifts=[self.sh[j] for j in range(5)],
            decay=self.m.exponent(3) != 255,
            mode_v=mode_v,
            mode_w=mode_w,
        )
        self.statistic(1, result.v.stat)
        self.statistic(2, result.w.stat)
        for memory, addr, codes in (
            (self.chip.ob, f["ob0"], result.v.code),
            (self.chip.oa, f["oa0"], result.w.code),
        ):
            full = np.zeros((beats, 2, g), np.uint8)
            full[:, valid] = codes
            self._place(memory, addr, full)


def run(machine: Any, instruction: Instruction) -> None:
    """One RUN command."""
    command = _Run(machine, instruction)
    name = _NAMES[instruction.fields["uprog"]]
    actions = {
        "FRN_FWD": lambda: command.frn_forward(residual=False, threshold=True, whole=True),
        "FRN_FWD_RES": lambda: command.frn_forward(residual=True, threshold=True, whole=True),
        "FRN_FWD_LIN": lambda: command.frn_forward(residual=False, threshold=False, whole=True),
        "FRN_NORM": lambda: command.add_norm(first=True),
        "FRN_NORM_ADD": lambda: command.add_norm(first=False),
        "FRN_LAM": lambda: command.put_quotient(command.chip.pbuf[command.f["pl0"]].view("<i8")[None]),
        "FRN_ROWS": lambda: command.frn_forward(residual=False, threshold=True, whole=False),
        "FRN_ROWS_RES": lambda: command.frn_forward(residual=True, threshold=True, whole=False),
        "FRN_ROWS_LIN": lambda: command.frn_forward(residual=False, threshold=False, whole=False),
        "RELU_FWD": command.relu_forward,
        "LIN_FWD": lambda: command.encode_out(command.biased()),
        "LOGITS": command.logits,
        "BP_OUT": lambda: command.encode_out(command.x()),
        "BP_OUT_RES": lambda: command.bp_out(bits=True),
        "BP_OUT_ADD": lambda: command.bp_out(bits=False),
        "FRN_BWD": lambda: command.frn_backward(threshold=True, sums="plane", sweep=True),
        "FRN_BWD_LIN": lambda: command.frn_backward(threshold=False, sums="plane", sweep=True),
        "FRN_SUM": lambda: command.frn_backward(threshold=True, sums="first", sweep=False),
        "FRN_SUM_LIN": lambda: command.frn_backward(threshold=False, sums="first", sweep=False),
        "FRN_ADD": lambda: command.frn_backward(threshold=True, sums="add", sweep=False),
        "FRN_ADD_LIN": lambda: command.frn_backward(threshold=False, sums="add", sweep=False),
        "FRN_ERR": lambda: command.frn_backward(threshold=True, sums="", sweep=True),
        "FRN_ERR_LIN": lambda: command.frn_backward(threshold=False, sums="", sweep=True),
        "RELU_BWD": command.relu_backward,
        "LIN_BWD": lambda: command.add_sum(
            4, command.decoded(command.chip.aa, command.f["sa0"]).sum(axis=(0, 2, 3))
        ),
        "PARAM_UPD": lambda: command.parameters((0, 1, 2)),
        "BIAS_UPD": lambda: command.parameters((1,)),
        "WU": lambda: command.weight_gradient(export=False),
        "DW_EXPORT": lambda: command.weight_gradient(export=True),
        "MAXPOOL_FWD": lambda: command.pool(maximum=True),
        "MAXPOOL_BWD": lambda: command.pool(maximum=True),
        "AVGPOOL_FWD": lambda: command.pool(maximum=False),
        "AVGPOOL_BWD": lambda: command.pool(maximum=False),
    }
    actions[name]()


def softmax(machine: Any, f: dict[str, int]) -> None:
    """One SOFTMAX command."""
    g, chip = machine.config.group, machine.chip
    groups = -(-f["classes"] // g)
    logits = chip.logit[f["logit0"] : f["logit0"] + f["images"] * groups].reshape(f["images"], -1)[
        :, : f["classes"]
    ]
    labels = chip.label[: f["images"]]
    encoded = (loss.squared if f["squared"] else loss.gradient)(logits, labels)[1]
    out = np.zeros((f["images"], groups, 2, g), np.uint8)
    padded = np.zeros((f["images"], groups * g), np.uint8)
    padded[:, : f["classes"]] = encoded.code
    out[:, :, 0] = padded.reshape(f["images"], groups, g)
    chip.oa[f["oa0"] : f["oa0"] + f["images"] * groups] = out.reshape(-1, 2, g)
