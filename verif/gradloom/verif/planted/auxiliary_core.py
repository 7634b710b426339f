"""Planted in the auxiliary core (``rtl/acore``); each with the fastest test that notices it."""

from gradloom.verif.planted.fault import Fault

__all__ = ["FAULTS"]

_RTL = "rtl/gradloom/rtl"
_TESTS = "verif/tests"

FAULTS = (
    Fault(
        "converter takes a window one bit too high in the low segment",
        f"{_RTL}/acore/converter.py",
        "Mux(low, 1, Mux(middle, 4, 7))",
        "Mux(low, 2, Mux(middle, 4, 7))",
        f"{_TESTS}/rtl/acore/test_converter.py::test_converter",
    ),
    Fault(
        "rounding up out of the top segment is not clamped",
        f"{_RTL}/acore/converter.py",
        "q == 1 << _TOP - 6",
        "q == 1 << _TOP - 5",
        f"{_TESTS}/rtl/acore/test_converter.py::test_converter",
    ),
    Fault(
        "carries of the dither's second sum are dropped",
        f"{_RTL}/acore/dither.py",
        "b.eq(mixed[1] + (mixed[1] << 3))",
        "b.eq(mixed[1] ^ (mixed[1] << 3))",
        f"{_TESTS}/rtl/acore/test_dither_rtl.py::test_dither",
    ),
    Fault(
        "tiles of one update round with the indices of the first",
        f"{_RTL}/acore/planes.py",
        "tile.eq(tile + f.s_t), self.idx.eq(tile + f.s_t)]",
        "self.idx.eq(tile)]",
        f"{_TESTS}/rtl/acore/test_planes.py",
    ),
    Fault(
        "a pool takes the column before a window for its first tap",
        f"{_RTL}/acore/poolwalk.py",
        "present[column] & (k >= 0) & (k < f.pkern)",
        "present[column] & (k < f.pkern)",
        f"{_TESTS}/rtl/acore/test_poolwalk.py",
    ),
    Fault(
        "division exponent misses the normalising shift",
        f"{_RTL}/acore/divider.py",
        "self.le.eq(scale - whole)",
        "self.le.eq(scale)",
        f"{_TESTS}/rtl/acore/test_divider.py",
    ),
    Fault(
        "the parameters of a channel share one register R",
        f"{_RTL}/acore/scalars.py",
        "return op.channel[:bits] | (op.r << bits)",
        "return op.channel[:bits]",
        f"{_TESTS}/rtl/acore/test_prepare.py::test_steps_of_several_registers_in_turns[8]",
    ),
    Fault(
        "a chained scalar reads its register R a cycle before it is written",
        f"{_RTL}/acore/scalars.py",
        "under_way(self.LATENCY - self.config.group)",
        "under_way(self.LATENCY - self.config.group - 1)",
        f"{_TESTS}/rtl/acore/test_prepare.py::test_steps_of_several_registers_in_turns[8]",
    ),
    Fault(
        "a division takes the epsilon of the command before",
        f"{_RTL}/acore/scalars.py",
        "under_way(_TERM_TO_END)",
        "under_way(_TERM_TO_END - 1)",
        f"{_TESTS}/rtl/acore/test_prepare.py::test_microinstructions_that_overlap[8-0.0]",
    ),
    Fault(
        "a command is handed over a cycle before the fault of its last scalar is known",
        f"{_RTL}/acore/scalars.py",
        "drain.eq(self.LATENCY)",
        "drain.eq(self.LATENCY - 1)",
        f"{_TESTS}/rtl/acore/test_prepare.py::test_the_last_scalar_counts[8]",
    ),
    Fault(
        "a scalar takes a shift register that the set-up is still adding up",
        f"{_RTL}/acore/setup.py",
        "self.shifted.eq(~listing)",
        "self.shifted.eq(1)",
        f"{_TESTS}/rtl/acore/test_prepare.py::test_microinstructions_that_overlap[8-0.0]",
    ),
    Fault(
        "element indices of a plane are cut at 2^17",
        f"{_RTL}/acore/planes.py",
        "self.idx.eq(self.idx + 2 - (self.row_last & f.xodd) + skipped)",
        "self.idx.eq((self.idx + 2 - (self.row_last & f.xodd) + skipped)[:17])",
        f"{_TESTS}/rtl/acore/test_planes.py::test_indices_around_every_power_of_two",
    ),
    Fault(
        "sums of gradients over all planes have too few bits",
        f"{_RTL}/acore/first_pass.py",
        "TOTAL_BITS = 50",
        "TOTAL_BITS = 37",
        f"{_TESTS}/rtl/acore/test_first_pass.py::test_sums_to_their_last_bit",
    ),
    Fault(
        "shift amounts wrap instead of saturating",
        f"{_RTL}/acore/prepare.py",
        "amount.eq(saturated(Mux(negate, -value, value).as_signed(), bits))",
        "amount.eq(Mux(negate, -value, value))",
        f"{_TESTS}/rtl/acore/test_prepare.py::test_shift_amounts_saturate",
    ),
    Fault(
        "shift registers are limited to the bits of an amount before it is negated",
        f"{_RTL}/acore/setup.py",
        "saturated(after, bits + 1)",
        "saturated(after, bits)",
        f"{_TESTS}/rtl/acore/test_prepare.py::test_shift_amounts_saturate",
    ),
    Fault(
        "SOFTMAX does not wait for the lanes",
        f"{_RTL}/acore/prepare.py",
        "with m.Case(Opcode.SOFTMAX), m.If(self.empty):",
        "with m.Case(Opcode.SOFTMAX), m.If(1):",
        f"{_TESTS}/rtl/acore/test_prepare.py::test_softmax_and_ucode_wait_for_the_lanes",
    ),
    Fault(
        "a scalar that overflows upwards is no fault",
        f"{_RTL}/acore/scalars.py",
        "(exact[-1] != exact[-2]) & ~silent",
        "(exact[-1] & ~exact[-2]) & ~silent",
        f"{_TESTS}/rtl/acore/test_scalars.py::test_each_overflow_alone",
    ),
    Fault(
        "means of a plane are not saturated",
        f"{_RTL}/acore/scalars.py",
        "(op.destination == ScalarDestination.MEAN), saturated(t, 24))",
        "(op.destination == ScalarDestination.MEAN), t[:24])",
        f"{_TESTS}/rtl/acore/test_scalars.py::test_saturation_of_each_destination",
    ),
    Fault(
        "an overflow in the lanes is forgotten with the next beat",
        f"{_RTL}/acore/lanes.py",
        "sticky.eq(sticky | bad)",
        "sticky.eq(bad)",
        f"{_TESTS}/rtl/acore/test_acore.py::test_acore[g4w2]",
    ),
    Fault(
        "residual of the forward pass is aligned by the wrong shift",
        f"{_RTL}/acore/microprograms.py",
        'y |= {"y3": Y3.A, "shy": Shift.SH2}',
        'y |= {"y3": Y3.A, "shy": Shift.SH1}',
        f"{_TESTS}/system/test_verify.py::test_small[tiny-residual]",
    ),
    Fault(
        "shifts of the weight update are exchanged",
        f"{_RTL}/acore/microprograms.py",
        '"y3": Y3.PRODUCT, "shy": Shift.SH3, "c2": Shift.SH4',
        '"y3": Y3.PRODUCT, "shy": Shift.SH4, "c2": Shift.SH3',
        f"{_TESTS}/system/test_verify.py::test_digits[small]",
    ),
    Fault(
        "pools take every tile of rows for the first one",
        f"{_RTL}/acore/poolwalk.py",
        "above.eq(f.ppad + f.poff)",
        "above.eq(f.ppad)",
        f"{_TESTS}/rtl/acore/test_poolwalk.py::test_a_tile_of_rows",
    ),
    Fault(
        "parts of a shared row are read from the row's own place in the partial sums",
        f"{_RTL}/acore/planes.py",
        "Mux(shared, of_part, column)",
        "column",
        f"{_TESTS}/rtl/acore/test_acore.py::test_acore[g4w2]",
    ),
)
