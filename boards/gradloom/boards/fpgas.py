"""FPGAs as data: what they hold, and what memory stands behind them on the boards that the papers and this project use."""

import dataclasses

from gradloom.boards.board import BOARDS
from gradloom.boards.capacity import CAPACITY
from gradloom.contracts.config import ConfigError

__all__ = ["FPGAS", "Fpga", "fpga_named"]

_FILLED = 0.80
"""Share of the LUTs of a device that placement and routing are expected to carry."""
_ROUTED = 0.42
"""Share of the LUTs of an LFE5U-85F that has been routed: 34,827 of 83,640, by ecp5-9 with link and SDRAM (docs/boards.md).
Machines of 48 % and more were tried, and none was carried through (docs/ecp5.md)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fpga:
    """An FPGA and the memory behind it.

    Parameters
    ----------
    name, part : :class:`str`
        As one asks for it, and as its maker calls it.
    family : :class:`str`
        ``ecp5``, or ``xc7`` for every Xilinx device: the resource fit is of the 7 series, whose LUTs and block RAMs later families
        share.
    luts, flip_flops, dsps : :class:`int`
        LUT4 and MULT18X18D, or LUT6 and DSP slices.
    brams : :class:`int`
        Block RAMs of 18 Kbit (ecp5) or 36 Kbit (xc7).
    bandwidth : :class:`float`
        Bytes a second of its memory, reads and writes together.
    clock_hz : :class:`float`
        Clock that machines of this project are reckoned with there: routed for boards of :data:`~gradloom.boards.board.BOARDS`,
        else that of the paper which used the board, or of ETA.
    filled : :class:`float`
        Share of the LUTs that a design may take.
    why_filled : :class:`str`
        Where that share comes from.
    source : :class:`str`
        Of its sizes and its bandwidth.
    board : :class:`str`, optional
        The board of this project that has it: its link and memory controller take their part of it.
    """

    name: str
    part: str
    family: str
    luts: int
    flip_flops: int
    dsps: int
    brams: int
    bandwidth: float
    clock_hz: float
    filled: float = _FILLED
    why_filled: str = "what placement and routing are expected to carry"
    source: str = ""
    board: str | None = None


def _ecp5(name: str, part: str, *, board: str | None = None) -> Fpga:
    cells = CAPACITY[part]
    on_board = BOARDS.get(board or "")
    clock = on_board.clock if on_board is not None else 50_000_000
    word = on_board.part.word_bits // 8 if on_board is not None else 2
    return Fpga(name=name, part=part, family="ecp5", luts=cells["TRELLIS_COMB"], flip_flops=cells["TRELLIS_FF"],
                  dsps=cells["MULT18X18D"], brams=cells["DP16KD"], bandwidth=float(word * clock), clock_hz=float(clock),
                  filled=_ROUTED, why_filled="the largest share of an ECP5's LUTs that has been routed", board=board,
                  source="nextpnr's counts; an SDRAM of 16 bits at the machine's clock")


def _xilinx(name: str, part: str, cells: tuple[int, int, int, int], bandwidth: float, clock_hz: float, source: str) -> Fpga:
    luts, flip_flops, dsps, brams = cells
    return Fpga(name=name, part=part, family="xc7", luts=luts, flip_flops=flip_flops, dsps=dsps, brams=brams,
                  bandwidth=bandwidth, clock_hz=clock_hz, source=source)


FPGAS: dict[str, Fpga] = {device.name: device for device in (
    *(_ecp5(name, board.die, board=name) for name, board in BOARDS.items()),
    _ecp5("lfe5u-25f", "LFE5U-25F"), _ecp5("lfe5u-45f", "LFE5U-45F"), _ecp5("lfe5u-85f", "LFE5U-85F"),
    _xilinx("xc7a35t", "XC7A35T", (20_800, 41_600, 90, 50), 0.667e9, 100e6,
            "Xilinx DS180; DDR3 of 16 bits at 333 Mb/s a pin (Arty A7)"),
    _xilinx("xc7a100t", "XC7A100T", (63_400, 126_800, 240, 135), 0.667e9, 100e6,
            "Xilinx DS180; DDR3 of 16 bits at 333 Mb/s a pin (Arty A7)"),
    _xilinx("xc7a200t", "XC7A200T", (134_600, 269_200, 740, 365), 1.6e9, 100e6,
            "Xilinx DS180; DDR3 of 16 bits at 800 Mb/s a pin (Nexys Video)"),
    _xilinx("pynq-z1", "XC7Z020", (53_200, 106_400, 220, 140), 2.1e9, 100e6,
            "Xilinx DS190; DDR3 of 16 bits at 1050 Mb/s a pin"),
    _xilinx("vc709", "XC7VX690T", (433_200, 866_400, 3600, 1470), 29.9e9, 200e6,
            "Xilinx DS180 (ETA prints 443.2 thousand LUTs); two DDR3 SODIMMs, as ETA gives them"),
    _xilinx("zcu102", "XCZU9EG", (274_080, 548_160, 2520, 912), 19.2e9, 100e6,
            "Xilinx DS891; DDR4 of 64 bits at 2400 Mb/s a pin"),
    _xilinx("zcu111", "XCZU28DR", (425_280, 850_560, 4272, 1080), 10e9, 180e6,
            "Xilinx DS889; Fox's conservative estimate of its memory"),
    _xilinx("vu9p", "XCVU9P", (1_182_240, 2_364_480, 6840, 2160), 63.9e9, 200e6,
            "Xilinx DS890, without UltraRAM; three DIMMs of the MAX5, as DarkFPGA gives them"),
)}
"""By name. Sizes are their makers'."""


def fpga_named(name: str) -> Fpga:
    """A device by name.

    Raises
    ------
    :exc:`~gradloom.contracts.config.ConfigError`
        If there is none of this name.
    """
    found = FPGAS.get(name.lower())
    if found is None:
        raise ConfigError(f"there is no device {name!r}: give one of {', '.join(FPGAS)}")
    return found
