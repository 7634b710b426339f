"""Fields of CONV commands: windows of kernels, the walk over rows and columns, places of partial sums.

An independent reading of ``docs/machine.md`` sections 3 to 5 for testbenches.
"""

from gradloom.contracts.config import Config
from gradloom.contracts.isa import COMMANDS, Opcode, Pattern
from gradloom.verif.ccore import shared_rows
from gradloom.verif.ccore.conv_reference import Geometry

__all__ = ["bank_conflict", "column_start", "encode_conv", "pair_windows", "place_psum", "row_walk", "windows"]


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


def pair_windows(layer: Geometry) -> tuple[int, list[tuple[int, int]]]:
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


def row_walk(*, modulus: int, ystep: int, y0: int, yin: int, upi: int, xe: int, base: int) -> dict[str, int]:
    """Bank counter and row address of unit 0 and their advances, rows of all images stacked."""
    sb, cb = ystep, yin - (upi - 1) * ystep
    return {"ib0": y0 % modulus, "ia0": (base + y0 // modulus * xe) % 65536,
            "sb": sb % modulus, "sa": sb // modulus * xe, "cb": cb % modulus, "ca": cb // modulus * xe % 65536}


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
