"""Disturbed surroundings of a good program: memory, bus, window, registers, time."""

from gradloom.contracts.regmap import REGISTERS, Access, ErrorCode, offset, register
from gradloom.verif.fuzzing.cases import Draw, Event, Trouble, edges
from gradloom.verif.fuzzing.outcomes import BUS, HEADER, PROGRAM

__all__ = ["abort", "bus", "data", "memory", "registers", "start", "watchdog", "window"]

_NONE = frozenset({ErrorCode.NONE})
_CODE_OF_MOST, _CODE_OF_LEAST = 0x3F, 0x40
"""Codes of 4032 and -4096, the largest magnitudes."""


def data(draw: Draw) -> Trouble:
    """What the step reads: a tensor, the labels, the hyperparameters, the exponents."""
    rng, scene = draw.rng, draw.scene
    what = rng.choice(("tensor", "tensor", "labels", "hyper", "exponents"))
    if what == "exponents":
        chosen = {rng.randrange(len(scene.exponents)): rng.choice((-32768, 32767, -64, 127, 0, -1, rng.randrange(-300, 300)))
                  for _ in range(rng.choice((1, 1, 4)))}
        return draw.trouble("data", what, f"exponents {chosen}", exponents=chosen)
    keys = {"labels": [("input", "labels")], "hyper": [("", "hyper")], "tensor": list(scene.plan.memory.regions)}[what]
    key = rng.choice(keys)
    region = scene.plan.memory[key]
    size = region.data_bytes()
    filling = rng.choice(("noise", "most", "least", "ones", "flip", "ends"))
    found = bytearray(scene.image[scene.base + region.address :][:size])
    if filling == "flip":
        found[rng.randrange(size)] ^= 1 << rng.randrange(8)
    elif filling == "ends":
        # 64-bit words at the ends of their range: sums of gradients and of weight gradients.
        found[:] = b"".join(rng.choice((b"\xff" * 7 + b"\x7f", bytes(7) + b"\x80")) for _ in range(size // 8 + 1))[:size]
    else:
        found[:] = {"noise": rng.randbytes(size), "most": bytes([_CODE_OF_MOST]) * size, "least": bytes([_CODE_OF_LEAST]) * size,
                    "ones": b"\xff" * size}[filling]
    return draw.trouble("data", what, f"{filling} in {key[0] or 'the machine'}/{key[1]}",
                        writes=((scene.base + region.address, bytes(found)),))


def bus(draw: Draw) -> Trouble:
    """Error answers in any range of bytes: a tensor, a piece of the program, any byte."""
    rng, scene = draw.rng, draw.scene
    faults, texts = [], []
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place = rng.choice(("tensor", "program", "any"))
        if place == "tensor":
            region = scene.plan.memory[rng.choice(list(scene.plan.memory.regions))]
            first, last = scene.base + region.address, scene.base + region.address + region.data_bytes()
        elif place == "program":
            first, last = scene.plan.program_address, scene.plan.program_address + len(scene.program)
        else:
            first, last = scene.base, scene.limit
        if rng.random() < 0.7:
            first = rng.randrange(first, last)
            last = min(last, first + rng.choice((1, 1, 2, 3, 8, 64, 700)))
        decode = rng.random() < 0.5
        faults.append((first, last, decode))
        texts.append(f"{'DECERR' if decode else 'SLVERR'} in {first:#x}..{last:#x}")
    return draw.trouble("bus", f"{len(faults)} ranges", ", ".join(texts), faults=tuple(faults), codes=BUS | _NONE, altered=False,
                        dram=draw.dram(0.5))


def window(draw: Draw) -> Trouble:
    """A window that ends anywhere, or nowhere."""
    rng, scene = draw.rng, draw.scene
    unit = rng.choice((1, 2, 4, 16, 64, 64))

    def place(first: int, last: int) -> int:
        return rng.randrange(first, last) // unit * unit

    how = rng.choice(("base", "base", "base", "limit", "both", "larger", "any"))
    base, limit = scene.base, scene.limit
    if how in ("base", "both"):
        base = place(scene.base, scene.limit)
    if how in ("limit", "both"):
        limit = place(scene.base, scene.limit)
    if how == "larger":
        base, limit = place(0, scene.base + 1), rng.choice((place(scene.limit, len(scene.image)), 0xFFFFFFFF, 0x80000000))
    if how == "any":
        base, limit = rng.getrandbits(rng.randrange(1, 33)), rng.getrandbits(rng.randrange(1, 33))
    codes = _NONE | {ErrorCode.PROGRAM_ADDRESS, ErrorCode.READ_WINDOW, ErrorCode.WRITE_WINDOW}
    return draw.trouble("window", how, f"window {base:#x}..{limit:#x}", registers={"WINDOW_BASE": base, "WINDOW_LIMIT": limit},
                        codes=codes, altered=False)


def abort(draw: Draw) -> Trouble:
    """The host stops the program at any cycle, once or again, and tries to start the machine meanwhile."""
    rng = draw.rng
    control = register("CONTROL")
    enable, stop, go = (control.field(name).mask for name in ("irq_enable", "abort", "start"))
    dram = draw.dram(0.5)
    span = int(draw.cycles * (1 if dram.stall == 0 else 2))
    first = rng.choice((rng.randrange(60), rng.randrange(span), rng.randrange(span)))
    how = rng.choice(("once", "once", "twice", "start", "with start"))
    events = [Event(first, offset("CONTROL"), stop | enable | (go if how == "with start" else 0), aborts=True,
                    starts=how == "with start")]
    if how in ("twice", "start"):
        # A start behind the end begins the step anew, on what the first one left.
        events.append(Event(first + rng.choice((1, 8, 16, 50)), offset("CONTROL"), (stop if how == "twice" else go) | enable,
                            aborts=how == "twice", starts=how == "start"))
    return draw.trouble("abort", how, f"abort at cycle {first}, {how}", events=tuple(events), codes=_NONE | {ErrorCode.ABORTED},
                        altered=how in ("start", "with start"), dram=dram, most=60 * draw.cycles, clear=rng.random() < 0.4)


def registers(draw: Draw) -> Trouble:
    """Reads and writes of any register at any time; the run is not disturbed."""
    rng = draw.rng
    events = []
    for _ in range(rng.choice((1, 3, 10, 30))):
        entry = rng.choice(REGISTERS)
        place, value = entry.offset, rng.choice((None, rng.getrandbits(32), rng.choice(edges(32, 0))))
        if rng.random() < 0.05:
            place = rng.choice([at for at in range(0, 1 << 16, 4) if at not in _PLACES])
            events.append(Event(rng.randrange(draw.cycles), place, value, refused=True))
            continue
        if value is None:
            events.append(Event(rng.randrange(draw.cycles), place, None, idle_only=entry.access in (Access.IDLE, Access.RO_IDLE)))
            continue
        if entry.name == "CONTROL":
            # Everything but an abort; a start is ignored while the program runs.
            value = value & ~register("CONTROL").field("abort").mask & ~register("CONTROL").field("start").mask
        events.append(Event(rng.randrange(draw.cycles), place, value, refused=entry.access in (Access.RO, Access.RO_IDLE),
                            idle_only=entry.access in (Access.RW_IDLE, Access.IDLE)))
    events.sort(key=lambda event: event.cycle)
    return draw.trouble("registers", f"{len(events)} accesses", f"{len(events)} accesses while the step runs", events=tuple(events),
                        codes=_NONE, altered=False, most=60 * draw.cycles)


_PLACES = {entry.offset for entry in REGISTERS}


def watchdog(draw: Draw) -> Trouble:
    """Any patience, on memories of any pace."""
    rng = draw.rng
    value = rng.choice((0, 1, 2, 3, rng.randrange(4, 40), rng.randrange(40, 400), 0xFFFFFFFF, 1 << rng.randrange(32)))
    codes = _NONE | ({ErrorCode.WATCHDOG} if value else set())
    return draw.trouble("watchdog", "value", f"WATCHDOG = {value}", registers={"WATCHDOG": value}, codes=codes, altered=False,
                        dram=draw.dram(0.5), most=60 * draw.cycles)


def memory(draw: Draw) -> Trouble:
    """A memory of any pace, and no trouble at all; the good run behind it has another one."""
    rng = draw.rng
    dram, other = draw.dram(1.0), draw.dram(1.0)
    return draw.trouble("memory", "pace", f"{dram}, then {other}", dram=dram, good_dram=other, codes=_NONE, altered=False,
                        most=60 * draw.cycles, clear=rng.random() < 0.5)


def start(draw: Draw) -> Trouble:
    """Where the program is, which step it is, and how many there are."""
    rng, scene = draw.rng, draw.scene
    name = rng.choice(("PROGRAM", "STEPS", "STEP"))
    present = {"PROGRAM": scene.plan.program_address, "STEPS": 1, "STEP": 1}[name]
    value = rng.choice(edges(32, present, (scene.limit, scene.limit - 64, scene.base, 64 * rng.randrange(scene.limit // 64))))
    if name == "STEPS":
        value = rng.choice((0, 2, 3, value))
    codes = {"PROGRAM": HEADER, "STEPS": PROGRAM | _NONE, "STEP": PROGRAM | _NONE}[name]
    return draw.trouble("start", name, f"{name} = {value:#x}, was {present:#x}", registers={name: value}, codes=codes,
                        instructions=None)
