"""Models of ECP5 cells against those of Yosys' own library, by proof: combinational ones for all inputs, registers and memories by
induction over all of their states.

Yosys' TRELLIS_COMB has three faults, which are left out by name: in CCU2 mode nothing drives FCO (two of ours in a row are
compared with Yosys' CCU2C instead); its distributed RAM takes INITVAL in the order of addresses, where nextpnr writes that of a
LUT, and knows no inverted write clock or enable (four of ours behind a TRELLIS_RAMW are compared with Yosys' TRELLIS_DPR16X4). Its
TRELLIS_FF knows no SD (a flip-flop that takes M is compared with one whose DI is joined to that).
"""

import dataclasses
import itertools
import random
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gradloom.verif.ecp5.cell_faults import Fault, prefixed
from gradloom.verif.synth import yosys_path

__all__ = ["PAIRS", "Pair", "prove"]

_LIBRARY = "+/lattice/cells_sim_ecp5.v"
_SCRIPT = """read_verilog -DNO_INCLUDES {library}
read_verilog -sv ours.v
setattr -mod -unset lib_whitebox *
setattr -mod -unset blackbox *
hierarchy -check -top pairs
proc
flatten
memory_map
opt_clean
clk2fflogic
opt_clean
sat {induction} {proofs}
"""
_LUT = ["A", "B", "C", "D"]


@dataclasses.dataclass(frozen=True)
class Pair:
    """A cell of ours and one of Yosys' that do the same.

    Parameters
    ----------
    kind : :class:`str`
        Of cell and mode.
    theirs, ours : :class:`str`
        Instances whose outputs are nets ``t@_<output>`` and ``o@_<output>``; ``@`` is a number of their own. Names of our modules
        have ``$`` before them.
    outputs : mapping of name to width
    states : :class:`int`
        Words of a memory whose contents stay equal, too.
    memories : tuple of pairs of :class:`str`
        Where they lie in theirs and ours, with ``{}`` for the word.
    """

    kind: str
    theirs: str
    ours: str
    outputs: dict[str, int]
    states: int = 0
    memories: tuple[tuple[str, str], ...] = ()


def _text(value: int | str) -> str:
    return f"16'd{value}" if isinstance(value, int) else f'"{value}"'


def _instance(kind: str, name: str, ports: dict[str, str], **parameters: int | str) -> str:
    given = ", ".join(f".{key}({_text(value)})" for key, value in parameters.items())
    return f"{kind} #({given}) {name}({', '.join(f'.{port}({net})' for port, net in ports.items())});"


def _same(kind: str, inputs: Sequence[str], outputs: Sequence[str], mode: str = "", **parameters: int | str) -> Pair:
    """The same cell on both sides; input number n is bit n of ``in``."""
    ports = {pin: f"in[{bit}]" for bit, pin in enumerate(inputs)}
    return Pair(kind + mode,
                _instance(kind, "t@", {**ports, **{pin: f"t@_{pin}" for pin in outputs}}, **parameters),
                _instance(f"${kind}", "o@", {**ports, **{pin: f"o@_{pin}" for pin in outputs}}, **parameters),
                dict.fromkeys(outputs, 1))


def _luts() -> list[Pair]:
    """Every bit of a table alone, and some tables."""
    draw = random.Random(1)
    tables = [1 << bit for bit in range(16)] + [draw.getrandbits(16) for _ in range(4)]
    return [_same("LUT4", _LUT, ["Z"], INIT=table) for table in tables] + [
        _same("TRELLIS_COMB", [*_LUT, "M", "F1", "FXA", "FXB"], ["F", "OFX"], INITVAL=table, IS_Z1=wide)
        for table in tables for wide in (0, 1)] + [
        _same("PFUMX", ["ALUT", "BLUT", "C0"], ["Z"]), _same("L6MUX21", ["D0", "D1", "SD"], ["Z"])]


