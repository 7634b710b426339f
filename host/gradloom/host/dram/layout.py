"""Logical tensors (NCHW, OIHW) to the DRAM formats of docs/machine.md section 2 and back, for any G.

Every ``pack_*`` returns ``bytes`` whose length is a multiple of the beat (2 G bytes); the ``unpack_*`` of the
same name takes them and the logical shape. Padding channels and columns hold 0.
"""

import itertools

import numpy as np

__all__ = [
    "bitmap_beats",
    "ceil_div",
    "even",
    "pack_bitmap",
    "pack_blocks",
    "pack_dw",
    "pack_feature",
    "pack_hyper",
    "pack_labels",
    "pack_logits",
    "pack_parameters",
    "pack_reciprocals",
    "pack_sums",
    "plane_beats",
    "unpack_bitmap",
    "unpack_blocks",
    "unpack_dw",
    "unpack_feature",
    "unpack_logits",
    "unpack_parameters",
    "unpack_reciprocals",
    "unpack_sums",
]


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def even(n: int) -> int:
    """``n`` rounded up to even."""
    return n + (n & 1)


def equal_ranges(first: int, last: int, most: int) -> list[tuple[int, int]]:
    """Ranges of at most ``most`` from ``first`` to ``last``, as equal as can be."""
    count = ceil_div(last - first, most)
    edges = [first + (last - first) * i // max(1, count) for i in range(count + 1)]
    return list(itertools.pairwise(edges))


def plane_beats(y: int, x: int) -> int:
    """Beats of a byte plane."""
    return y * (even(x) // 2)


def bitmap_beats(y: int, x: int) -> int:
    """Beats of a bitmap plane: 8 byte-plane beats (16 positions) a beat."""
    return ceil_div(plane_beats(y, x), 8)


def _grouped(array: np.ndarray, g: int) -> np.ndarray:
    """(B, C, Y, X) to (B, C/G, Y, X', G)."""
    b, c, y, x = array.shape
    groups = ceil_div(c, g)
    out = np.zeros((b, groups * g, y, even(x)), array.dtype)
    out[:, :c, :, :x] = array
    return np.ascontiguousarray(out.reshape(b, groups, g, y, even(x)).transpose(0, 1, 3, 4, 2))


def _ungrouped(array: np.ndarray, c: int, x: int) -> np.ndarray:
    b, groups, y, xp, g = array.shape
    return np.ascontiguousarray(array.transpose(0, 1, 4, 2, 3).reshape(b, groups * g, y, xp)[:, :c, :, :x])


def pack_feature(codes: np.ndarray, g: int) -> bytes:
    """uint8 (B, C, Y, X): features, errors, xhat, pool indices."""
    return _grouped(np.asarray(codes, np.uint8), g).tobytes()


def unpack_feature(data: bytes, shape: tuple[int, int, int, int], g: int) -> np.ndarray:
    b, c, y, x = shape
    array = np.frombuffer(data, np.uint8).reshape(b, ceil_div(c, g), y, even(x), g)
    return _ungrouped(array, c, x)


def pack_bitmap(bits: np.ndarray, g: int) -> bytes:
    """0/1 (B, C, Y, X): position p = y X' + x, channel i is bit p G + i of the plane, low bits first."""
    grouped = _grouped(np.asarray(bits, np.uint8), g)
    b, groups, y, xp, _ = grouped.shape
    size = 2 * g * ceil_div(y * xp // 2, 8)
    planes = np.packbits(grouped.reshape(b, groups, -1), axis=-1, bitorder="little")
    out = np.zeros((b, groups, size), np.uint8)
    out[..., : planes.shape[-1]] = planes
    return out.tobytes()


def unpack_bitmap(data: bytes, shape: tuple[int, int, int, int], g: int) -> np.ndarray:
    b, c, y, x = shape
    groups, size = ceil_div(c, g), 2 * g * bitmap_beats(y, x)
    raw = np.frombuffer(data, np.uint8).reshape(b, groups, size)
    bits = np.unpackbits(raw, axis=-1, bitorder="little")[..., : y * even(x) * g]
    return _ungrouped(bits.reshape(b, groups, y, even(x), g), c, x)


def _block_array(array: np.ndarray, g: int, kx: int) -> np.ndarray:
    """(M, C, Ky, Kx) to (M/G, C/G, Ky, kx, G out * G in), for G = 1 with a second value of padding."""
    m, c, ky, columns = array.shape
    mg, cg = ceil_div(m, g), ceil_div(c, g)
    out = np.zeros((mg * g, cg * g, ky, kx), array.dtype)
    out[:m, :c, :, :columns] = array
    blocks = out.reshape(mg, g, cg, g, ky, kx).transpose(0, 2, 4, 5, 1, 3).reshape(mg, cg, ky, kx, g * g)
    return (
        np.concatenate([blocks, np.zeros_like(blocks)], axis=-1) if g == 1 else np.ascontiguousarray(blocks)
    )


def _unblock(blocks: np.ndarray, shape: tuple[int, int, int, int], g: int) -> np.ndarray:
    m, c, ky, columns = shape
    mg, cg, _, kx, _ = blocks.shape
    array = (
        blocks[..., : g * g]
        .reshape(mg, cg, ky, kx, g, g)
        .transpose(0, 4, 1, 5, 2, 3)
        .reshape(mg * g, cg * g, ky, kx)
    )
    return np.ascontiguousarray(array[:m, :c, :, :columns])


def pack_blocks(codes: np.ndarray, g: int, *, kx: int | None = None) -> bytes:
    """uint8 (M, C, Ky, Kx): weights, velocities.

    ``kx`` stored kernel columns (a fully connected layer's even X'), default Kx.
    """
    codes = np.asarray(codes, np.uint8)
    return _block_array(codes, g, kx or codes.shape[3]).tobytes()


def unpack_blocks(
    data: bytes, shape: tuple[int, int, int, int], g: int, *, kx: int | None = None
) -> np.ndarray:
    m, c, ky, columns = shape
    array = np.frombuffer(data, np.uint8).reshape(ceil_div(m, g), ceil_div(c, g), ky, kx or columns, -1)
    return _unblock(array, shape, g)


def pack_dw(sums: np.ndarray, g: int, *, kx: int | None = None) -> bytes:
    """int64 (M, C, Ky, Kx): weight-gradient sums."""
    sums = np.asarray(sums, np.int64)
    return _block_array(sums, g, kx or sums.shape[3]).astype("<i8").tobytes()


def unpack_dw(data: bytes, shape: tuple[int, int, int, int], g: int, *, kx: int | None = None) -> np.ndarray:
    m, c, ky, columns = shape
    array = np.frombuffer(data, "<i8").reshape(ceil_div(m, g), ceil_div(c, g), ky, kx or columns, -1)
    return _unblock(array, shape, g).astype(np.int64)


def pack_parameters(parameters: list[tuple[np.ndarray, np.ndarray]], g: int) -> bytes:
    """Entries ``[M/G][parameter][G]`` of {velocity, master} (int32) from (master, velocity) pairs of (M,)."""
    m = len(parameters[0][0])
    out = np.zeros((ceil_div(m, g) * g, len(parameters), 2), np.int32)
    for place, (master, velocity) in enumerate(parameters):
        out[:m, place, 0], out[:m, place, 1] = master, velocity
    entries = out.reshape(-1, g, len(parameters), 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(entries).astype("<i4").tobytes()


def unpack_parameters(data: bytes, m: int, count: int, g: int) -> list[tuple[np.ndarray, np.ndarray]]:
    array = (
        np.frombuffer(data, "<i4")
        .reshape(ceil_div(m, g), count, g, 2)
        .transpose(1, 0, 2, 3)
        .reshape(count, -1, 2)
    )
    return [(array[i, :m, 0].astype(np.int32), array[i, :m, 1].astype(np.int32)) for i in range(count)]


def pack_reciprocals(q: np.ndarray, le: np.ndarray, g: int) -> bytes:
    """Entries ``[batch][C/G][G]``: q in bits 15:0, le in bits 23:16, from arrays (B, C)."""
    b, c = q.shape
    out = np.zeros((b, ceil_div(c, g) * g), np.uint64)
    out[:, :c] = (np.asarray(q, np.int64) & 0xFFFF | (np.asarray(le, np.int64) & 0xFF) << 16).astype(
        np.uint64
    )
    return out.astype("<u8").tobytes()


def unpack_reciprocals(data: bytes, shape: tuple[int, int], g: int) -> tuple[np.ndarray, np.ndarray]:
    """(q, le) as int64 arrays (B, C); ``le`` is signed."""
    b, c = shape
    array = np.frombuffer(data, "<u8").reshape(b, ceil_div(c, g) * g)[:, :c]
    le = (array >> np.uint64(16) & np.uint64(0xFF)).astype(np.int64)
    return (array & np.uint64(0xFFFF)).astype(np.int64), np.where(le >= 128, le - 256, le)


def pack_sums(sums: list[np.ndarray], g: int) -> bytes:
    """Entries ``[C/G][sum][G]`` of int64 from arrays (C,) in the order sg, sb, st."""
    c = len(sums[0])
    out = np.zeros((ceil_div(c, g) * g, len(sums)), np.int64)
    for place, value in enumerate(sums):
        out[:c, place] = value
    return np.ascontiguousarray(out.reshape(-1, g, len(sums)).transpose(0, 2, 1)).astype("<i8").tobytes()


def unpack_sums(data: bytes, c: int, count: int, g: int) -> list[np.ndarray]:
    array = np.frombuffer(data, "<i8").reshape(ceil_div(c, g), count, g).transpose(1, 0, 2).reshape(count, -1)
    return [array[i, :c].astype(np.int64) for i in range(count)]


def pack_logits(logits: np.ndarray, g: int) -> bytes:
    """int32 (B, M) to ``[batch][M/G][G]``; an entry of 4 G bytes is two beats."""
    b, m = logits.shape
    out = np.zeros((b, ceil_div(m, g) * g), np.int32)
    out[:, :m] = logits
    return out.astype("<i4").tobytes()


def unpack_logits(data: bytes, shape: tuple[int, int], g: int) -> np.ndarray:
    b, m = shape
    return np.frombuffer(data, "<i4").reshape(b, ceil_div(m, g) * g)[:, :m].astype(np.int32)


def pack_labels(labels: np.ndarray, g: int) -> bytes:
    """One beat per image, the class number in its low 16 bits."""
    labels = np.asarray(labels)
    out = np.zeros((len(labels), g), np.uint16)
    out[:, 0] = labels
    return out.astype("<u2").tobytes()


def pack_hyper(lm: int, le_lr: int, momentum: int, decay: int) -> bytes:
    """One 16-byte step of the hyperparameter table."""
    return bytes([lm, le_lr & 0xFF, momentum, decay]) + bytes(12)
