"""Sources of a board, and the stages of its build with tools that only write files."""

import dataclasses
import json

import pytest

from gradloom.boards import build
from gradloom.boards.board import BOARDS
from gradloom.boards.build import BuildRequest
from gradloom.boards.build_report import BuildReport
from gradloom.boards.slow_ends import SlowEnd
from gradloom.boards.tools import BuildError, Hopeless
from gradloom.contracts.config import PRESETS

NANO = PRESETS["nano"]
REQUEST = BuildRequest(board=BOARDS["ulx3s-85f"], config=NANO, clock=12_500_000, block_ram=1 << 16)


@pytest.fixture
def no_machine(monkeypatch):
    """The machine's own Verilog is the business of other tests, and takes a minute."""
    monkeypatch.setattr(build, "emit_verilog", lambda config: {"gradloom.v": f"// {config.name} {config.digest()}\n"})


def written(folder, **changes):
    folder.mkdir()
    number = build.write_sources(folder, dataclasses.replace(REQUEST, **changes))
    return number, {path.name: path.read_bytes() for path in folder.iterdir()}


def test_sources(no_machine, tmp_path):
    """The same request gives the same bytes; a slower clock is made by a PLL and gives another build number."""
    number, files = written(tmp_path / "a", clock=25_000_000)
    assert (number, files) == written(tmp_path / "b", clock=25_000_000)
    assert sorted(files) == ["gradloom.v", "top.il", "top.lpf", "top.ys"]
    pins = files["top.lpf"].decode()
    assert 'LOCATE COMP "clk25_0__io" SITE "G2"' in pins and 'LOCATE COMP "uart_0__rx__io" SITE "M1"' in pins
    assert 'FREQUENCY PORT "clk25_0__io" 25000000.0 HZ' in pins
    assert b"src" not in files["top.il"], "where the checkout lies would decide what is built"
    assert b"sdram" not in files["top.lpf"]
    _, with_sdram = written(tmp_path / "sdram", block_ram=None)
    assert b'LOCATE COMP "sdram_0__clk__io" SITE' in with_sdram["top.lpf"]
    slow, slow_files = written(tmp_path / "slow")
    assert slow != number and b"EHXPLLL" in slow_files["top.il"] and b"EHXPLLL" not in files["top.il"]


def test_build_number():
    """Whatever decides the netlist gives another number; seed and routing do not decide it."""
    other = dataclasses.replace(BOARDS["ulx3s-85f"], name="other")
    numbers = {dataclasses.replace(REQUEST, **change).number("module gradloom") for change in (
        {}, {"board": other}, {"clock": 25_000_000}, {"block_ram": 1 << 15}, {"block_ram": None})} | {
            REQUEST.number("module gradloom()")}
    assert len(numbers) == 6
    same = dataclasses.replace(REQUEST, seed=9, margin=3, router=("--router", "router1"))
    assert same.number("module gradloom") == REQUEST.number("module gradloom")


@pytest.mark.parametrize(("changes", "message"), [
    ({"block_ram": 100 << 10}, "the block RAM behind a machine must be a power of two of KiB, not 100 KiB"),
    ({"block_ram": 512}, r"not 0\.5 KiB"),
    ({"block_ram": None, "clock": 200_000_000}, "ULX3S cannot run at 200 MHz"),
    ({"clock": 13_000_000}, "a clock of 13000000 Hz cannot be made of one of 25000000 Hz")])
def test_wrong_requests(changes, message):
    """They are refused before anything is done."""
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(REQUEST, **changes)


PLACED = json.dumps({"modules": {"top": {
    "settings": {"seed": "7", "router": "router1", "timing_driven": "0", "route": "0"},
    "netnames": {"a": {"bits": [2], "attributes": {"ROUTING": "X1/Y2;;1", "src": "a.v"}}, "b": {"bits": [3]}}}}})
"""As nextpnr writes it: with the router that it did not run."""


SDF = """(DELAYFILE
 (CELL (CELLTYPE "top")
  (INSTANCE )
  (DELAY (ABSOLUTE
   (INTERCONNECT a_TRELLIS_FF_Q/Q b_TRELLIS_FF_Q/DI (1000:1000:1000) (1000:1000:1000))
  ))
 )
 (CELL
  (INSTANCE a_TRELLIS_FF_Q)
   (IOPATH CLK Q (430:477:525) (430:477:525))
 )
 (CELL
  (INSTANCE b_TRELLIS_FF_Q)
   (SETUPHOLD (posedge DI) (posedge CLK) (0:0:25) (0:0:9))
 )
)
"""
"""Of a wire between two registers."""


