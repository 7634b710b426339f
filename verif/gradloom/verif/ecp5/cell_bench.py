"""Models of ECP5 cells in Verilator against what Lattice's documents say of them, written down a second time in Python: block RAM,
multiplier, pads with their registers and the PLL, of which Yosys has no models."""

import dataclasses
import itertools
import random
import re
from collections.abc import Iterator, Sequence

from gradloom.verif.ecp5.cell_faults import Fault, prefixed
from gradloom.verif.ecp5.verilated import run_bench

__all__ = ["CASES", "Case", "run_cases"]


@dataclasses.dataclass(frozen=True)
class Case:
    """A cell with its parameters, and rows of inputs and what its outputs are after a rising edge of its clock.

    Parameters
    ----------
    inputs, outputs : mapping of port to width
        The first input is the highest part of a row.
    clocks : tuple of :class:`str`
        Ports that the clock is joined to.
    rows : sequence of (inputs, outputs)
    held : :class:`bool`
        Outputs move with the clock alone, so that new inputs do not show before it.
    """

    kind: str
    name: str
    parameters: str
    inputs: dict[str, int]
    outputs: dict[str, int]
    clocks: tuple[str, ...]
    rows: Sequence[tuple[int, int]]
    held: bool = False


def _pack(widths: dict[str, int], values: dict[str, int]) -> int:
    row = 0
    for port, width in widths.items():
        row = row << width | values[port]
    return row


_RAM_INPUTS = {"DIA": 18, "ADA": 14, "CEA": 1, "WEA": 1, "RSTA": 1, "CSA": 3, "DIB": 18, "ADB": 14, "CEB": 1, "RSTB": 1, "CSB": 3}
_RAM_OUTPUTS = {"DOA": 18, "DOB": 18}


