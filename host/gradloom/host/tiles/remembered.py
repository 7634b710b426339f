"""Results that an object which never changes keeps, so that they are worked out once however often they are asked for."""

import functools
from collections.abc import Callable, Hashable
from typing import Concatenate, ParamSpec, TypeVar

__all__ = ["remembered"]

_Self = TypeVar("_Self")
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def remembered(method: Callable[Concatenate[_Self, _Given], _Result]) -> Callable[Concatenate[_Self, _Given], _Result]:
    """A method whose results the object keeps, by positional arguments.

    A :func:`functools.cache` would look for the object itself, too: it would hash all of its fields at every call, and keep it.
    """
    name = f"_{method.__name__}_known"

    @functools.wraps(method)
    def ask(self: _Self, *given: _Given.args, **named: _Given.kwargs) -> _Result:
        assert not named, "arguments of what is remembered have no names"
        known: dict[tuple[Hashable, ...], _Result] | None = self.__dict__.get(name)
        if known is None:
            known = self.__dict__[name] = {}
        try:
            return known[given]
        except KeyError:
            found = known[given] = method(self, *given, **named)
            return found

    return ask