class Tools:
    """Tools that write what the true ones do, for a clock that reaches 21.5 MHz."""

    def __init__(self, monkeypatch):
        self.calls: list[list[str]] = []
        self.cells = {"machine.a_LUT4": {"type": "LUT4"}}
        self.fails = ""
        self.lost = 0
        """How many routings come to no end."""
        for name, value in {"write_sources": self.write, "run_tool": self.run, "tool_path": str, "tool_version": str}.items():
            monkeypatch.setattr(build, name, value)

    @property
    def names(self):
        return [call[0] for call in self.calls]

    def write(self, folder, request):
        for name in ("gradloom.v", "top.il", "top.lpf", "top.ys"):
            (folder / name).write_text(f"{request.config.name} {request.clock}")
        return 0x1234

    def run(self, stage, command, folder, wanted, report, hopeless=None):
        self.calls.append([stage, *command])
        if stage == self.fails:
            raise KeyboardInterrupt
        if stage == "routing" and self.lost:
            self.lost -= 1
            raise Hopeless("routing comes to no end")
        files = {"synthesis": {"top.json": json.dumps({"modules": {"top": {"cells": self.cells}}})},
                 "placement": {"placed.json": PLACED} if "placed.json" in command else {
                     "placed-again.json": PLACED.replace('"7"', '"8"')},
                 "routing": {"top.config": "config", "top.sdf": SDF, "routed.json": "{}", "nextpnr.json": json.dumps({
                     "utilization": {}, "fmax": {"clk": {"achieved": 21.5, "constraint": 25}}, "critical_paths": []})},
                 "bitstream": {"top.bit": "bits"}}
        for name, text in (files[stage] | {f"{stage}.log": "said"}).items():
            (folder / name).write_text(text)
        report("runs")


@pytest.fixture
def tools(monkeypatch):
    return Tools(monkeypatch)


def quiet(stage, text):
    pass


def test_build(tools, tmp_path):
    """Every stage tells that it runs; the report is in the folder and says what was made."""
    told = []
    result = build.build(tmp_path, REQUEST, report=lambda stage, text: told.append((stage, text)))
    assert told[1:] == [(stage, "runs") for stage in build.STAGES[1:]]
    assert result == BuildReport.from_json((tmp_path / "report.json").read_text())
    assert result.reached_mhz == 21.5 and result.build == f"{0x1234:016x}" and set(result.seconds) == set(build.STAGES)
    assert result.files["top.bit"] and len(result.commands) == 4
    assert result.ends == (SlowEnd("b", 1, 1.55, 1.0, ("a",)),)


def test_all_clocks_are_constrained(tools, tmp_path):
    """Those of a PLL have no constraint of their own, and nextpnr's default is 12 MHz."""
    build.build(tmp_path, REQUEST, report=quiet)
    for call in tools.calls[1:3]:
        assert call[call.index("--freq") + 1] == "12.5"


def test_placement_is_routed_as_it_is(tools, tmp_path):
    """Routing begins with the placement that was written, and does not place again. Settings of the design come before options, so
    the router must not stand there: a build was routed by another one than it was told."""
    build.build(tmp_path, REQUEST, report=quiet)
    placement, routing = tools.calls[1:3]
    assert placement[placement.index("--write") + 1] == "placed.json" and routing[routing.index("--json") + 1] == "routable.json"
    assert "--no-place" in routing and "--no-route" in placement
    assert json.loads((tmp_path / "routable.json").read_text()) == {"modules": {"top": {
        "settings": {"seed": "7", "router2/bbMargin/x": "12", "router2/bbMargin/y": "12"},
        "netnames": {"a": {"bits": [2], "attributes": {"src": "a.v"}}, "b": {"bits": [3]}}}}}


