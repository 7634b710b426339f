"""What a build says about itself: read from tables and logs of the shape that Yosys and nextpnr write."""

from gradloom.boards.build_report import (
    BuildReport,
    CriticalPath,
    Hop,
    cells_by_module,
    critical_paths,
    slack_histogram,
    use_and_clocks,
)
from gradloom.verif.board_reports import REPORT


def netlist(*cells):
    return {"modules": {"top": {"cells": {name: {"type": kind} for name, kind in cells}}}}


def test_cells_by_module():
    found = cells_by_module(netlist(
        ("machine.core.acore.lanes.x_LUT4_Z", "LUT4"), ("machine.core.acore.y_CCU2C_S0", "CCU2C"),
        ("machine.core.ccore.z_TRELLIS_FF_Q", "TRELLIS_FF"), ("link.uart", "LUT4"), ("pin", "PDPW16KD"), ("note.a", "$scopeinfo")))
    assert found == {"machine.core.acore": {"LUT4": 1, "CCU2C": 1}, "machine.core.ccore": {"FF": 1}, "link": {"LUT4": 1},
                     "(top)": {"DP16KD": 1}}


def test_use_and_clocks():
    """Kinds that are not used are left out."""
    use, clocks = use_and_clocks({
        "utilization": {"TRELLIS_COMB": {"used": 41, "available": 83640}, "DCUA": {"used": 0, "available": 2}},
        "fmax": {"fast": {"achieved": 90.5, "constraint": 25.0}, "slow": {"achieved": 31.5, "constraint": 25.0}}})
    assert use == {"TRELLIS_COMB": (41, 83640)} and clocks == {"fast": 90.5, "slow": 31.5}


def test_critical_paths():
    """The slowest path first; the wire behind a cell counts to its hop."""
    def step(kind, delay, begin, end):
        return {"type": kind, "delay": delay, "from": {"cell": begin}, "to": {"cell": end}}

    paths = critical_paths({"critical_paths": [
        {"from": "posedge a", "to": "<async>", "path": [step("routing", 1.5, "x", "y")]},
        {"from": "posedge a", "to": "posedge a", "path": []},
        {"from": "posedge a", "to": "posedge a", "path": [
            step("clk-to-q", 0.5, "r", "r"), step("routing", 2.0, "r", "s"), step("logic", 0.25, "s", "s"),
            step("routing", 1.0, "s", "t"), step("setup", 0.0, "t", "t")]}]})
    assert paths == (
        CriticalPath("posedge a", "posedge a", 3.75, (Hop("r", 0.5, 2.0), Hop("s", 0.25, 1.0), Hop("t", 0.0, 0.0))),
        CriticalPath("posedge a", "<async>", 1.5, (Hop("x", 0.0, 1.5),)))
    assert paths[0].routing_share == 0.8


LOG = """Info: Slack histogram:
Info:  legend: * represents 9 endpoint(s)
Info: [     1,     5) |**+
Info: Slack histogram:
Info:  legend: * represents 400 endpoint(s)
Info:          + represents [1,400) endpoint(s)
Info: [ -1500,   500) |+
Info: [   500,  2500) |***+
Info: [  2500,  4500) |
"""


def test_slack_histogram():
    """The last one counts: the earlier ones are estimates before routing."""
    assert slack_histogram(LOG) == [(-1500, 500, 1), (500, 2500, 1201), (2500, 4500, 0)]
    assert slack_histogram("Info: nothing") == []


def test_json():
    """A report is what it was written from."""
    assert BuildReport.from_json(REPORT.json()) == REPORT and REPORT.reached
