"""Planted bugs as test parameters: the suite plants the first few of a proof, ``nox -s formal`` all of them."""

from collections.abc import Sequence

import pytest

__all__ = ["bug_params"]


def bug_params(bugs: Sequence[tuple], *, suite: int = 1) -> list:
    """Parameters of a test that plants bugs; all but the first ``suite`` are marked long."""
    mark = pytest.mark.long("one more planted bug of a proof, which the suite runs with others")
    return [pytest.param(*bug, marks=() if n < suite else mark) for n, bug in enumerate(bugs)]
