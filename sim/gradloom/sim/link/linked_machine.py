"""A machine behind the board's end of the cable, both in RTL: what a board is, less its pins and its memory's controller.

Each has a port of its own to the memory; there is no arbiter between them.
"""

from amaranth.back import verilog

from gradloom.rtl.board.link.board_link import BoardLink
from gradloom.rtl.config import Config
from gradloom.rtl.memory_path.axi import lite_members, read_members, write_members
from gradloom.sim.link.link_device import CLOCK, TOP, LinkSimulation
from gradloom.sim.verilog import TOP as MACHINE
from gradloom.sim.verilog import machine_verilog

__all__ = ["linked_machine"]

_LINK = "board_link"


def linked_machine(config: Config, memory_bytes: int) -> LinkSimulation:
    """A simulated board; the host reaches it through a :class:`~gradloom.host.link.transport.SimulatedTransport`.

    Parameters
    ----------
    config : :class:`Config`
        Of a machine with one port to the memory, small enough to be built as a whole.
    memory_bytes : :class:`int`
        Memory, from address 0; a power of two.

    Raises
    ------
    :exc:`ValueError`
        If the machine has more ports.
    """
    if (config.load_channels, config.store_channels) != (1, 1):
        raise ValueError(f"a linked machine has one port to its memory, {config.name} has more")
    files, _ = machine_verilog(config)
    link = verilog.convert(BoardLink(config, clock=CLOCK, memory_bytes=memory_bytes), name=_LINK, emit_src=False)
    text = "\n".join([*files.values(), str(link), _wrapper(config)])
    return LinkSimulation(config, memory_bytes=memory_bytes, verilog=text)


def _wrapper(config: Config) -> str:
    """The top module: the link's register port on the machine's, its memory port beside the machine's."""
    memory = {name: member for name, member in (read_members(config) | write_members(config)).items()}
    outer = {"clk": ("input", 1), "rst": ("input", 1), "rx__valid": ("input", 1), "rx__payload": ("input", 8),
             "rx__ready": ("output", 1), "tx__valid": ("output", 1), "tx__payload": ("output", 8), "tx__ready": ("input", 1),
             "rx_error": ("input", 1), "bit_step": ("output", 16)}
    machine = {"clk": "clk", "rst": "rst", "irq": "irq"}
    link = {name: name for name in outer} | {"irq": "irq", "tx_idle": "1'b1", "line_break": "1'b0", "window_ready": "1'b1",
                                             "window_rdata": "32'b0"}
    for name, member in memory.items():
        direction = "output" if member.flow.name == "Out" else "input"
        for prefix, ports in (("m_axi_", machine), ("m1_axi_", link)):
            port = name.replace("m_axi_", prefix)
            outer[port] = (direction, member.shape)
            ports[name] = port
    wires = ["wire irq;"]
    for name, member in lite_members().items():
        wires.append(f"wire [{member.shape - 1}:0] {name};")
        machine[name] = name
        link[name.replace("s_axil_", "m_axil_")] = name
    header = ",\n".join(f"  {direction} [{width - 1}:0] {name}" for name, (direction, width) in outer.items())
    instances = [f"{module} {module}_ ({', '.join(f'.{port}({wire})' for port, wire in ports.items())});"
                 for module, ports in ((MACHINE, machine), (_LINK, link))]
    return f"module {TOP} (\n{header}\n);\n" + "\n".join(wires + instances) + "\nendmodule\n"
