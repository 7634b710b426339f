"""A report as a build leaves it, for tests of what reads one."""

import dataclasses

from gradloom.boards.build_report import BuildReport, CriticalPath, Hop
from gradloom.boards.slow_ends import SlowEnd
from gradloom.contracts.config import PRESETS

__all__ = ["REPORT"]

REPORT = BuildReport(
    board="ulx3s-85f", config=dataclasses.asdict(PRESETS["nano"]), build=f"{7:016x}", memory="128 KiB of block RAM",
    use={"TRELLIS_COMB": (41820, 83640), "TRELLIS_FF": (30000, 83640), "MULT18X18D": (39, 156)},
    modules={"link.link": {"LUT4": 900, "FF": 400}, "machine.core.acore": {"LUT4": 27000, "FF": 20000, "MULT18X18D": 29},
             "machine.core.ccore": {"LUT4": 5000, "CCU2C": 700, "MULT18X18D": 10}, "machine.csr": {"LUT4": 2000}},
    clock_mhz=25.0, reached_mhz=31.25,
    paths=(CriticalPath("posedge $glbnet$clk", "posedge $glbnet$clk", 32.0, (
        Hop("machine.core.acore.prepare.cmd_FF_Q", 0.5, 4.0), Hop("machine.core.acore.sweep.enable_LUT4", 7.5, 20.0))),),
    slack=[(8_000 + 1_000 * n, 9_000 + 1_000 * n, 10 + 40 * n) for n in range(20)], seed=7,
    seconds={"sources": 10.0, "synthesis": 60.0, "placement": 80.0, "routing": 150.0, "bitstream": 3.0}, versions=["Yosys 0.70"],
    commands=["yosys top.ys", "nextpnr-ecp5 <&>"], files={"top.bit": "ab12"},
    ends=(SlowEnd("design.machine.csr.base", 138, 26.75, 20.5, (
        "design.machine.core.sequencer.command", "design.machine.csr.base")),))
