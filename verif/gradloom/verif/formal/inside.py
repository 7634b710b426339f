"""Registers inside a unit under proof: an invariant that an induction needs names them."""

from collections.abc import Iterator

from amaranth.hdl import Elaboratable, Fragment, Module, Signal
from amaranth.lib import wiring

__all__ = ["add_opened"]


def _signals(fragment: Fragment, path: str) -> Iterator[tuple[str, Signal]]:
    for statements in fragment.statements.values():
        for statement in statements:
            for signal in statement._lhs_signals():
                yield path + signal.name, signal
    for child, name, _ in fragment.subfragments:
        yield from _signals(child, f"{path}{name}.")


class _Body(Elaboratable):
    """A component that is elaborated already."""

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment

    def elaborate(self, platform: object) -> Fragment:
        return self.fragment


def add_opened(m: Module, platform: object, component: wiring.Component, *names: str, submodule: str = "dut") -> list[Signal]:
    """Add ``component`` as a submodule and return signals that it drives inside.

    Parameters
    ----------
    names : :class:`str`
        Names of signals; those of a submodule begin with its name and a dot.

    Raises
    ------
    :exc:`ValueError`
        If not exactly one driven signal has the name: the specification no longer fits the source.
    """
    fragment = Fragment.get(component, platform)
    m.submodules[submodule] = _Body(fragment)
    driven: dict[str, dict[int, Signal]] = {}
    for name, signal in _signals(fragment, ""):
        driven.setdefault(name, {})[id(signal)] = signal
    for name in names:
        if len(driven.get(name, ())) != 1:
            raise ValueError(f"{type(component).__name__} drives {len(driven.get(name, ()))} signals {name!r} inside, not one")
    return [next(iter(driven[name].values())) for name in names]
