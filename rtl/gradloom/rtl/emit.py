"""Emit a repeated component once and instantiate it by name.

Amaranth writes one Verilog module per instance of a component. A repeated component (a PE, a lane) is therefore converted
once, and its copies are instances of that one module; Amaranth's own simulator cannot see into them, so every user keeps
an inline form for it.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from amaranth.back import verilog
from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

__all__ = ["Library", "add", "convert", "current_library", "library", "with_cells"]

_PORT = re.compile(r"^  (?:input|output) [^\n]*;\n", re.MULTILINE)


def with_cells(text: str, name: str, cells: list[str]) -> str:
    """The Verilog ``text`` of the module ``name``, which is made of ``cells`` where ``SYNTHESIS`` is defined."""
    before, header, body = text.partition(f"module {name}(")
    ports, begin, body = body.partition(");\n")
    body, end, after = body.rpartition("endmodule\n")
    declared = "".join(line.replace("output reg ", "output ") for line in _PORT.findall(body))
    inside = "\n".join(["`ifdef SYNTHESIS", f"{declared}{chr(10).join(cells)}", "`else", f"{body}`endif", ""])
    return before + header + ports + begin + inside + end + after


class Library:
    """The Verilog modules that a design instantiates, each converted once."""

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}

    def module(self, name: str, proto: wiring.Component) -> str:
        """Convert ``proto`` unless a module of this name is already here. Returns the Verilog module's name.

        One with a method ``cells`` has another body for synthesis (:func:`with_cells`).
        """
        if name not in self.sources:
            self.sources[name] = ""
            text = verilog.convert(proto, name=name, emit_src=False, strip_internal_attrs=True)
            self.sources[name] = with_cells(text, name, proto.cells()) if hasattr(proto, "cells") else text
        return name


_active: list[Library] = []


@contextlib.contextmanager
def library() -> Iterator[Library]:
    """Within this context :func:`add` makes instances; outside it, inline submodules."""
    _active.append(Library())
    try:
        yield _active[-1]
    finally:
        _active.pop()


def convert(build: Callable[[], wiring.Component], name: str) -> str:
    """Verilog of a component, its module called ``name``, and of all that it instantiates, each of these once. It is built here, as
    a component makes its parts when it is made."""
    with library() as found:
        text = verilog.convert(build(), name=name, emit_src=False, strip_internal_attrs=True)
    return "\n".join([*found.sources.values(), text])


def _discard(proto: wiring.Component) -> None:
    """No warning about a component, and the parts that it made beforehand, if its module is in the library already."""
    proto._MustUse__used = True
    for value in vars(proto).values():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, wiring.Component):
                _discard(part)


def current_library() -> Library | None:
    return _active[-1] if _active else None


def add(m: Module, name: str, kind: str, proto: wiring.Component, parameters: Any = ()) -> wiring.PureInterface | wiring.Component:
    """Add a copy of ``proto`` as submodule ``name`` and return its interface.

    Parameters
    ----------
    kind : :class:`str`
        Module name; ``parameters`` (anything with a stable ``repr``) that shape ``proto`` are folded into it.
    """
    lib = current_library()
    if lib is None:
        m.submodules[name] = proto
        return proto
    suffix = hashlib.sha256(repr(parameters).encode()).hexdigest()[:8] if parameters else ""
    module = lib.module(f"{kind}_{suffix}" if suffix else kind, proto)
    _discard(proto)
    interface = proto.signature.create(path=(name,))
    header = lib.sources[module].rsplit(f"module {module}(", 1)[1].split(")", 1)[0]
    declared = {port.strip().removeprefix("\\") for port in header.split(",")}  # keywords (`bit`) are escaped
    ports: dict[str, Value] = {}
    if "clk" in declared:
        ports["i_clk"] = ClockSignal()
    if "rst" in declared:
        ports["i_rst"] = ResetSignal()
    for path, member, value in proto.signature.flatten(interface):
        port = "__".join(map(str, path))
        if port in declared:
            ports[("i_" if member.flow == In else "o_") + port] = value
    m.submodules[name] = Instance(module, **ports)
    return interface
