"""The written vectors, replayed through another implementation: scalar Python integers, as the document says.

Nothing here uses the golden functions but the generator of the files.
"""

import functools
import itertools
import json
import operator

import pytest

from gradloom.models import vectors

MAX64, MIN64 = (1 << 63) - 1, -(1 << 63)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    paths = vectors.write(tmp_path_factory.mktemp("written") / "vectors")
    return {path.stem: json.loads(path.read_text())["cases"] for path in paths}


def clamp(x, low, high):
    return min(max(x, low), high)


def align(x, n):
    return clamp(x << n, MIN64, MAX64) if n >= 0 else x >> -n


def decode(code):
    flag, m = code >> 7, (code & 127) - ((code & 64) << 1)
    return m << 3 if flag else m if -8 <= m < 8 else m << 6


def encode(a, sh, f=8, r=None):
    """(value, code, contribution to stat)"""
    g = align(a, f + 1 - sh)
    t = g >> (f + 1)
    stat = g ^ (g >> 63)
    if not -4096 <= t < 4096:
        v = 4032 if t > 0 else -4096
    else:
        s = 0 if -8 <= t < 8 else 3 if -512 <= t < 512 else 6
        v = min((((g >> s) + (2 ** f if r is None else 2 * r + 1)) >> (f + 1)) << s, 4032)
    code = v & 127 if -8 <= v < 8 else 128 | (v >> 3) & 127 if -512 <= v < 512 else (v >> 6) & 127
    return v, code, stat


def encode_all(tensor, sh, f=8, random=None):
    """The record of an encoded tensor; ``sh`` may be a function of the leading indices (b, c)."""
    stat = 0

    def walk(part, bits, at):
        nonlocal stat
        if isinstance(part, list):
            halves = [walk(p, None if bits is None else bits[i], (*at, i)) for i, p in enumerate(part)]
            return [h[0] for h in halves], [h[1] for h in halves]
        v, code, seen = encode(part, sh(*at[:2]) if callable(sh) else sh, f, bits)
        stat |= seen
        return v, code

    value, code = walk(tensor, random, ())
    return {"value": value, "code": code, "stat": stat}


def each(function, *tensors):
    if isinstance(tensors[0], list):
        return [each(function, *parts) for parts in zip(*tensors, strict=True)]
    return function(*tensors)


def flat(tensor):
    return [x for part in tensor for x in flat(part)] if isinstance(tensor, list) else [tensor]


def planes(tensor):
    return [((b, c), plane) for b, image in enumerate(tensor) for c, plane in enumerate(image)]


def shape(tensor):
    return (len(tensor), *shape(tensor[0])) if isinstance(tensor, list) else ()


def zeros(*sizes):
    return [zeros(*sizes[1:]) for _ in range(sizes[0])] if sizes else 0


def check_codes(i, o):
    k, d = i["k"], i["d"]
    half = 1 << (k - 2)
    for code, value in enumerate(o["value"]):
        flag, m = code >> (k - 1), (code & (2 * half - 1)) - (2 * half if code & half else 0)
        assert value == (m << d if flag else m if -(1 << d) <= m < 1 << d else m * half)


def check_align(i, o):
    assert o["y"] == align(i["x"], i["n"])


