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
        Names of signals; those of a submodule begin with its name and a dot. Of signals with one name, ``#`` and a number choose,
        in the order in which the source drives them: ``address#0``.

    Raises
    ------
    :exc:`ValueError`
        If not exactly one driven signal has a name without a number, or none has that number: the specification no longer fits
        the source.
    """
    fragment = Fragment.get(component, platform)
    m.submodules[submodule] = _Body(fragment)
    driven: dict[str, dict[int, Signal]] = {}
    for name, signal in _signals(fragment, ""):
        driven.setdefault(name, {})[id(signal)] = signal
    chosen = []
    for name in names:
        plain, _, number = name.partition("#")
        found = list(driven.get(plain, {}).values())
        if len(found) <= int(number or 0) or (not number and len(found) != 1):
            raise ValueError(f"{type(component).__name__} drives {len(found)} signals {plain!r} inside: {name!r} is not one")
        chosen.append(found[int(number or 0)])
    return chosen
