"""The emitted Verilog of a machine as a tree of modules, cut into parts that are synthesised one by one.

A machine of 1728 MACs is too large for one run of Yosys. Every repeated component is one module already
(:mod:`gradloom.rtl.shared_module`), so each is synthesised once, with the parts below it as black boxes, and counted as often as it
is instantiated.
"""

import dataclasses
import re
from collections.abc import Callable

__all__ = ["Design", "is_part"]

_MODULE = re.compile(r"^module (\\\S+ |[^\s(]+)\(.*?^endmodule\n", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(r"^  (\\\S+|\w[\w$]*) +(?:\\\S+|[\w$]+) +\(", re.MULTILINE)
_PORT = re.compile(r"^  (?:input|output) [^\n]*;\n", re.MULTILINE)
_ENGINES = ("core", "core.acore", "core.ccore")
"""Modules below the top that are cut open once more: their submodules are parts, too."""


def is_part(name: str, top: str) -> bool:
    """Whether the module ``name`` of a machine is synthesised alone: a module that is emitted once, or a component of an engine."""
    parent, _, _ = name.rpartition(".")
    return not parent or parent in (top, *(f"{top}.{engine}" for engine in _ENGINES))


@dataclasses.dataclass(frozen=True)
class Design:
    """Modules of a Verilog text.

    Parameters
    ----------
    modules : mapping of module name to its text
    children : mapping of module name to the number of instances of each module in it
    top : :class:`str`
    """

    modules: dict[str, str]
    children: dict[str, dict[str, int]]
    top: str

    @classmethod
    def read(cls, text: str, top: str) -> "Design":
        """The modules of ``text``, which is Yosys' own Verilog."""
        modules = {match[1].strip().removeprefix("\\"): match[0] for match in _MODULE.finditer(text)}
        children: dict[str, dict[str, int]] = {}
        for name, body in modules.items():
            children[name] = {}
            for match in _INSTANCE.finditer(body):
                kind = match[1].removeprefix("\\")
                if kind in modules:
                    children[name][kind] = children[name].get(kind, 0) + 1
        return cls(modules, children, top)

    def counts(self, part: Callable[[str], bool]) -> dict[str, int]:
        """How often each part is in the machine, parts inside parts included, from the top down."""
        found: dict[str, int] = {}

        def walk(name: str, number: int) -> None:
            if name == self.top or part(name):
                found[name] = found.get(name, 0) + number
            for child, times in self.children[name].items():
                walk(child, number * times)

        walk(self.top, 1)
        return found

    def source(self, name: str, part: Callable[[str], bool]) -> str:
        """Verilog of one part: its own modules, and the parts below it as black boxes."""
        own: list[str] = []
        boxes: set[str] = set()
        todo = [name]
        while todo:
            module = todo.pop()
            if module in own:
                continue
            own.append(module)
            for child in self.children[module]:
                if part(child):
                    boxes.add(child)
                else:
                    todo.append(child)
        return "\n".join([*(self._box(box) for box in sorted(boxes)), *(self.modules[module] for module in own)])

    def _box(self, name: str) -> str:
        body = self.modules[name]
        return "\n".join(["(* blackbox *)", body.split(";", 1)[0] + ";", "".join(_PORT.findall(body)) + "endmodule\n"])