ADDER = 0x96AA
"""INIT of Yosys' carry chains; nextpnr makes others of it where inputs are constant, and those of its own before and behind."""
_CARRY_TABLES = (ADDER, 0x000A, 0xFFFF, 0x0000, 0x3C00, 0x5AAA, 0x66AA, 0xAAAA, 0xCC00, 0xF000, 0x1234, 0xC3A5)


def _carries() -> list[Pair]:
    found = []
    inputs = ["CIN", *(f"{pin}{half}" for half in (0, 1) for pin in _LUT)]
    nets = {pin: f"in[{bit}]" for bit, pin in enumerate(inputs)}
    for low, (inject0, inject1) in itertools.product(_CARRY_TABLES, itertools.product(("NO", "YES"), repeat=2)):
        high = _CARRY_TABLES[(_CARRY_TABLES.index(low) * 5 + 1) % len(_CARRY_TABLES)] if low != ADDER else ADDER
        pair = _same("CCU2C", inputs, ["S0", "S1", "COUT"], INIT0=low, INIT1=high, INJECT1_0=inject0, INJECT1_1=inject1)
        halves = [_instance("$TRELLIS_COMB", f"o@_half{half}",
                            {**{pin: nets[f"{pin}{half}"] for pin in _LUT}, "F": f"o@_S{half}",
                             "FCI": nets["CIN"] if half == 0 else "o@_middle", "FCO": "o@_middle" if half == 0 else "o@_COUT"},
                            MODE="CCU2", INITVAL=table, CCU2_INJECT1=inject)
                  for half, table, inject in ((0, low, inject0), (1, high, inject1))]
        found += [pair, dataclasses.replace(pair, kind="TRELLIS_COMB carry", ours="wire o@_middle; " + " ".join(halves))]
    return found


def _registers() -> list[Pair]:
    found = []
    for clk, ce, lsr, mode, value in itertools.product(("CLK", "INV"), ("1", "0", "CE", "INV"), ("LSR", "INV"),
                                                       ("LSR_OVER_CE", "ASYNC"), ("RESET", "SET")):
        pair = _same("TRELLIS_FF", ["CLK", "LSR", "CE", "DI", "M"], ["Q"], CLKMUX=clk, CEMUX=ce, LSRMUX=lsr, SRMODE=mode,
                     REGSET=value)
        # The pin M in the place of DI, as theirs has nothing else.
        other = dataclasses.replace(pair, theirs=pair.theirs.replace(".DI(in[3])", ".DI(in[4])"),
                                    ours=pair.ours.replace("#(", '#(.SD("0"), '))
        found += [pair, other] if ce == "CE" else [pair]
    return found


def _lut_order(contents: int) -> int:
    """16 words of a bit in the order in which a LUT has them whose input D is the lowest bit of the address, then B, C, A."""
    return sum((contents >> word & 1) << ((word & 1) << 3 | (word >> 2 & 1) << 2 | (word >> 1 & 1) << 1 | word >> 3)
               for word in range(16))


