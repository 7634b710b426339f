"""What a mutant may change in a value or a statement of Amaranth's syntax tree.

Values keep their meaning as integers: a changed value may be wider than what it stands for, unless it lies where width counts
(in a concatenation, under a slice, as a shift amount, in a case's test), where it is cut to the same shape.
"""

from collections.abc import Callable, Iterator
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Shape, Signal, Value
from amaranth.hdl._ast import Concat, Operator, Part, Slice, SwitchValue

__all__ = ["OPERATORS", "Variant", "condition_variants", "fit", "rebuild", "value_variants", "width_variants"]

OPERATORS = {
    "constant": "a constant is one more, one less, or has its top bit flipped",
    "comparison": "a comparison includes or excludes its bound, or becomes its opposite",
    "condition": "a condition is negated, always false or always true",
    "boolean": "and, or, exclusive or are exchanged, an inversion or a reduction changed, an operand of and, or left out",
    "arithmetic": "plus and minus are exchanged, a negation is left out",
    "shift": "a shift goes the other way or one place further",
    "mux": "the arms of a choice are exchanged, or one of them is always taken",
    "sign": "signed and unsigned are exchanged",
    "slice": "a part of a word is taken one bit higher or lower",
    "width": "the top bit of what is assigned is cut",
    "statement": "an assignment is left out",
    "reset": "a register resets to another value, or not at all",
    "case": "a case of a switch is left out",
}
"""Kinds of changes, and what each does."""

Variant = tuple[str, str, Callable[[], Value]]
"""Operator, the change in words, and what makes the changed value."""

_OPPOSITE = {"==": ("!=",), "!=": ("==",), "<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<")}
_BOOLEAN = {"&": "|", "|": "&", "^": "|"}
_REDUCED = {"r|": "r&", "r&": "r|", "r^": "r|"}


def fit(value: Value, shape: Shape) -> Value:
    """``value`` cut or extended to ``shape``, bit by bit."""
    if value.shape() == shape:
        return value
    width = len(value)
    bits: Value = value[:shape.width] if width >= shape.width else Cat(
        value, *[value[width - 1] if value.shape().signed and width else Const(0, 1)] * (shape.width - width))
    return bits.as_signed() if shape.signed else bits


def rebuild(node: Value, children: list[Value]) -> Value:
    """``node`` with other operands, in the order of :func:`parts`."""
    new: Value
    if isinstance(node, Operator):
        new = Operator(node.operator, children)
    elif isinstance(node, Slice):
        new = Slice(children[0], node.start, node.stop)
    elif isinstance(node, Part):
        new = Part(children[0], children[1], node.width, node.stride)
    elif isinstance(node, Concat):
        new = Concat(children)
    else:
        assert isinstance(node, SwitchValue)
        cases = [(patterns, child) for (patterns, _), child in zip(node.cases, children[1:], strict=True)]
        new = SwitchValue(children[0], cases, src_loc=node.src_loc)
    new.src_loc = node.src_loc
    return new


def parts(node: Value) -> list[tuple[Value, bool]]:
    """Operands of ``node``, and whether their width counts."""
    if isinstance(node, Operator):
        if len(node.operands) == 1:
            return [(node.operands[0], True)]
        return [(operand, node.operator in ("<<", ">>") and n == 1) for n, operand in enumerate(node.operands)]
    if isinstance(node, Slice):
        return [(node.value, True)]
    if isinstance(node, Part):
        return [(node.value, True), (node.offset, True)]
    if isinstance(node, Concat):
        return [(part, True) for part in node.parts]
    if isinstance(node, SwitchValue):
        return [(node.test, True), *((value, False) for _, value in node.cases)]
    return []


def _same(value: Value) -> Callable[[], Value]:
    return lambda: value


def _operator(name: str, *operands: Value) -> Callable[[], Value]:
    return lambda: Operator(name, list(operands))


def _choice(node: SwitchValue, cases: list[Any]) -> Callable[[], Value]:
    return lambda: SwitchValue(node.test, cases, src_loc=node.src_loc)


def _constant(node: Const) -> Iterator[Variant]:
    shape = node.shape()
    if shape.width == 0:
        return
    values = {node.value + 1, node.value - 1} if shape.width > 1 else {1 - abs(node.value)}
    for value in sorted(values):
        if value >= 0 or shape.signed:
            yield "constant", f"{node.value} becomes {value}", _same(Const(value, max(shape.width, Const(value).shape().width)
                                                                         if not shape.signed else Shape(shape.width + 1, True)))
    if shape.width > 2:
        flipped = Const(node.value ^ 1 << shape.width - 1, shape)
        yield "constant", f"{node.value} becomes {flipped.value}", _same(flipped)


