"""A netlist of ECP5 cells, as Yosys or nextpnr writes it in JSON, as Verilog on the models of :mod:`gradloom.sim.netlist.cells`.

Yosys could write the Verilog too, but what is left open in a routed netlist has a meaning on the device: an input that nothing is
joined to reads 1, the reset of a flip-flop 0. And what has no model must be refused, not passed over.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gradloom.sim.netlist.cells import CELLS, IGNORED, Cell

__all__ = ["NetlistError", "cell_counts", "netlist_verilog"]

_Bits = list[int | str]
_PADS = {"INPUT": "input", "OUTPUT": "output", "BIDIR": "inout"}


class NetlistError(ValueError):
    """A netlist holds something that has no model; the message names the cell and the thing."""


def cell_counts(design: Mapping[str, Any], top: str) -> Counter[str]:
    """Cells of the module ``top`` by kind, without those that compute nothing."""
    kinds = (cell["type"] for cell in design["modules"][top]["cells"].values())
    return Counter(kind for kind in kinds if kind not in IGNORED)


def netlist_verilog(design: Mapping[str, Any], top: str, *, name: str | None = None, power_off: str = "") -> str:
    """The module ``top`` in Verilog, called ``name`` (as in the netlist). Its ports are those of the netlist, or its pads, where
    nextpnr left no ports. A port ``p`` of both directions is three: ``p_i``, ``p_o``, and ``p_oe``, which is 1 where the pad
    drives. Bits that Yosys left undefined are drawn, the same in every call.

    Parameters
    ----------
    power_off : :class:`str`, optional
        Name of one more input, which is 1 as long as the device is not configured: PLLs then begin anew.

    Raises
    ------
    :exc:`NetlistError`
        If a cell, a parameter, its value or a pin has no model.
    """
    return _Writer(design["modules"][top], power_off).module(name or top)


class _Writer:
    def __init__(self, module: Mapping[str, Any], power_off: str) -> None:
        self.power_off = power_off
        self.cells: Mapping[str, Any] = {name: cell for name, cell in module["cells"].items() if cell["type"] not in IGNORED}
        self.draw = random.Random(1)
        self.nets: set[int] = set()
        self.spare = itertools.count(1 << 40)  # beyond any net of a netlist
        pads = {bit: _PADS.get(cell["parameters"].get("DIR", "INPUT"), "inout") for cell in self.cells.values()
                if cell["type"] == "TRELLIS_IO" for bit in cell["connections"]["B"]}
        self.driven = {bit: (next(self.spare), next(self.spare)) for bit, direction in pads.items() if direction == "inout"}
        """Of pads of both directions: nets of the level that they drive, and of whether they drive none."""
        self.constants = {cell["connections"]["F"][0]: cell["parameters"]["INITVAL"][0] for cell in self.cells.values()
                          if cell["type"] == "TRELLIS_COMB" and cell["parameters"].get("MODE", "LOGIC") == "LOGIC"
                          and cell["connections"].get("F") and len(set(cell["parameters"].get("INITVAL", "01"))) == 1}
        """Nets that nextpnr drives by a LUT of zeros or ones."""
        ports: dict[str, Any] = module["ports"] or {
            net: {"direction": pads[fields["bits"][0]], "bits": fields["bits"]}
            for net, fields in module["netnames"].items() if fields["bits"][0] in pads}
        self.ports = {port: (pads.get(fields["bits"][0], fields["direction"]), fields["bits"]) for port, fields in ports.items()}

    def module(self, name: str) -> str:
        body = [self._cell(number, *item) for number, item in enumerate(self.cells.items())]
        header, joints = [f"  input \\{self.power_off} "] if self.power_off else [], list[str]()
        for port, (direction, bits) in self.ports.items():
            if direction == "inout":
                driven: list[tuple[int, int]] = [self.driven[bit] for bit in bits if isinstance(bit, int)]
                self._port(header, joints, "input", f"{port}_i", bits)
                self._port(header, joints, "output", f"{port}_o", [level for level, _ in driven])
                self._port(header, joints, "output", f"{port}_oe", [off for _, off in driven], "~")
            else:
                self._port(header, joints, direction, port, bits)
        wires = [f"  wire n{bit};" for bit in sorted(self.nets)]
        return "\n".join([f"module {name}(", ",\n".join(header) + ");", *wires, *joints, *body, "endmodule", ""])

    def _port(self, header: list[str], joints: list[str], direction: str, port: str, bits: _Bits, before: str = "") -> None:
        header.append(f"  {direction} " + (f"[{len(bits) - 1}:0] " if len(bits) > 1 else "") + f"\\{port} ")
        if direction == "input":
            joints += [f"  assign {self._net(bit)} = \\{port} " + (f"[{index}];" if len(bits) > 1 else ";")
                       for index, bit in enumerate(bits)]
        else:
            joints.append(f"  assign \\{port}  = {before}{self._vector(bits)};")

    def _net(self, bit: int | str) -> str:
        if isinstance(bit, int):
            self.nets.add(bit)
            return f"n{bit}"
        return f"1'b{self.draw.randrange(2) if bit == 'x' else bit}"

    def _vector(self, bits: _Bits) -> str:
        nets = [self._net(bit) for bit in reversed(bits)]
        return nets[0] if len(nets) == 1 else "{" + ", ".join(nets) + "}"

    def _cell(self, number: int, name: str, cell: Mapping[str, Any]) -> str:
        kind = cell["type"]
        model = CELLS.get(kind)
        if model is None:
            raise NetlistError(f"{name}: there is no model of the cell {kind}")
        parameters, connections = dict(cell["parameters"]), dict(cell["connections"])
        if kind == "TRELLIS_COMB":
            if parameters.get("MODE") == "RAMW_BLOCK":
                return f"  // c{number}: room for a TRELLIS_RAMW"
            # The multiplexer behind a pair of five-input functions, which nextpnr's parameters do not tell from that of one.
            parameters["IS_Z1"] = str(int(bool(connections.get("FXA") or connections.get("FXB"))))
        if kind == "TRELLIS_IO":
            connections |= self._pad(parameters.get("DIR", "INPUT"), connections.pop("B"))
        muxes = self._muxes(model, parameters)
        given = [f".{key}({value})" for key, value in self._parameters(name, kind, model, parameters)]
        joined = [f".{port}({self._input(model, pins, connections, muxes)})" for port, pins in model.inputs.items()]
        joined += self._outputs(model, connections)
        self._check_pins(name, kind, model, cell, connections, muxes)
        return f"  {kind} " + (f"#({', '.join(given)}) " if given else "") + f"c{number}({', '.join(joined)});"

    def _pad(self, direction: str, bits: _Bits) -> dict[str, _Bits]:
        """What the pins of a pad's model are joined to, whose pad is ``bits``."""
        if direction == "BIDIR":
            bit, = bits
            assert isinstance(bit, int)
            level, off = self.driven[bit]
            return {"PADI": bits, "PADO": [level], "PADT": [off]}
        return {"PADI" if direction == "INPUT" else "PADO": bits}

    @staticmethod
    def _muxes(model: Cell, parameters: dict[str, str]) -> dict[str, str]:
        """What stands before the pins, taken out of the parameters."""
        if not model.pin_muxes:
            return {}
        return {key.removesuffix("MUX"): parameters.pop(key).strip() for key in list(parameters) if key.endswith("MUX")}

    @staticmethod
    def _parameters(name: str, kind: str, model: Cell, parameters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        for key, raw in parameters.items():
            value, table = raw.strip(), {**model.options, **model.numbers, **model.fixed}.get(key)
            if "." in key and table is None:
                continue  # nextpnr's own notes
            if key in model.bits:
                # Undefined contents are zeros, as nextpnr takes them.
                yield key, f"{model.bits[key]}'h{int(value.replace('x', '0'), 2):x}"
                continue
            if key in model.numbers:
                value = str(int(value, 2))
            if table is None or (table and value not in table):
                raise NetlistError(f"{name}: the model of {kind} has no {key} of {value}" + (
                    f", but {', '.join(table)}" if table else ""))
            if key not in model.fixed:
                yield key, value if key in model.numbers else f'"{value}"'

    def _input(self, model: Cell, pins: tuple[str, ...], connections: Mapping[str, _Bits], muxes: Mapping[str, str]) -> str:
        found = []
        for pin in reversed(pins):
            bits = [bit for bit in connections.get(pin, []) if bit != "z"]
            net = self._vector(bits) if bits else f"1'b{model.open.get(pin, '1')}"
            if pin == "OFF" and self.power_off:  # no pin of the device
                net = f"\\{self.power_off} "
            mux = muxes.get(pin, pin)
            found.append(f"1'b{mux}" if mux in ("0", "1") else f"~{net}" if mux == "INV" else net)
        return found[0] if len(found) == 1 else "{" + ", ".join(found) + "}"

    def _outputs(self, model: Cell, connections: Mapping[str, _Bits]) -> Iterator[str]:
        for port, pins in model.outputs.items():
            if len(pins) == 1:
                yield f".{port}({self._vector(connections[pins[0]]) if connections.get(pins[0]) else ''})"
                continue
            nets = []
            for pin in reversed(pins):
                # A net of its own for a pin that nothing reads: a vector has no gaps.
                bits = connections.get(pin)
                nets.append(self._net(bits[0] if bits else next(self.spare)))
            yield f".{port}({{{', '.join(nets)}}})"

    def _check_pins(self, name: str, kind: str, model: Cell, cell: Mapping[str, Any], connections: Mapping[str, _Bits],
                    muxes: Mapping[str, str]) -> None:
        modelled = {pin for pins in (*model.inputs.values(), *model.outputs.values()) for pin in pins}
        for pin, bits in connections.items():
            if bits and pin not in modelled and cell["port_directions"].get(pin) != "input":
                raise NetlistError(f"{name}: the model of {kind} has no pin {pin}")
        for pin, level, other in [*((pin, "0", "1") for pin in model.zero), *((pin, "1", "0") for pin in model.one)]:
            bits, mux = [self.constants.get(bit, bit) for bit in connections.get(pin) or []], muxes.get(pin, pin)
            tied = {level: True, "INV": bits == [other] or (not bits and other == "1"),
                    pin: bits == [level] or (not bits and level == "1")}
            if not tied.get(mux, False):
                raise NetlistError(f"{name}: the model of {kind} needs {pin} tied to {level}")
