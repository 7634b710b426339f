"""The product of a matrix device: 8-bit codes, exact sums of 32 bits, two exponents (Fox et al., section IV)."""

import numpy as np

__all__ = ["MOST_TERMS", "product", "real"]

MOST_TERMS = ((1 << 31) - 1) // (1 << 14)
"""Terms of a sum that 32 bits hold, whatever the codes are: each is at most 128 x 128."""


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums (M, N) of int32 of codes (M, K) and (K, N) of int8, exact.

    Raises
    ------
    :exc:`ValueError`
        If the codes are no such matrices, or K is larger than :data:`MOST_TERMS`.
    """
    if a.dtype != np.int8 or b.dtype != np.int8 or a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"no product of {a.dtype} {a.shape} and {b.dtype} {b.shape}: give int8 matrices (M, K) and (K, N)")
    if a.shape[1] > MOST_TERMS:
        raise ValueError(f"sums of {a.shape[1]:,} terms do not fit in 32 bits: at most {MOST_TERMS:,} do")
    # Exact in float64, which numpy multiplies much faster than integers: sums lie far below 2^53.
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int32)


def real(sums: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Numbers (M, N) of float32 that sums stand for, rounded once, to nearest even.

    Parameters
    ----------
    rows, columns : :class:`numpy.ndarray` of int32
        Exponents of the rows of the first operand, (M,) or (), and of the columns of the second one, (N,) or ().
    """
    exponents = rows.reshape(-1, 1) + columns.reshape(1, -1)
    return np.ldexp(sums.astype(np.float64), exponents).astype(np.float32)
