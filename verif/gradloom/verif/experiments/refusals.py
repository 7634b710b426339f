"""How a command of the experiments ends when it cannot go on."""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

from gradloom.host.devices.limits import LimitReached
from gradloom.host.files import UserError
from gradloom.models.layers import NetworkError

__all__ = ["told_in_a_sentence"]

P = ParamSpec("P")


def told_in_a_sentence(main: Callable[P, int]) -> Callable[P, int]:
    """``main`` with exit codes for its exceptions, each told in its sentence: 2 for what the user can mend, 1 for a limit that was
    reached."""
    @functools.wraps(main)
    def told(*arguments: P.args, **options: P.kwargs) -> int:
        try:
            return main(*arguments, **options)
        except (UserError, NetworkError, LimitReached) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1 if isinstance(error, LimitReached) else 2

    return told
