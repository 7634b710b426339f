"""Files that are either whole or absent: written beside their place and renamed."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["UserError", "write_bytes", "write_json", "write_text", "write_with"]


class UserError(Exception):
    """Something the user gave cannot be used; the message names the thing, the rule and the fix in one sentence."""


def write_with(path: Path, writer: Callable[[BinaryIO], None]) -> None:
    """Call ``writer`` on a temporary binary file beside ``path``, then rename it to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            writer(stream)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes) -> None:
    write_with(path, lambda stream: (stream.write(data), None)[1])


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, sort_keys=False) + "\n")