class _BlockRam:
    """2048 bytes of 9 bits, as the pages of Lattice's memory guide show them for each width."""

    def __init__(self, contents: Sequence[int]) -> None:
        self.bytes = list(contents)

    @staticmethod
    def places(width: int, address: int) -> list[tuple[int, int]]:
        """(byte, bit) of each data bit of a word, lowest first."""
        if width >= 9:
            count = width // 9
            first = address // (8 * count) * count
            return [(first + bit // 9, bit % 9) for bit in range(width)]
        return [(address // 8, address % 8 // width * width + bit) for bit in range(width)]

    def read(self, width: int, address: int) -> int:
        return sum((self.bytes[byte] >> at & 1) << bit for bit, (byte, at) in enumerate(self.places(width, address)))

    def enabled(self, width: int, address: int, data: int) -> dict[tuple[int, int], int]:
        """What a write puts where. Widths of several bytes have an enable for each in the lowest address bits."""
        return {place: data >> bit & 1 for bit, place in enumerate(self.places(width, address))
                if width < 18 or address >> (bit // 9) & 1}

    def write(self, puts: dict[tuple[int, int], int]) -> None:
        for (byte, bit), value in puts.items():
            self.bytes[byte] = self.bytes[byte] & ~(1 << bit) | value << bit


def _ram_rows(width_a: int, width_b: int, mode: str, contents: Sequence[int], seed: int) -> Iterator[tuple[int, int]]:
    draw, ram = random.Random(seed), _BlockRam(contents)
    shown_a = shown_b = 0
    near = draw.getrandbits(14)
    for _ in range(1000):
        if draw.random() < 0.05:
            near = draw.getrandbits(14)
        values = {port: draw.getrandbits(width) for port, width in _RAM_INPUTS.items()}
        # Few addresses, so that both ports meet and writes are read back; seldom not chosen, seldom in reset.
        values |= {port: near ^ draw.getrandbits(7) for port in ("ADA", "ADB")}
        values |= {port: int(draw.random() < share) for port, share in (("CEA", 0.9), ("CEB", 0.9), ("RSTA", 0.03), ("RSTB", 0.03))}
        values |= {port: draw.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4)) for port in ("CSA", "CSB")}
        data = values["DIA"] | values["DIB"] << 18
        puts = ram.enabled(width_a, values["ADA"], data) if values["CEA"] and not values["CSA"] and values["WEA"] else {}
        if values["RSTA"]:
            shown_a = 0
        elif values["CEA"] and not values["CSA"] and (not values["WEA"] or mode == "READBEFOREWRITE"):
            shown_a = ram.read(width_a, values["ADA"])
        if values["RSTB"]:
            shown_b = 0
        elif values["CEB"] and not values["CSB"]:
            met = sum((place in puts) << bit for bit, place in enumerate(ram.places(width_b, values["ADB"])))
            shown_b = ram.read(width_b, values["ADB"]) ^ met
        ram.write(puts)
        outputs = {"DOA": shown_b & 0x3FFFF, "DOB": shown_b >> 18} if width_b == 36 else {"DOA": shown_a & 0x3FFFF, "DOB": shown_b}
        yield _pack(_RAM_INPUTS, values), _pack(_RAM_OUTPUTS, outputs)


def _rams() -> list[Case]:
    found = []
    pairs = [(1, 1), (2, 2), (4, 4), (9, 9), (18, 18), (36, 36), (18, 1), (9, 18), (36, 18), (36, 9)]
    for number, (width_a, width_b) in enumerate(pairs):
        draw = random.Random(number)
        # Every other one wakes up with a table.
        contents = [draw.getrandbits(9) if number % 2 == 0 else 0 for _ in range(2048)]
        mode = "NORMAL" if width_a == 36 or width_b == 1 else "READBEFOREWRITE"
        parameters = [f".DATA_WIDTH_A({width_a}), .DATA_WIDTH_B({width_b}), .WRITEMODE_A(\"{mode}\")"]
        for row in range(64):
            words = [contents[2 * word] | contents[2 * word + 1] << 9 for word in range(16 * row, 16 * row + 16)]
            value = sum(word << (20 * place) for place, word in enumerate(words))
            parameters += [f".INITVAL_{row:02X}(320'h{value:x})"] if value else []
        reset = "SYNC" if number % 3 == 2 else "ASYNC"
        parameters.append(f".RESETMODE(\"{reset}\")")
        name = f"{width_a} and {width_b} bits, {mode}, {reset}"
        found.append(Case("DP16KD", name, ", ".join(parameters), _RAM_INPUTS, _RAM_OUTPUTS, ("CLKA", "CLKB"), list(
            _ram_rows(width_a, width_b, mode, contents, number)), reset == "SYNC"))
    return found


def _multiplier(*registers: str) -> Case:
    """With registers for both operands (``INPUT``), for the product (``OUTPUT``), or without."""
    inputs = {"A": 18, "B": 18, "SRIA": 18, "SRIB": 18, "SIGNEDA": 1, "SIGNEDB": 1, "SOURCEA": 1, "SOURCEB": 1}
    inputs |= {"CE0": 1, "RST0": 1} if registers else {}
    draw, rows = random.Random(5), []
    operands, product = [0, 0], 0
    edges = (0, 1, 0x1FFFF, 0x20000, 0x20001, 0x3FFFF)
    for number in range(2000):
        values = {port: draw.choice(edges) if width == 18 and draw.random() < 0.3 else draw.getrandbits(width)
                  for port, width in inputs.items()}
        values |= {f"SOURCE{side}": int(number % 8 == 7 and values[f"SOURCE{side}"]) for side in "AB"}
        factors = []
        for side in "AB":
            operand = values[f"SRI{side}" if values[f"SOURCE{side}"] else side]
            factors.append(operand - (1 << 18) if values[f"SIGNED{side}"] and operand >> 17 else operand)
        if registers:
            # The first row resets: nothing is known before it.
            values |= {"RST0": int(number == 0 or draw.random() < 0.05), "CE0": int(draw.random() < 0.8)}
        inside = operands if "INPUT" in registers else factors
        before = inside[0] * inside[1]
        if "INPUT" in registers and (values["RST0"] or values["CE0"]):
            operands = [0, 0] if values["RST0"] else factors
            inside = operands
        if "OUTPUT" not in registers:
            product = inside[0] * inside[1]
        elif values["RST0"] or values["CE0"]:
            product = 0 if values["RST0"] else before
        rows.append((_pack(inputs, values), product & (1 << 36) - 1))
    used = [*(["INPUTA", "INPUTB"] if "INPUT" in registers else ()), *("OUTPUT",) * ("OUTPUT" in registers)]
    return Case("MULT18X18D", " ".join(["all signs", *registers]), ", ".join(f".REG_{register}_CLK(\"CLK0\")" for register in used),
                inputs, {"P": 36}, ("CLK0",) if registers else (), rows, bool(registers))


def _pads() -> list[Case]:
    """A pad whose level and whose drive come from the fabric or from its registers."""
    inputs = dict.fromkeys(("PADI", "I", "T", "IOLDO", "IOLTO"), 1)
    found = []
    for direction, level, twice, drive in itertools.product(("INPUT", "OUTPUT", "BIDIR"), ("PADDO", "IOLDO"), ("PADDO", "IOLDO"),
                                                            ("PADDT", "IOLTO")):
        rows = []
        for given in range(1 << len(inputs)):
            pad, fabric, off, register, register_off = (given >> bit & 1 for bit in (4, 3, 2, 1, 0))
            out = register if "IOLDO" in (level, twice) else fabric
            rows.append((given, out << 2 | (direction == "INPUT" or (register_off if drive == "IOLTO" else off)) << 1 | pad))
        parameters = {"DIR": direction, "DATAMUX_OREG": level, "DATAMUX_ODDR": twice, "TRIMUX_TSREG": drive}
        found.append(Case("TRELLIS_IO", f"{direction} {level} {twice} {drive}",
                          ", ".join(f'.{key}("{value}")' for key, value in parameters.items()), inputs,
                          {"PADO": 1, "PADT": 1, "O": 1}, (), rows))
    return found


def _pad_registers(mode: str) -> Case:
    """The clock is an input as the others are: what goes out in each half of a cycle is looked at."""
    inputs = dict.fromkeys(("CLK", "PADDI", "TXDATA0", "TXDATA1", "TSDATA0"), 1)
    draw, rows = random.Random(7), []
    given, kept = 0, 0
    for number in range(400):
        clk = number % 2
        # Data change while the clock is low; what they were is there before the edge.
        given = given if clk else draw.getrandbits(4)
        if clk:
            kept = given
        pad, first, second, off = (kept >> bit & 1 for bit in (3, 2, 1, 0))
        out = first if clk or mode == "IREG_OREG" else second
        if number:
            rows.append((clk << 4 | given, pad << 2 | out << 1 | off))
    return Case("IOLOGIC", mode, f'.MODE("{mode}")', inputs, {"INFF": 1, "IOLDO": 1, "IOLTO": 1}, (), rows)


def _pll() -> Case:
    """Locked from its 16th cycle with power on; off again, and locked anew."""
    rows, cycles = [], 0
    for number in range(160):
        clk, off = number % 2, int(number < 8 or 80 <= number < 84)
        if clk:
            cycles = 0 if off else min(16, cycles + 1)
        if number:
            rows.append((clk << 1 | off, clk << 2 | clk << 1 | (cycles == 16)))
    return Case("EHXPLLL", "power", "", {"CLKI": 1, "OFF": 1}, {"CLKOP": 1, "CLKOS": 1, "LOCK": 1}, (), rows)


CASES = [*_rams(), _multiplier(), _multiplier("INPUT"), _multiplier("OUTPUT"), _multiplier("INPUT", "OUTPUT"), *_pads(),
         _pad_registers("IREG_OREG"), _pad_registers("IDDRX1_ODDRX1"), _pll()]
"""Every value of every parameter that our netlists hold."""


def _testbench(number: int, prefix: str, case: Case) -> str:
    width, wide = sum(case.inputs.values()), sum(case.outputs.values())
    joined = ", ".join([*(f".{port}(i_{port})" for port in case.inputs), *(f".{port}(o_{port})" for port in case.outputs),
                        *(f".{port}(clk)" for port in case.clocks)])
    nets = [f"  wire [{bits - 1}:0] {side}_{port};" for side, ports in (("i", case.inputs), ("o", case.outputs))
            for port, bits in ports.items()]
    return "\n".join([
        f"module bench{number};", f"  reg [{width - 1}:0] given;", "  reg clk = 0;",
        f"  reg [{wide - 1}:0] wanted, last;", f"  reg [{width + wide - 1}:0] rows[0:{len(case.rows) - 1}];", 
        "  integer row, bad = -1;",
        *nets, f"  assign {{{', '.join(f'i_{port}' for port in case.inputs)}}} = given;",
        f"  {prefix}{case.kind} #({case.parameters}) cell_({joined});",
        "  initial begin", f"    $readmemh(\"{number}.hex\", rows);",
        f"    for (row = 0; row < {len(case.rows)}; row = row + 1) begin",
        *(["      last = wanted;"] if case.held else []), "      {given, wanted} = rows[row];",
        *([f"      #1 if (row > 0 && {{{', '.join(f'o_{port}' for port in case.outputs)}}} !== last && bad < 0) bad = row;"]
          if case.held else []), "      #1 clk = 1;",
        f"      #1 if ({{{', '.join(f'o_{port}' for port in case.outputs)}}} !== wanted && bad < 0) bad = row;", "      clk = 0;",
        "      #1;", "    end", f"    $display(\"BENCH {number} %0d\", bad);", "  end", "endmodule", ""])


def run_cases(cases: Sequence[tuple[Case, Sequence[Fault]]]) -> list[int | None]:
    """First row of each case whose outputs are others, :class:`None` if there is none; with the faults of the case in the models.
    One build of Verilator for all."""
    texts, files = [], {}
    for number, (case, faults) in enumerate(cases):
        wide = sum(case.outputs.values())
        files[f"{number}.hex"] = "".join(f"{given << wide | wanted:x}\n" for given, wanted in case.rows)
        texts += [prefixed(f"m{number}_", faults), _testbench(number, f"m{number}_", case)]
    texts.append("\n".join(["module benches;", *(f"  bench{number} bench{number}();" for number in range(len(cases))),
                            "  initial #100000 $finish;", "endmodule"]))
    log, = run_bench("\n".join(texts), "benches", files)
    found = {int(number): int(row) for number, row in re.findall(r"^BENCH (\d+) (-?\d+)$", log, re.MULTILINE)}
    assert sorted(found) == list(range(len(cases))), log
    return [None if found[number] < 0 else found[number] for number in range(len(cases))]
