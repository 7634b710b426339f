"""Arguments as a Python program gives them, in the form in which the host takes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.api._errors import plain_errors
from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import MatrixConfig, load_training_machine
from gradloom.contracts.matrix_config import load_machine as load_any_machine
from gradloom.host.datasets.data import RawImages, raw_images
from gradloom.host.files import UserError
from gradloom.host.runs.reporting import Console, Listener, Progress, Reporter
from gradloom.models.network import Network
from gradloom.models.network import load_network as load

__all__ = ["Arrays", "Data", "Source", "Watcher", "images_of", "load_config", "load_machine", "load_network",
           "name_of", "path_of", "reporter_of"]

Arrays = tuple[Any, Any] | tuple[Any, Any, Any, Any]
"""Images (N, C, Y, X) or (N, Y, X) and class numbers (N,), perhaps the same two for testing; whatever numpy takes."""
Data = str | Path | Arrays
"""Name or file of images, or arrays."""
Source = str | Path
"""A built-in name or a file."""
Watcher = bool | Callable[[Progress], None]
"""Whether a progress line is printed, or who hears of the progress."""
_FORMS = "(x, y) or (x, y, x_test, y_test)"


@plain_errors()
def load_network(source: Source) -> Network:
    """A built-in network or a TOML file.

    Parameters
    ----------
    source : :class:`str` or :class:`~pathlib.Path`
        "digits-cnn", "lenet10", "resnet20", "vgg16", "resnet18", or a file (docs/networks.md).

    Raises
    ------
    :exc:`UserError`
        If there is no such network or file, or it breaks a rule, which the message names.
    """
    return load(_text("network", source))


@plain_errors()
def load_config(source: Source) -> Config:
    """A preset or a TOML file of a machine.

    Parameters
    ----------
    source : :class:`str` or :class:`~pathlib.Path`
        "nano", "small", "ulx3s", "eta", ..., or a file whose keys are the fields of :class:`Config`.

    Raises
    ------
    :exc:`UserError`
        If there is no such preset or file, or a value breaks a rule, which the message names.
    """
    return load_training_machine(_text("config", source))


@plain_errors()
def load_machine(source: Source) -> Config | MatrixConfig:
    """A preset or a TOML file of a machine that trains networks, or of one that multiplies matrices.

    Parameters
    ----------
    source : :class:`str` or :class:`~pathlib.Path`
        What :func:`load_config` takes; "fox-8", "darkfpga-16x8", "barista-8x8x32", ..., or a file with ``core = "matrix"``.

    Raises
    ------
    :exc:`UserError`
        If there is no such preset or file, or a value breaks a rule, which the message names.
    """
    return load_any_machine(_text("config", source))


def _text(name: str, source: object) -> str:
    if not isinstance(source, Path | str):
        raise UserError(f"{name} must be a name or a TOML file, not {source!r}")
    return str(source)


def name_of(value: Any) -> Any:
    """Paths as texts; all else stays, to be judged where it is used."""
    return str(value) if isinstance(value, Path) else value


def path_of(value: Any) -> Any:
    """Texts as paths; all else stays, to be judged where it is used."""
    return Path(value) if isinstance(value, str) else value


def images_of(data: Any) -> RawImages | str:
    """Data in the host's form.

    Raises
    ------
    :exc:`UserError`
        If it is neither a name nor arrays of images and class numbers.
    """
    if isinstance(data, Path | str):
        return str(data)
    if not isinstance(data, tuple) or len(data) not in (2, 4):
        raise UserError(f"data must be the name or file of images, or arrays {_FORMS}, not {_shown(data)}")
    arrays = {}
    for name, value in zip(("x", "y", "x_test", "y_test"), data, strict=False):
        try:
            arrays[name] = np.asarray(value)
        except (TypeError, ValueError) as error:
            raise UserError(f"data: {name} cannot be made an array: {error}") from None
    return raw_images("arrays", arrays, "data")


def _shown(value: object) -> str:
    """A value in a message; arrays are too long for one."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return repr(value) if isinstance(value, int | float | str | None) else f"an object of class {type(value).__name__}"


def reporter_of(progress: Any) -> Reporter:
    """Who hears of the progress.

    Raises
    ------
    :exc:`UserError`
        If it is neither a truth value nor a function.
    """
    if isinstance(progress, bool):
        return Console() if progress else Listener()
    if not callable(progress):
        raise UserError(f"progress must be True, False or a function that takes a Progress, not {_shown(progress)}")
    return Listener(progress)
