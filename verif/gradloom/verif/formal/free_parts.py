"""Parts of which a proof knows nothing but the ports: whatever they do, the rest keeps to its specification."""

from amaranth.hdl import Instance, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Flow

__all__ = ["any_value", "free", "with_free_inputs"]


def any_value(m: Module, target: Value) -> None:
    """``target`` has any value in any cycle."""
    if len(target):
        chosen = Signal(len(target))
        m.submodules += Instance("$anyseq", p_WIDTH=len(target), o_Y=chosen)
        m.d.comb += target.eq(chosen)


def with_free_inputs(m: Module, part: wiring.Component) -> None:
    """All inputs of a part have any value in any cycle."""
    for _, member, port in part.signature.flatten(part):
        if member.flow is Flow.In:
            any_value(m, Value.cast(port))


def free(kind: type[wiring.Component], made: list | None = None) -> type[wiring.Component]:
    """A component with the ports and constants of ``kind``, whose outputs have any value in any cycle.

    Parameters
    ----------
    made : list
        Every one that is made is appended, in order.
    """
    class Free(kind):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, **named)
            if made is not None:
                made.append(self)

        def elaborate(self, platform: object) -> Module:
            m = Module()
            for _, member, port in self.signature.flatten(self):
                if member.flow is Flow.Out:
                    any_value(m, Value.cast(port))
            return m

    return Free