def check_reciprocal(i, o):
    k = next(k for k in range(20) if 1 << k >= i["n"])
    assert (o["inv"], o["k"]) == ((2 ** (16 + k) // i["n"] + 1) // 2, k)


def check_encoder(i, o):
    encoded = o["encoded"]
    assert (encoded["value"], encoded["code"], encoded["stat"]) == encode(i["a"], i["sh"], i["f"], i["rnd"])
    assert decode(encoded["code"]) == encoded["value"]


def segment(t):
    return 0 if -8 <= t < 8 else 3 if -512 <= t < 512 else 6


def joined(v, rest):
    return (v << 8) + (rest << segment(v - (rest < 0)))


def encode_rest(a, sh, r):
    """(value, code, contribution to stat, rest)"""
    g = align(a, 17 - sh)
    t = g >> 17
    s = segment(t)
    number = clamp(((g >> s) + 2 * r + 1) >> 9, -64 * 256, 63 * 256 + 127 if s == 6 else MAX64)
    v = ((number + 128) >> 8) << s
    return v, encode(v, 0)[1], g ^ (g >> 63), ((number + 128) & 255) - 128


def check_feedback(i, o):
    v, code, stat, rest = encode_rest(i["a"], i["sh"], i["rnd"])
    assert o["encoded"] == {"value": v, "code": code, "stat": stat}
    assert (o["rest"], o["joined"]) == (rest, joined(v, rest))


def check_dither(i, o):
    def mix(h):
        h &= 0xFFFFFFFF
        h = ((h ^ h >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
        h = ((h ^ h >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
        return h ^ h >> 16

    seed = mix(mix(i["run_seed"] + i["step"]) + 0x9E3779B1 * i["tid"])
    x = i["idx"] ^ seed & 0xFFFFFF
    x = x * 129 % 2**24
    x ^= x >> 5
    x ^= seed >> 24
    x = x * 9 % 2**24
    x ^= x >> 9
    x = x * 2049 % 2**24
    assert (o["seed"], o["x24"], o["r16"]) == (seed, x, x >> 8)


def check_scale(i, o):
    bl = i["stat"].bit_length()
    assert o["e_next"] == clamp(i["e"] + bl - i["f"] - 13 if bl else i["e"] - 4, -64, 127)


def check_conv(i, o):
    (batch, c, y, x), (m, _, ky, kx), (_, _, yo, xo) = shape(i["x"]), shape(i["w"]), shape(i["err"])
    forward, backward, gradient = zeros(batch, m, yo, xo), zeros(batch, c, y, x), zeros(m, c, ky, kx)
    for b, q, n, r, s, u, v in itertools.product(*map(range, (batch, m, c, yo, xo, ky, kx))):
        row, column = r * i["stride"] + u - i["pad"], s * i["stride"] + v - i["pad"]
        if 0 <= row < y and 0 <= column < x:
            forward[b][q][r][s] += i["w"][q][n][u][v] * i["x"][b][n][row][column]
            backward[b][n][row][column] += i["w"][q][n][u][v] * i["err"][b][q][r][s]
            gradient[q][n][u][v] += i["x"][b][n][row][column] * i["err"][b][q][r][s]
    assert (o["forward"], o["backward"], o["weight_gradient"]) == (forward, backward, gradient)


def check_frn(i, o):
    count = len(flat(i["X"][0][0]))
    inv, k = reciprocal(count)
    q, le, mean = zeros(2, 2), zeros(2, 2), zeros(2, 2)
    for (b, c), plane in planes(i["X"]):
        s = min(sum(map(abs, flat(plane))) + max(1, align(count, i["eps_shift"])), MAX64)
        le[b][c] = next(e for e in range(80) if (count << e) // s >= 1 << 15)
        q[b][c] = (count << le[b][c]) // s
    assert (q, le) == (o["q"], o["le"])
    scaled = [[each(lambda v, f=q[b][c]: v * f, p) for c, p in enumerate(image)]
              for b, image in enumerate(i["X"])]
    xhat = encode_all(scaled, lambda b, c: le[b][c] - 8)
    assert (xhat["value"], xhat["code"]) == (o["xhat"], o["xhat_code"])
    residual = i["residual_q20"] or each(lambda v: 0, i["X"])
    y = [[each(lambda v, a, g=i["gamma"][c], h=i["beta"][c]: g * v + (h << 8) + a, p, residual[b][c])
          for c, p in enumerate(image)] for b, image in enumerate(o["xhat"])]
    assert y == o["y"]
    bit = [[each(lambda v, t=i["tau"][c]: int(v >= t << 8 or not i["threshold"]), p)
            for c, p in enumerate(image)] for image in y]
    assert bit == each(int, o["bit"])
    z = [[each(lambda v, h, t=i["tau"][c]: v if h else t << 8, p, bit[b][c]) for c, p in enumerate(image)]
         for b, image in enumerate(y)]
    assert encode_all(z, i["sh_z"]) == o["z"]
    d = each(lambda v, h: v * h, i["dz"], bit)
    wide = zeros(2, 2)
    for (b, c), plane in planes(d):
        sg = sum(map(int.__mul__, flat(plane), flat(o["xhat"][b][c])))
        sb = sum(flat(plane))
        assert (sg, sb, sum(flat(i["dz"][b][c])) - sb) == (o["sg"][b][c], o["sb"][b][c], o["st"][b][c])
        mean[b][c] = (sg * inv + 2 ** (18 + k)) >> (19 + k)
        gl = (i["gamma"][c] * q[b][c]) >> 16
        wide[b][c] = each(lambda v, h, m=mean[b][c], g=gl: g * clamp(
            (v << 4) - ((h > 0) - (h < 0)) * m, -(1 << 17), (1 << 17) - 1), plane, o["xhat"][b][c])
    assert encode_all(wide, lambda b, c: i["sh0"] + le[b][c]) == o["dx"]


def reciprocal(n):
    k = next(k for k in range(20) if 1 << k >= n)
    return (2 ** (16 + k) // n + 1) // 2, k


def check_activation(i, o):
    bias = [align(master, -24 - i["e_x"]) for master in i["master"]]
    biased = [[each(lambda v, a=bias[c]: v + a, p) for c, p in enumerate(image)] for image in i["X"]]
    bit = each(lambda v: int(v > 0), biased)
    d = each(lambda v, h: v * h, i["dz"], bit)
    assert biased == o["biased"] and bit == each(int, o["bit"])
    assert encode_all(each(lambda v: max(v, 0), biased), i["sh"]) == o["relu"]
    assert encode_all(biased, i["sh"]) == o["linear"]
    assert encode_all(d, 0) == o["dx"]
    assert o["sb"] == [[sum(flat(p)) for p in image] for image in d]
    assert o["logits"] == [[clamp(align(p[0][0], i["e_x"] + 8), -(1 << 23), (1 << 23) - 1) for p in image]
                           for image in biased]
    mask = i["shortcut_bit"] or each(lambda v: 1, biased)
    total = each(lambda v, e, h: v + align(e if h else 0, i["sh_shortcut"]), biased, i["shortcut"], mask)
    assert encode_all(total, i["sh"]) == o["error_out"]


def check_pool(i, o):
    size, stride, pad = i["kernel"], i["stride"], i["pad"]
    inv, _ = reciprocal(size * size)
    back, spread = each(lambda v: 0, i["x"]), each(lambda v: 0, i["x"])
    for (b, c), plane in planes(i["x"]):
        for r, s in itertools.product(range(len(o["max"][0][0])), range(len(o["max"][0][0][0]))):
            taps = [(u * size + v, r * stride + u - pad, s * stride + v - pad)
                    for u, v in itertools.product(range(size), repeat=2)]
            taps = [t for t in taps if 0 <= t[1] < len(plane) and 0 <= t[2] < len(plane[0])]
            best = max(plane[row][column] for _, row, column in taps)
            index, row, column = next(t for t in taps if plane[t[1]][t[2]] == best)
            assert (o["max"][b][c][r][s], o["index"][b][c][r][s]) == (best, index)
            assert o["average"][b][c][r][s] == inv * sum(plane[t[1]][t[2]] for t in taps)
            error = i["dz"][b][c][r][s]
            back[b][c][row][column] += error
            for _, u, v in taps:
                spread[b][c][u][v] += error * inv
    assert (back, spread) == (o["max_backward"], o["average_backward"])


def check_softmax(i, o):
    table = [round(32768 * 2 ** (-n / 256)) for n in range(256)]
    for row, label, p, error, square in zip(i["logits"], i["labels"], o["p"], o["error"], o["squared_error"],
                                            strict=True):
        t = [(min(max(row) - x, 32767) * 369) >> 8 for x in row]
        power = [table[n & 255] >> min(n >> 8, 16) for n in t]
        assert p == [(e << 16) // sum(power) for e in power]
        assert error == [v - 65536 * (n == label) for n, v in enumerate(p)]
        assert square == [v - 256 * (n == label) for n, v in enumerate(row)]
    assert encode_all(o["error"], 4) == o["encoded"]
    assert encode_all(o["squared_error"], 0) == o["squared_encoded"]


def check_weight_update(i, o):
    sh = i["shifts"]
    t = each(lambda g, w, v: ((i["momentum"] * v) << 8) + align(g * i["inv"], sh[0])
             + (align(w, sh[2]) if i["decay"] else 0), i["dw"], i["w"], i["v"])
    assert encode_all(t, sh[1], 16, i["rnd_v"]) == o["v_next"]
    if i["rest"] is None:
        u = each(lambda w, v: (w << 16) - align(i["lm"] * v, sh[3]), i["w"], o["v_next"]["value"])
        assert encode_all(u, sh[4], 16, i["rnd_w"]) == o["w_next"]
        return
    u = each(lambda w, rest, v: (joined(w, rest) << 8) - align(i["lm"] * v, sh[3]), i["w"], i["rest"], o["v_next"]["value"])
    found = each(lambda a, r: encode_rest(a, sh[4], r >> 8), u, i["rnd_w"])
    assert each(lambda four: four[0], found) == o["w_next"]["value"]
    assert each(lambda four: four[1], found) == o["w_next"]["code"]
    assert each(lambda four: four[3], found) == o["rest_next"]
    assert functools.reduce(operator.or_, (four[2] for four in flat(found))) == o["w_next"]["stat"]


def check_parameter_update(i, o):
    for n, (p, v, total) in enumerate(zip(i["master"], i["velocity"], i["sum"], strict=True)):
        gradient = clamp(align(total * i["inv"], i["shift"]), -(1 << 31), (1 << 31) - 1)
        v = clamp((i["momentum"] * v >> 8) + gradient, -(1 << 31), (1 << 31) - 1)
        p = clamp(p - align(v * i["lm"], -i["le_lr"]), -(1 << 27), (1 << 27) - 1)
        assert (o["master_next"][n], o["velocity_next"][n]) == (p, v)


@pytest.mark.parametrize("operation", vectors.OPERATIONS)
def test_replay(files, operation):
    cases = files[operation]
    assert len(cases) >= 5
    for case in cases:
        globals()[f"check_{operation}"](case["in"], case["out"])


def test_files_are_a_function_of_the_seed():
    assert vectors.generate(3) == vectors.generate(3)
    assert vectors.generate(3)["encoder"] != vectors.generate(4)["encoder"]


def test_vectors_reach_the_corners(files):
    encoded = [case["out"]["encoded"]["value"] for case in files["encoder"]]
    assert {-4096, 4032} < set(encoded) and len(set(encoded)) > 150
    bits = {bit for case in files["frn"] for bit in flat(case["out"]["bit"])}
    assert bits == {0, 1}
    pairs = ("frn", "dx"), ("frn", "z"), ("weight_update", "v_next"), ("weight_update", "w_next")
    for name, tensor in pairs:
        distinct = {value for case in files[name] for value in flat(case["out"][tensor]["value"])}
        assert len(distinct) > 60, (name, tensor)