def _memories() -> list[Pair]:
    nets = {"DI": "in[3:0]", "WAD": "in[7:4]", "RAD": "in[11:8]", "WRE": "in[12]", "WCK": "in[13]"}
    contents, found = 0x0123_4567_89AB_CDEF ^ 0xF00F << 20, []
    for wre, wck in (("WRE", "WCK"), ("INV", "INV"), ("1", "WCK"), ("0", "WCK")):
        theirs = _instance("TRELLIS_DPR16X4", "t@", {**nets, "DO": "t@_DO"}, WREMUX=wre, WCKMUX=wck)
        theirs = theirs.replace("#(", f"#(.INITVAL(64'd{contents}), ")
        ours = theirs.replace("TRELLIS_DPR16X4", "$TRELLIS_DPR16X4").replace("t@", "o@")
        states = 0 if wre == "0" else 16  # what nothing writes is no state
        found.append(Pair("TRELLIS_DPR16X4", theirs, ours, {"DO": 4}, states, (("t@.mem[{}]", "o@.bits.mem[{}]"),)))
        address = {"D0": "in[4]", "B0": "in[5]", "C0": "in[6]", "A0": "in[7]"}
        data = {"C1": "in[0]", "A1": "in[1]", "D1": "in[2]", "B1": "in[3]"}
        carried = {pin: f"o@_{pin}" for pin in (*(f"WADO{bit}" for bit in range(4)), *(f"WDO{bit}" for bit in range(4)))}
        parts = [f"wire {', '.join(carried.values())};", _instance("$TRELLIS_RAMW", "o@_write", {**address, **data, **carried})]
        for bit in range(4):
            column = sum((contents >> (4 * word + bit) & 1) << word for word in range(16))
            ports = {"D": "in[8]", "B": "in[9]", "C": "in[10]", "A": "in[11]", "WD": f"o@_WDO{bit}", "WRE": nets["WRE"],
                     "WCK": nets["WCK"], "F": f"o@_DO[{bit}]", **{f"WAD{n}": f"o@_WADO{n}" for n in range(4)}}
            parts.append(_instance("$TRELLIS_COMB", f"o@_bit{bit}", ports, MODE="DPRAM", INITVAL=_lut_order(column), WREMUX=wre,
                                   WCKMUX=wck))
        found.append(Pair("TRELLIS_COMB ram", theirs, " ".join(parts), {"DO": 4}, states, tuple(
            (f"t@.mem[{{}}][{bit}]", f"o@_bit{bit}.distributed.bits.mem[{{}}]") for bit in range(4))))
    return found


PAIRS = [*_luts(), *_carries(), *_registers(), *_memories()]
"""All that Yosys has a model of, with every value of every parameter that our netlists hold."""


def _module(pairs: Sequence[Pair], prefix: str) -> tuple[str, str]:
    """A module of pairs, and what is to be proved of it as options of Yosys' ``sat``."""
    body, proofs = [], []
    for number, pair in enumerate(pairs):
        for output, width in pair.outputs.items():
            body += [f"(* keep *) wire [{width - 1}:0] {side}{number}_{output};" for side in "to"]
            proofs.append(f"-prove t{number}_{output} o{number}_{output}")
        body += [text.replace("@", str(number)).replace("$", prefix) for text in (pair.theirs, pair.ours)]
        for theirs, ours in pair.memories:
            proofs += [" ".join(["-prove", *(side.format(word).replace("@", str(number)) for side in (theirs, ours))])
                       for word in range(pair.states)]
    return "\n".join(["module pairs(input [13:0] in);", *body, "endmodule", ""]), " ".join(proofs)


def prove(pairs: Sequence[Pair], faults: Sequence[Fault] = ()) -> bool:
    """Whether the pairs are equal, with faults in our models."""
    module, proofs = _module(pairs, "ours_")
    sequential = any(pair.memories or pair.kind == "TRELLIS_FF" for pair in pairs)
    script = _SCRIPT.format(library=_LIBRARY, induction="-tempinduct -maxsteps 4" if sequential else "", proofs=proofs)
    with tempfile.TemporaryDirectory(prefix="gradloom-cells-") as folder:
        (Path(folder) / "ours.v").write_text(prefixed("ours_", faults) + module)
        (Path(folder) / "prove.ys").write_text(script)
        done = subprocess.run([yosys_path(), "prove.ys"], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    tail = "\n".join(done.stdout.splitlines()[-20:])
    # Its status says nothing more: on a crowded machine the packaged Yosys may end with another one after its last command.
    assert "End of script." in done.stdout, f"Yosys failed with status {done.returncode}:\n{tail}"
    good, bad = "SUCCESS!" in done.stdout, "FAIL!" in done.stdout
    assert good != bad, tail
    return good
