"""Clocks that an ECP5's PLL makes from a board's oscillator."""

import dataclasses

from amaranth.hdl import Cat, ClockDomain, Const, Instance, Module, Signal, Value
from amaranth.lib.cdc import ResetSynchronizer

__all__ = ["Pll", "add_clock", "find_pll"]

_LEAST_PHASE_DETECTOR = 3_125_000
_MOST_PHASE_DETECTOR = 400_000_000
_LEAST_VCO = 400_000_000
_MOST_VCO = 800_000_000
_MOST_CLOCK = 400_000_000
_MOST_DIVIDER = 128


@dataclasses.dataclass(frozen=True)
class Pll:
    """Dividers of an EHXPLLL whose feedback is its own output: output = oscillator * feedback / reference.

    Limits are those of the family's data sheet (Lattice FPGA-DS-02012, sysCLOCK PLL timing): 3.125 to 400 MHz at the phase
    detector, 400 to 800 MHz at the oscillator inside, at most 400 MHz outside, dividers of 1 to 128.
    """

    reference: int
    feedback: int
    output: int


def find_pll(oscillator: int, clock: int) -> Pll:
    """The dividers that make ``clock`` Hz of ``oscillator`` Hz exactly, with the fastest phase detector, then the VCO nearest to
    the middle of its range.

    Raises
    ------
    :exc:`ValueError`
        If there are none.
    """
    middle = (_LEAST_VCO + _MOST_VCO) // 2
    for reference in range(1, _MOST_DIVIDER + 1):
        if not _LEAST_PHASE_DETECTOR * reference <= oscillator <= _MOST_PHASE_DETECTOR * reference:
            continue
        feedback, rest = divmod(clock * reference, oscillator)
        if rest or not 1 <= feedback <= _MOST_DIVIDER or clock > _MOST_CLOCK:
            continue
        outputs = [n for n in range(1, _MOST_DIVIDER + 1) if _LEAST_VCO <= n * clock <= _MOST_VCO]
        if outputs:
            return Pll(reference, feedback, min(outputs, key=lambda n: abs(n * clock - middle)))
    raise ValueError(f"a clock of {clock} Hz cannot be made of one of {oscillator} Hz by an ECP5's PLL: "
                     f"take a multiple of {oscillator / 8:.0f} Hz from 3125000 to 400000000")


def _late(pll: Pll, degrees: int) -> tuple[int, int]:
    """Whole cycles of the VCO by which a second output of the same divider is late, and eighths of one.

    Raises
    ------
    :exc:`ValueError`
        If an eighth of a cycle of the VCO does not divide the phase.
    """
    eighths, rest = divmod(8 * pll.output * degrees, 360)
    if rest or not 0 <= degrees < 360:
        raise ValueError(f"a phase of {degrees} degrees cannot be made by an ECP5's PLL whose output is divided by {pll.output}: "
                         f"take a multiple of {45 / pll.output:g} degrees below 360")
    return divmod(eighths, 8)


def add_clock(m: Module, pin: Value, oscillator: int, clock: int, *, memory_phase: int | None = None) -> None:
    """The domain ``sync`` at ``clock`` Hz from the board's oscillator at ``pin``. It begins in reset, with a PLL until that has
    locked.

    Parameters
    ----------
    memory_phase : :class:`int`, optional
        Degrees by which the clock of a second domain, ``memory``, which has no reset, is late.
    """
    m.domains.sync = domain = ClockDomain()
    if clock == oscillator and memory_phase is None:
        m.domains.awake = awake = ClockDomain(reset_less=True)
        m.d.comb += [domain.clk.eq(pin), awake.clk.eq(pin)]
        # Registers are 0 when the device is configured; 1 comes to the last one in the end.
        cycles = Signal(4)
        m.d.awake += cycles.eq(Cat(1, cycles))
        m.d.comb += domain.rst.eq(~cycles[-1])
        return
    pll, locked = find_pll(oscillator, clock), Signal()
    second = {}
    if memory_phase is not None:
        m.domains.memory = memory = ClockDomain(reset_less=True)
        cycles, eighths = _late(pll, memory_phase)
        second = {"p_CLKOS_ENABLE": "ENABLED", "p_CLKOS_DIV": pll.output, "p_CLKOS_CPHASE": pll.output - 1 + cycles,
                  "p_CLKOS_FPHASE": eighths, "a_FREQUENCY_PIN_CLKOS": str(clock / 1e6), "o_CLKOS": memory.clk}
    m.submodules.pll = Instance(
        "EHXPLLL", a_FREQUENCY_PIN_CLKI=str(oscillator / 1e6), a_FREQUENCY_PIN_CLKOP=str(clock / 1e6),
        p_CLKI_DIV=pll.reference, p_CLKFB_DIV=pll.feedback, p_CLKOP_DIV=pll.output, p_CLKOP_ENABLE="ENABLED",
        p_CLKOP_CPHASE=pll.output - 1, p_CLKOP_FPHASE=0, p_FEEDBK_PATH="CLKOP", p_PLLRST_ENA="DISABLED",
        p_INTFB_WAKE="DISABLED", p_STDBY_ENABLE="DISABLED", p_DPHASE_SOURCE="DISABLED", p_OUTDIVIDER_MUXA="DIVA",
        i_CLKI=pin, i_CLKFB=domain.clk, **{f"i_{port}": Const(0, 1) for port in (
            "RST", "STDBY", "PHASESEL0", "PHASESEL1", "PHASEDIR", "PHASESTEP", "PHASELOADREG", "PLLWAKESYNC", "ENCLKOP")},
        o_CLKOP=domain.clk, o_LOCK=locked, **second)
    m.submodules.reset = ResetSynchronizer(~locked, domain="sync")
