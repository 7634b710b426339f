"""``gradloom first-light``: a new board, from its bitstream to a network that learns on it; one digest beside the expected one."""

import argparse

from gradloom.boards.board import board_named
from gradloom.host.boards import flash_command
from gradloom.host.commands import verify_command

__all__ = ["EXPECTED", "STEPS", "run"]

NETWORK, STEPS, BATCH = "digits-cnn", 20, 16
EXPECTED = "eaa4cd1530cd3081"
"""Of the parameters after these steps from seed 1: on every device the same (docs/arithmetic.md). A change of the arithmetic or of
the network changes it."""


def run(options: argparse.Namespace) -> int:
    """Load and test the board, train on it beside the golden model, compare every tensor. Returns 0 only if all is as expected."""
    from gradloom.host import cli

    board = board_named(options.board)
    port = "" if options.port is None else f":{options.port}"
    device = f"sim:{board.name}" if options.simulated else f"{board.name}{port}"
    if not options.simulated:
        flashed = flash_command.run(argparse.Namespace(board=board.name, build=options.build, port=options.port, persistent=False,
                                                       no_test=False))
        if flashed:
            return flashed
    steps = cli.parse(["verify", "--network", NETWORK, "--device", device, "--steps", str(STEPS), "--batch", str(BATCH)])
    code, digest = verify_command.verify(steps)
    if code == 0:
        same = digest[:16] == EXPECTED
        print(f"gradloom: expected {EXPECTED}, {board.name} has {digest[:16]}: {'first light' if same else 'another gradloom?'}")
        return 0 if same else 1
    return code

