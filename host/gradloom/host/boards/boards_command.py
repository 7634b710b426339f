"""``gradloom boards``: the boards that can be built for, and the cables of them that are here."""

import argparse
import dataclasses
import json

from gradloom.boards.board import BOARDS, Board
from gradloom.host.link.cables import cables

__all__ = ["run"]


def _record(board: Board) -> dict[str, object]:
    config = board.config
    return {"board": board.name, "die": board.die, "machine": board.machine, "macs": config.macs, "clock_mhz": board.clock / 1e6,
            "memory": board.memory, "memory_mib": board.part.size >> 20, "word_bits": board.part.word_bits, "baud": board.baud,
            "cables": [dataclasses.asdict(cable) for cable in cables(board)]}


def run(options: argparse.Namespace) -> int:
    records = [_record(board) for board in BOARDS.values()]
    if options.json:
        print(json.dumps(records, indent=1))
        return 0
    rows = [("board", "part", "machine", "clock", "memory", "cable", "here")]
    for board in BOARDS.values():
        here = ", ".join(f"{cable.port} ({cable.serial or 'no serial number'})" for cable in cables(board)) or "-"
        rows.append((board.name, board.die, f"{board.machine}, {board.config.macs} MACs", f"{board.clock / 1e6:g} MHz",
                     f"{board.part.size >> 20} MiB x{board.part.word_bits}", f"{board.baud / 1e6:g} Mbaud", here))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    return 0
