"""What a build says about itself: read from files of the shape that Yosys and nextpnr write."""

import json

from gradloom.boards.build_report import BuildReport, cells_by_module, read_report


def netlist(*cells):
    return {"modules": {"top": {"cells": {name: {"type": kind} for name, kind in cells}}}}


def test_cells_by_module():
    found = cells_by_module(netlist(
        ("machine.core.acore.lanes.x_LUT4_Z", "LUT4"), ("machine.core.acore.y_CCU2C_S0", "CCU2C"),
        ("machine.core.ccore.z_TRELLIS_FF_Q", "TRELLIS_FF"), ("link.uart", "LUT4"), ("pin", "PDPW16KD"), ("note.a", "$scopeinfo")))
    assert found == {"machine.core.acore": {"LUT4": 1, "CCU2C": 1}, "machine.core.ccore": {"FF": 1}, "link": {"LUT4": 1},
                     "(top)": {"DP16KD": 1}}


def test_slowest_clock(tmp_path):
    """Several clocks: the slowest one is told, with the path that begins and ends on it; kinds that are not used are left out."""
    def path(clock, begin, end):
        return {"from": f"posedge {clock}", "to": f"posedge {clock}",
                "path": [{"from": {"cell": begin}, "to": {"cell": "m"}}, {"from": {"cell": "m"}, "to": {"cell": end}}]}

    file = tmp_path / "nextpnr.json"
    file.write_text(json.dumps({
        "utilization": {"TRELLIS_COMB": {"used": 41, "available": 83640}, "DCUA": {"used": 0, "available": 2}},
        "fmax": {"$glb_fast": {"achieved": 90.5, "constraint": 25.0}, "$glb_slow": {"achieved": 31.5, "constraint": 25.0}},
        "critical_paths": [path("$glb_fast", "a", "b"), path("$glb_slow", "c", "d")]}))
    assert read_report(file, 25.0) == ({"TRELLIS_COMB": (41, 83640)}, 31.5, "from c to d")


def test_text():
    """Clock asked for and reached, every kind with its share, and the parts of the design with the largest first."""
    text = BuildReport(
        use={"TRELLIS_COMB": (41820, 83640)}, modules={"link": {"LUT4": 900}, "machine.core": {"LUT4": 27000, "FF": 3}},
        clock_mhz=25.0, reached_mhz=31.25, critical="from c to d", seed=7, seconds={"synthesis": 270.4}, versions=["Yosys 0.70"],
        files={"top.bit": "ab12"}).text()
    assert "clock 25.00 MHz, 31.25 MHz reached after routing (from c to d)" in text and "seed 7; Yosys 0.70" in text
    assert "synthesis 270 s" in text and "top.bit  sha256 ab12" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["TRELLIS_COMB", "41820", "83640", "50%"] in rows
    assert rows.index(["machine.core", "27000", "3"]) + 1 == rows.index(["link", "900", "0"])
