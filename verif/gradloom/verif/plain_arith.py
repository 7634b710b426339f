"""The machine's arithmetic on plain Python integers, one value at a time; it shares no code with the golden model."""

__all__ = ["MASK64", "align", "code_of", "decode", "encode", "encode_rest", "hash24", "saturate", "with_rest", "wrap"]

MASK64 = (1 << 64) - 1


def saturate(x: int, bits: int) -> int:
    """The nearest value of ``bits`` bits."""
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, x))


def wrap(x: int, bits: int = 64) -> int:
    """The low bits with their sign."""
    return ((x + (1 << (bits - 1))) & ((1 << bits) - 1)) - (1 << (bits - 1))


def align(x: int, n: int) -> int:
    """x 2^n, rounded down, saturated at 64 bits."""
    return saturate(x << min(n, 400), 64) if n >= 0 else x >> -n


def decode(code: int) -> int:
    """Value of a PINT(8, 3) code."""
    m = code & 0x7F
    m -= (m & 64) << 1
    if code & 0x80:
        return m * 8
    return m if -8 <= m <= 7 else m * 64


def code_of(v: int) -> int:
    """Code of a value that has one."""
    if -8 <= v <= 7:
        return v & 0x7F
    return 0x80 | (v >> 3 & 0x7F) if -512 <= v <= 511 else v >> 6 & 0x7F


def encode(a: int, sh: int, f: int = 8, r: int | None = None) -> tuple[int, int, int]:
    """(value, code, stat) of ``a`` at shift ``sh``; ``r`` = random bits, None = to nearest."""
    g = align(a, f + 1 - sh)
    stat = (g ^ (g >> 63)) & MASK64
    t = g >> (f + 1)
    if t >= 4096:
        v = 4032
    elif t < -4096:
        v = -4096
    else:
        s = 0 if -8 <= t <= 7 else 3 if -512 <= t <= 511 else 6
        v = min((((g >> s) + (1 << f if r is None else 2 * r + 1)) >> (f + 1)) << s, 4032)
    return v, code_of(v), stat


def encode_rest(a: int, sh: int, r: int) -> tuple[int, int, int, int]:
    """(value, code, stat, rest byte) with error feedback; ``r`` = 8 random bits."""
    g = align(a, 17 - sh)
    t = g >> 17
    if t >= 4096:
        number, step = (63 << 8) + 127, 64
    elif t < -4096:
        number, step = -64 << 8, 64
    else:
        s = 0 if -8 <= t <= 7 else 3 if -512 <= t <= 511 else 6
        number, step = (g >> s) + 2 * r + 1 >> 9, 1 << s
        if step == 64:
            number = min(number, (63 << 8) + 127)
    v = (number + 128 >> 8) * step
    return v, code_of(v), (g ^ (g >> 63)) & MASK64, number & 0xFF


def with_rest(v: int, rest: int) -> int:
    """A value and its rest byte as one number, in units of 2^-8."""
    signed = wrap(rest, 8)
    t = v - 1 if signed < 0 else v
    return (v << 8) + signed * (1 if -8 <= t <= 7 else 8 if -512 <= t <= 511 else 64)


def hash24(seed: int, idx: int) -> int:
    """24 random bits of element ``idx``; ``seed``: 32 bits."""
    m = (1 << 24) - 1
    x = (idx ^ seed) & m
    x = (x + (x << 7)) & m
    x ^= x >> 5
    x ^= seed >> 24
    x = (x + (x << 3)) & m
    x ^= x >> 9
    return (x + (x << 11)) & m
