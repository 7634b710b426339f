"""A routed :class:`~gradloom.verif.ecp5.small_board.SmallBoard` beside its RTL in one simulation: the same into both, and the same
must come out in every cycle."""

import dataclasses
import random
import re
from collections.abc import Sequence

from gradloom.contracts.frame_format import Kind, bit_step
from gradloom.host.link.frames import encode, read_request, write_request
from gradloom.sim.link.link_device import CLOCK
from gradloom.sim.netlist.cells import models
from gradloom.verif.ecp5.small_board import CONFIG, MEMORY_BYTES
from gradloom.verif.ecp5.verilated import run_bench
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
    different : :class:`int`
        In how many the netlist's outputs were not those of the RTL.
    bytes : :class:`bytes`
        What the RTL sent.
    """

    cycles: int
    different: int
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


def _instance(module: str, name: str, more: str = "") -> str:
    joined = ", ".join(f".{port}({net.format(out=f'{name}_out')})" for port, net in _PORTS.items())
    return f"  wire [17:0] {name}_out;\n  {module} {name}({joined}{more});"


_BENCH = """module bench;
  reg clk = 0, rst = 1, ready = 0;
  reg [8:0] items[0:{last}];
  reg [31:0] noise = 32'h1234567;
  reg [7:0] serial = 0;
  integer at = 0, calm = 0, cycle = 0, different = 0, fault = 0;
  wire waits = at <= {last} && items[at][8];
  wire valid = at <= {last} && !items[at][8] && noise[3:0] != 0;
  wire [7:0] rx = items[at > {last} ? {last} : at][7:0];
  reg taken;
{instances}
  initial begin
    void'($value$plusargs("fault=%d", fault));
    $readmemh("items.hex", items);
    while (at <= {last}) begin
      ready = noise[6:4] != 0;
      serial = noise[15:8];
      #1;
      if (cycle >= 8) begin
        if (routed_out !== rtl_out) different = different + 1;
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
    $display("CYCLES %0d DIFFERENT %0d", cycle, different);
    $finish;
  end
endmodule
"""
_CALM = 150
"""Cycles without a byte after which no answer comes any more."""


def run_beside_rtl(rtl: str, module: str, netlist: str, items: Sequence[int], faults: int) -> list[Outcome]:
    """Feed ``items`` (:func:`traffic`) to the RTL's ``module`` and to a netlist with so many faults (module ``routed_cells``):
    first as it is, then with each fault alone."""
    text = _BENCH.format(last=len(items) - 1, calm=_CALM, instances="\n".join([
        _instance(module, "rtl"), _instance("routed_cells", "routed", f", .fault(fault[{faults - 1}:0])")]))
    logs = run_bench("\n".join([text, rtl, netlist, *models().values()]), "bench",
                     {"items.hex": "".join(f"{item:x}\n" for item in items)},
                     [f"+fault={(1 << n) >> 1}" for n in range(faults + 1)])
    found = []
    for log in logs:
        (cycles, different), = re.findall(r"^CYCLES (\d+) DIFFERENT (\d+)$", log, re.MULTILINE)
        found.append(Outcome(int(cycles), int(different),
                             bytes(int(byte, 16) for byte in re.findall(r"^TX (\w\w)$", log, re.MULTILINE))))
    return found