def test_a_placement_that_does_not_route_is_made_anew(tools, tmp_path):
    """From another seed, the same for everybody; the report has its command, and another build does nothing of it again."""
    tools.lost, told = 1, []
    result = build.build(tmp_path, REQUEST, report=lambda stage, text: told.append(text))
    seeds = [call[call.index("--seed") + 1] for call in tools.calls if call[0] in ("placement", "routing")]
    assert tools.names[1:5] == ["placement", "routing", "placement", "routing"] and seeds == ["1", "1", "1001", "1001"]
    assert "ever more wires are wanted twice: cells are placed anew" in told
    assert [command.count("1001") for command in result.commands] == [0, 0, 1, 1, 0]
    assert json.loads((tmp_path / "routable.json").read_text())["modules"]["top"]["settings"]["seed"] == "8"
    tools.calls.clear()
    assert build.build(tmp_path, REQUEST, report=quiet).commands == result.commands
    assert tools.names == ["bitstream"]


def test_what_does_not_route_twice_is_done_without_timing(tools, tmp_path):
    tools.lost, told = 2, []
    result = build.build(tmp_path, REQUEST, report=lambda stage, text: told.append(text))
    assert [("--no-tmdriv" in call) for call in tools.calls if call[0] == "routing"] == [False, False, True]
    assert tools.names.count("placement") == 2
    assert "ever more wires are wanted twice: once more, without regard to timing" in told
    assert ["--no-tmdriv" in command for command in result.commands] == [False, False, False, True, False]


@pytest.mark.parametrize(("options", "tries"), [((), 3), (("--no-tmdriv",), 2)])
def test_a_routing_without_any_end(tools, tmp_path, options, tries):
    tools.lost = tries
    with pytest.raises(BuildError, match="routing comes to no end: give another --seed"):
        build.build(tmp_path, dataclasses.replace(REQUEST, router=(*build.ROUTER_OPTIONS, *options)), report=quiet)
    assert tools.names.count("routing") == tries


def test_clock_not_reached(tools, tmp_path):
    """No bitstream is left that does not work; the report is."""
    with pytest.raises(BuildError, match=r"the clock of 25 MHz is not reached, 21\.50 MHz is: give a slower one with --freq"):
        build.build(tmp_path, dataclasses.replace(REQUEST, clock=25_000_000), report=quiet)
    assert not BuildReport.from_json((tmp_path / "report.json").read_text()).reached and not (tmp_path / "top.bit").exists()


def test_no_bitstream_of_an_earlier_build_stays(tools, tmp_path):
    build.build(tmp_path, REQUEST, report=quiet)
    with pytest.raises(BuildError):
        build.build(tmp_path, dataclasses.replace(REQUEST, clock=25_000_000), report=quiet)
    assert not (tmp_path / "top.bit").exists()


def test_same_build_again(tools, tmp_path):
    """Nothing long is done twice."""
    build.build(tmp_path, REQUEST, report=quiet)
    tools.calls.clear()
    build.build(tmp_path, REQUEST, report=quiet)
    assert tools.names == ["bitstream"]
    build.build(tmp_path, REQUEST, fresh=True, report=quiet)
    assert tools.names[1:] == list(build.STAGES[1:])


@pytest.mark.parametrize(("change", "stages"), [
    ({"seed": 2}, ["placement", "routing", "bitstream"]), ({"margin": 3}, ["routing", "bitstream"]),
    ({"router": ("--router", "router1")}, ["routing", "bitstream"]), ({"config": PRESETS["ulx3s"]}, list(build.STAGES[1:]))])
def test_only_what_changed(tools, tmp_path, change, stages):
    build.build(tmp_path, REQUEST, report=quiet)
    tools.calls.clear()
    build.build(tmp_path, dataclasses.replace(REQUEST, **change), report=quiet)
    assert tools.names == stages


def test_interrupted_build_goes_on(tools, tmp_path):
    tools.fails = "routing"
    with pytest.raises(KeyboardInterrupt):
        build.build(tmp_path, REQUEST, report=quiet)
    tools.fails = ""
    tools.calls.clear()
    build.build(tmp_path, REQUEST, report=quiet)
    assert tools.names == ["routing", "bitstream"]


def test_too_large_is_refused_before_placement(tools, tmp_path):
    tools.cells = {f"machine.m{n}": {"type": "MULT18X18D"} for n in range(157)}
    with pytest.raises(BuildError, match="nano cannot fit an LFE5U-85F: it takes at least 157 multipliers of 156"):
        build.build(tmp_path, REQUEST, report=quiet)
    assert tools.names == ["synthesis"]
