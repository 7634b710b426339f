"""Files that are either whole or absent: written beside their place and renamed."""

import json
from pathlib import Path
from typing import Any

from gradloom.models.atomic import write_with

__all__ = ["UserError", "write_bytes", "write_json", "write_text", "write_with"]


class UserError(Exception):
    """Something the user gave cannot be used; the message names the thing, the rule and the fix in one sentence."""


def write_bytes(path: Path, data: bytes) -> None:
    write_with(path, lambda stream: (stream.write(data), None)[1])


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, sort_keys=False) + "\n")