def _of_operator(node: Operator) -> Iterator[Variant]:
    name, operands = node.operator, node.operands
    if len(operands) == 1:
        if name in ("~", "-"):
            yield "boolean" if name == "~" else "arithmetic", f"{name} left out", _same(operands[0])
        elif name in _REDUCED and len(operands[0]) > 1:
            yield "boolean", f"{name} becomes {_REDUCED[name]}", _operator(_REDUCED[name], operands[0])
        elif name == "b" and len(operands[0]) > 1:
            yield "boolean", "any bit becomes every bit", _operator("r&", operands[0])
        elif name in ("u", "s"):
            other = "s" if name == "u" else "u"
            yield "sign", f"as {'signed' if other == 's' else 'unsigned'}", _operator(other, operands[0])
        return
    a, b = operands
    for other in _OPPOSITE.get(name, ()):
        yield "comparison", f"{name} becomes {other}", _operator(other, a, b)
    if name in _BOOLEAN:
        yield "boolean", f"{name} becomes {_BOOLEAN[name]}", _operator(_BOOLEAN[name], a, b)
    if name in ("&", "|"):
        yield "boolean", f"first operand of {name} left out", _same(b)
        yield "boolean", f"second operand of {name} left out", _same(a)
    if name in ("+", "-"):
        other = "-" if name == "+" else "+"
        yield "arithmetic", f"{name} becomes {other}", _operator(other, a, b)
    if name in ("<<", ">>"):
        other = ">>" if name == "<<" else "<<"
        yield "shift", f"{name} becomes {other}", _operator(other, a, b)
        yield "shift", f"{name} one place further", lambda: Operator(name, [Operator(name, [a, b]), Const(1, 1)])


def _of_choice(node: SwitchValue) -> Iterator[Variant]:
    cases = node.cases
    if len(cases) == 2 and cases[1][0] is None:
        (patterns, first), (_, second) = cases
        yield "mux", "arms exchanged", lambda: SwitchValue(node.test, [(patterns, second), (None, first)], src_loc=node.src_loc)
        yield "mux", "only when the condition holds", _same(second)
        yield "mux", "only when the condition fails", _same(first)
        return
    for n, (_, value) in enumerate(cases):
        other = cases[(n + 1) % len(cases)][1]
        changed = [(patterns, other if place == n else found) for place, (patterns, found) in enumerate(cases)]
        if value is not other:
            yield "mux", f"choice {n} takes the next one's value", _choice(node, changed)


def value_variants(node: Value) -> Iterator[Variant]:
    """Every change of this node itself (not of its operands), in a fixed order."""
    if isinstance(node, Const):
        yield from _constant(node)
    elif isinstance(node, Operator):
        yield from _of_operator(node)
    elif isinstance(node, SwitchValue):
        yield from _of_choice(node)
    elif isinstance(node, Slice):
        value, start, stop = node.value, node.start, node.stop
        if stop > start and stop < len(value):
            yield "slice", "one bit higher", lambda: Slice(value, start + 1, stop + 1)
        if stop > start > 0:
            yield "slice", "one bit lower", lambda: Slice(value, start - 1, stop - 1)
    elif isinstance(node, Part):
        yield "slice", "one place higher", lambda: Part(node.value, (node.offset + 1)[:max(1, len(node.offset))], node.width,
                                                        node.stride)
    elif isinstance(node, Signal) and len(node) > 1 and node.shape().signed:
        yield "sign", f"{node.name} as unsigned", lambda: node.as_unsigned()


def condition_variants(test: Value) -> Iterator[Variant]:
    """Changes of a condition of one bit."""
    yield "condition", "negated", lambda: ~test
    if not isinstance(test, Const):
        yield "condition", "always false", _same(Const(0, 1))
        yield "condition", "always true", _same(Const(1, 1))


def width_variants(value: Value, width: int) -> Iterator[Variant]:
    """The top bit of what arrives at a target of ``width`` bits is cut."""
    used = min(len(value), width)
    if used >= 2:
        kept = value[:used - 1]
        yield "width", "top bit cut", lambda: kept.as_signed() if value.shape().signed else kept


def chosen(select: Value, number: int, changed: Value, value: Value) -> Value:
    """``changed`` while ``select`` is ``number``, otherwise ``value``."""
    return Mux(select == number, changed, value)
