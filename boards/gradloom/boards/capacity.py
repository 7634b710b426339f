"""What an ECP5 holds, and whether a synthesised design can fit."""

from collections.abc import Mapping

from gradloom.boards.tools import BuildError

__all__ = ["CAPACITY", "check_fit", "least_use"]

CAPACITY: dict[str, dict[str, int]] = {
    "LFE5U-25F": {"TRELLIS_COMB": 24_288, "TRELLIS_FF": 24_288, "DP16KD": 56, "MULT18X18D": 28},
    "LFE5U-45F": {"TRELLIS_COMB": 43_848, "TRELLIS_FF": 43_848, "DP16KD": 108, "MULT18X18D": 72},
    "LFE5U-85F": {"TRELLIS_COMB": 83_640, "TRELLIS_FF": 83_640, "DP16KD": 208, "MULT18X18D": 156},
}
"""Cells of a die as nextpnr counts them (a 12F is the die of a 25F)."""
_WORDS = {"TRELLIS_COMB": "LUTs", "TRELLIS_FF": "flip-flops", "DP16KD": "block RAMs", "MULT18X18D": "multipliers"}
_LESS = "less logic: fewer MACs, or more of it serial"
_FIX = {"TRELLIS_COMB": _LESS, "TRELLIS_FF": _LESS, "DP16KD": "smaller buffers", "MULT18X18D": "fewer MACs"}


def least_use(cells: Mapping[str, int]) -> dict[str, int]:
    """What cells of a netlist (kinds of :data:`~gradloom.boards.build_report.KINDS`) take of a die at least.

    A CCU2C takes two TRELLIS_COMB, a DPR16X4 four. nextpnr needs about a tenth more: to lead signals into carry chains and out of
    them.
    """
    comb = cells.get("LUT4", 0) + 2 * cells.get("CCU2C", 0) + 4 * cells.get("DPR16X4", 0)
    return {"TRELLIS_COMB": comb, "TRELLIS_FF": cells.get("FF", 0), "DP16KD": cells.get("DP16KD", 0),
            "MULT18X18D": cells.get("MULT18X18D", 0)}


def check_fit(cells: Mapping[str, int], die: str, machine: str) -> None:
    """Refuse before placement what cannot fit.

    Raises
    ------
    :exc:`BuildError`
        Naming every resource that does not suffice.
    """
    over = [(kind, need) for kind, need in least_use(cells).items() if need > CAPACITY[die][kind]]
    if over:
        wanted = " and ".join(f"{need:,} {_WORDS[kind]} of {CAPACITY[die][kind]:,}" for kind, need in over)
        fixes = ", ".join(dict.fromkeys(_FIX[kind] for kind, _ in over))
        raise BuildError(f"{machine} cannot fit an {die}: it takes at least {wanted}; give a --config with {fixes}")
