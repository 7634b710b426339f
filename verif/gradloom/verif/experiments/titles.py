"""Titles of what takes part in the experiments, by the name that a command line and the results have (needs no PyTorch)."""

__all__ = ["PINT_VARIANTS", "TITLES"]

PINT_VARIANTS = ((8, 1), (8, 2), (8, 4), (8, 5), (7, 3), (6, 2), (5, 2))
"""(k, d) of the ablations."""

TITLES: dict[str, str] = {
    "fp32-bn": "FP32, batch norm",
    "fp32": "FP32",
    "pint8": "PINT8",
    "int8-shift": "int8-shift",
    "bfp8": "BFP8",
    "bfp8-swa": "BFP8 + SWA",
    "int8-shift-stochastic": "int8-shift, all stochastic",
    "pint8-master16": "PINT8, 16-bit weights",
    "pint8-master32": "PINT8, 32-bit weights",
    "pint8-stochastic": "PINT8, all stochastic",
    "pint8-nearest": "PINT8, all nearest",
    "bfp8-nearest": "BFP8, all nearest",
    "pint8-exact": "PINT8, exact scale",
    **{f"pint({k},{d})": f"PINT({k}, {d})" for k, d in PINT_VARIANTS},
}
