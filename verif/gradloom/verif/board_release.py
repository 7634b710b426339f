"""Bitstreams as files of a release.

``python -m gradloom.verif.board_release [--builds FOLDER] [--out FOLDER]`` packs, of each case of
:mod:`gradloom.verif.board_builds` that lies in the folder of builds, the fastest one that reaches its clock: bitstream and reports,
in a folder that ``gradloom flash --build`` and ``gradloom first-light --build`` take once it is unpacked. ``SHA256SUMS`` beside the
archives has their hashes. The same builds give the same archives, byte by byte.
"""

import argparse
import hashlib
import io
import sys
import zipfile
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from gradloom.boards.build_report import BuildReport
from gradloom.host.boards.flash_command import built
from gradloom.host.files import UserError, write_bytes, write_text
from gradloom.verif import board_builds
from gradloom.verif.board_builds import Case
from gradloom.verif.checkout import ROOT

__all__ = ["fastest", "main", "pack"]

_MEMBERS = ("top.bit", "report.json", "report.html")
_BEGIN = (1980, 1, 1, 0, 0, 0)
"""The earliest time that an archive can hold, for all members: when a file was written is not part of a release."""


def fastest(cases: Iterable[Case], builds: Path) -> list[tuple[Path, BuildReport]]:
    """Folder and report of the fastest build of each case that has one which reaches its clock.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If a bitstream is not the one that its report tells of, or none of any case reaches its clock.
    """
    found = []
    for case in cases:
        folders = [folder for seed in case.seeds if (folder := builds / f"{case.name}-{seed}").is_dir()]
        reached = [(folder, report) for folder in folders if (report := built(folder, case.board)[1]).reached]
        found += sorted(reached, key=lambda pair: -pair[1].reached_mhz)[:1]
    if not found:
        raise UserError(f"no build in {builds} reaches its clock: run python -m gradloom.verif.board_builds run")
    return found


def pack(found: Iterable[tuple[Path, BuildReport]], out: Path) -> list[Path]:
    """An archive of each build, and ``SHA256SUMS``, in ``out``. Returns the archives."""
    out.mkdir(parents=True, exist_ok=True)
    archives, sums = [], []
    for folder, report in found:
        stem = f"gradloom-{version('gradloom')}-{report.board}-{report.machine.name}-{report.build}"
        data = _archive(stem, folder)
        archives.append(out / f"{stem}.zip")
        write_bytes(archives[-1], data)
        sums.append(f"{hashlib.sha256(data).hexdigest()}  {stem}.zip\n")
    write_text(out / "SHA256SUMS", "".join(sums))
    return archives


def _archive(stem: str, folder: Path) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in _MEMBERS:
            member = zipfile.ZipInfo(f"{stem}/{name}", _BEGIN)
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(member, (folder / name).read_bytes())
    return data.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gradloom.verif.board_release", description=__doc__)
    parser.add_argument("--builds", type=Path, default=ROOT / "build" / "boards", metavar="FOLDER")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER")
    chosen = parser.parse_args(arguments)
    try:
        for archive in pack(fastest(board_builds.CASES, chosen.builds), chosen.out):
            print(archive)
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(chosen.out / "SHA256SUMS")
    return 0


if __name__ == "__main__":
    sys.exit(main())
