"""A machine as nextpnr routed it for a board: a step of a tiny network is golden in every byte, and is not with a fault planted.

``python -m gradloom.verif.ecp5.routed_machine BOARD FOLDER`` takes what ``gradloom build`` left in a folder.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from gradloom.boards.board import Board, board_named
from gradloom.host.devices.board_choice import BoardChoice
from gradloom.host.devices.board_opening import link_netlist
from gradloom.host.devices.device import MachineError
from gradloom.host.devices.routed_build import RoutedBuild, routed_build
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.files import UserError
from gradloom.sim.board.board_simulation import BoardSimulation
from gradloom.sim.board.routed_board import routed_board
from gradloom.sim.simulation import ProtocolError
from gradloom.verif.ecp5.routing import routed_faults, with_faults
from gradloom.verif.system_bench import make_case, verify_step

__all__ = ["MACHINE_FAULTS", "Outcome", "check_netlist"]

_CCORE = "design.machine.core.ccore."
_PE = f"{_CCORE}wpu_0_0.pe_0_0"
MACHINE_FAULTS = routed_faults(_PE, held=f"{_CCORE}cluster_0.weights.active_0_0[5]", logic=f"{_PE}.mac0.adder.bits12",
                               tables=("0110011010101010",))
"""In the first MAC: a bit of its sum, bits of a factor; and a bit of its weight, which is held while the next one is loaded."""
NETWORK, BATCH = "tiny-branches", 2


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a step.

    Parameters
    ----------
    tensors, bytes : :class:`int`
        That were compared and were golden.
    cycles : :class:`int`
        Of the simulation, from power-up on.
    told : :class:`str`
        How the first difference, or what the machine or the memory said, begins; empty if all was golden.
    """

    tensors: int
    bytes: int
    cycles: int
    told: str = ""


def _step(choice: BoardChoice, build: RoutedBuild, simulation: BoardSimulation) -> Outcome:
    """Calibration and a step of the tiny network, and what differs from golden."""
    case = make_case(NETWORK, BATCH, 1)
    state = case.initial()
    try:
        runner = ProgramRunner(case.network, build.machine, case.batch, 1,
                               lambda size: link_netlist(choice, build, build.machine, simulation, size))
        runner.load(state)
        found = verify_step(case, runner, state, 0)
    except (AssertionError, MachineError, ProtocolError) as error:
        return Outcome(0, 0, simulation.cycle, (str(error) or type(error).__name__).splitlines()[0])
    return Outcome(found.tensors, found.bytes, simulation.cycle)


def check_netlist(board: Board, folder: Path, faults: Sequence[str] = ("", *MACHINE_FAULTS)) -> dict[str, Outcome]:
    """A step on what was built in a folder for each fault, ``""`` for none; from registers and memories of chance each time."""
    build, choice = routed_build(board, folder), BoardChoice(board, simulated=True, build=folder)
    design = with_faults(build.design(), MACHINE_FAULTS)
    found = {}
    for seed, fault in enumerate(faults, 1):
        with routed_board(design, board.part, clock=build.clock, capture=board.capture, power_up=seed,
                          faults=len(MACHINE_FAULTS)) as simulation:
            if fault:
                simulation.plant(1 << list(MACHINE_FAULTS).index(fault))
            found[fault] = _step(choice, build, simulation)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gradloom.verif.ecp5.routed_machine", description=__doc__)
    parser.add_argument("board", metavar="BOARD")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    chosen = parser.parse_args(arguments)
    try:
        found = check_netlist(board_named(chosen.board), chosen.folder)
    except (ValueError, UserError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for fault, outcome in found.items():
        said = f"every byte golden, {outcome.tensors} tensors, {outcome.bytes:,} bytes" if not outcome.told else outcome.told
        print(f"{fault or 'as routed'}: {said} ({outcome.cycles:,} cycles)")
    return int(any(bool(fault) != bool(outcome.told) for fault, outcome in found.items()))


if __name__ == "__main__":
    sys.exit(main())
