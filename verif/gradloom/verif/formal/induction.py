"""Planted bugs and proofs by induction: a bug must stop the proof."""

from collections.abc import Callable

from amaranth.lib import wiring

from gradloom.verif.formal.run import run_formal

__all__ = ["stops_proof"]


def stops_proof(build: Callable[[], wiring.Component], depth: int) -> bool:
    """Whether the induction that proves the right design does not prove this one.

    An assertion that fails right after power-up is a FAIL, one that fails in the inductive step leaves SymbiYosys at UNKNOWN. As
    the same assertions are inductive for the right design, either is the bug's doing, and no trace from power-up is needed.

    Raises
    ------
    :exc:`RuntimeError`
        If the tools ended in any other way.
    """
    try:
        return not run_formal(build, "prove", depth)
    except RuntimeError as error:
        if "SymbiYosys ended with UNKNOWN" in str(error) and "induction: FAIL" in str(error):
            return True
        raise
