"""Planted in the PE array and what feeds and drains it (``rtl/ccore``); each with the fastest test that notices it."""

from gradloom.verif.planted.fault import Fault

__all__ = ["FAULTS"]

_RTL = "rtl/gradloom/rtl"
_TESTS = "verif/tests"

FAULTS = (
    Fault(
        "transpose is applied where it is not asked for",
        f"{_RTL}/ccore/weight_network.py",
        "Mux(transpose, exchanged, straight)",
        "Mux(transpose, straight, exchanged)",
        f"{_TESTS}/rtl/ccore/test_weight_network.py",
    ),
    Fault(
        "kernel is not rotated for the backward pass",
        f"{_RTL}/ccore/weight_network.py",
        "Mux(flip, PE_TAPS - 1 - k, k)",
        "Mux(flip, k, k)",
        f"{_TESTS}/rtl/ccore/test_weight_network.py",
    ),
    Fault(
        "swap is ignored: a PE multiplies by stale weights",
        f"{_RTL}/ccore/window_registers.py",
        "m.d.sync += active.eq(shadow)",
        "m.d.sync += active.eq(active)",
        f"{_TESTS}/rtl/ccore/test_pe.py",
    ),
    Fault(
        "parities of the stride-2 backward windows are exchanged",
        f"{_RTL}/ccore/window_registers.py",
        "(c1, c0, c0), (c0, p1, p1)",
        "(c0, p1, p1), (c1, c0, c0)",
        f"{_TESTS}/rtl/ccore/test_pe.py",
    ),
    Fault(
        "clear is not honoured at the start of a row",
        f"{_RTL}/ccore/window_registers.py",
        "prev.eq(Mux(clear_here, 0, cur))",
        "prev.eq(cur)",
        f"{_TESTS}/rtl/ccore/test_pe.py",
    ),
    Fault(
        "weight-gradient accumulators are one bit too narrow",
        f"{_RTL}/ccore/pe.py",
        "drain[i][k].eq(self.sum[k][i])",
        "drain[i][k].eq(self.sum[k][i][:self.wg_width - 1].as_signed())",
        f"{_TESTS}/rtl/ccore/test_pe_accumulator.py",
    ),
    Fault(
        "first step adds to old partial sums",
        f"{_RTL}/ccore/psum.py",
        "old = Mux(control.fresh, 0, Mux(control.half, halves[1], halves[0]))",
        "old = Mux(control.half, halves[1], halves[0])",
        f"{_TESTS}/rtl/ccore/test_psum.py",
    ),
    Fault(
        "later steps add to the wrong half of the partial sums",
        f"{_RTL}/ccore/psum.py",
        "old = Mux(control.fresh, 0, Mux(control.half, halves[1], halves[0]))",
        "old = Mux(control.fresh, 0, halves[1])",
        f"{_TESTS}/rtl/ccore/test_psum.py",
    ),
    Fault(
        "overflows of one of the four banks of partial sums are not seen",
        f"{_RTL}/ccore/psum.py",
        "overflows.append(overflow & control.we[b])",
        "overflows.append(overflow & control.we[b] & int(b != 3))",
        f"{_TESTS}/rtl/ccore/test_psum.py::test_overflow_of_each_bank_alone",
    ),
    Fault(
        "overflows of the second tap of a PE are not seen",
        f"{_RTL}/ccore/pe.py",
        "self.kept & overflow.any()",
        "self.kept & (overflow & ~2).any()",
        f"{_TESTS}/rtl/ccore/test_pe_accumulator.py::test_each_accumulator_alone",
    ),
    Fault(
        "overflows of all columns but the last are lost on their way through the array",
        f"{_RTL}/ccore/wpu.py",
        "column if overflow is None else column | overflow",
        "column",
        f"{_TESTS}/rtl/ccore/test_wpu.py::test_each_overflow_alone",
    ),
    Fault(
        "sums of the first column of the drain may overflow",
        f"{_RTL}/ccore/drain.py",
        "                overflows.append(over)",
        "                overflows.append(over & int(c > 0))",
        f"{_TESTS}/rtl/ccore/test_drain.py::test_each_sum_overflows_alone",
    ),
    Fault(
        "a block of weights beyond the buffer is not seen for the third tap",
        f"{_RTL}/ccore/weight_network.py",
        "Cat(faults).any()",
        "Cat(faults[:2]).any()",
        f"{_TESTS}/rtl/ccore/test_weight_network.py",
    ),
    Fault(
        "entries of a stored row are counted in 12 bits",
        f"{_RTL}/ccore/column_sequencer.py",
        "entry = Signal(signed(14))",
        "entry = Signal(signed(12))",
        f"{_TESTS}/rtl/ccore/test_input_network.py::test_far_walks",
    ),
    Fault(
        "a bank never takes the beats of the upper channels",
        f"{_RTL}/ccore/banks.py",
        "_chosen(which, buses[1 << bit:])",
        "_chosen(which, buses[:1 << bit])",
        f"{_TESTS}/rtl/ccore/test_banks.py",
    ),
    Fault(
        "weight gradients of later images replace those of earlier ones",
        f"{_RTL}/ccore/drain.py",
        "Mux(add2, before, nothing)",
        "Mux(add2, nothing, nothing)",
        f"{_TESTS}/rtl/ccore/test_ccore.py",
    ),
    Fault(
        "sums of magnitudes start anew with every tile of a plane",
        f"{_RTL}/ccore/row_sequencer.py",
        "((unit[0] < wpus) & ~sharing | step_first) & ~f.sacc",
        "(unit[0] < wpus) & ~sharing | step_first",
        f"{_TESTS}/system/test_rows.py",
    ),
    Fault(
        "a window of a shared row counts in two WPUs",
        f"{_RTL}/ccore/column_sequencer.py",
        "(j >= row_flags.part)",
        "(j > row_flags.part)",
        f"{_TESTS}/rtl/ccore/test_input_network.py",
    ),
    Fault(
        "a command that begins in the middle of an image takes that for its first row",
        f"{_RTL}/ccore/row_sequencer.py",
        "y.eq(f.u0)",
        "y.eq(0)",
        f"{_TESTS}/rtl/ccore/test_input_network.py",
    ),
    Fault(
        "a sum of ECP5 cells that stays goes along the row as well",
        f"{_RTL}/ccore/lean_mac.py",
        "Mux(self.chain, adder.s[:self.chain_bits], 0)",
        "adder.s[:self.chain_bits]",
        f"{_TESTS}/formal/test_formal_ecp5.py::test_lean_mac_is_the_mac",
    ),
    Fault(
        "the LUT4 of a carry chain of ECP5 chooses the other term",
        f"{_RTL}/ecp5.py",
        "16'h665A",
        "16'h5A66",
        f"{_TESTS}/formal/test_formal_ecp5.py::test_sum_of_cells",
    ),
    Fault(
        "a MULT18X18D takes a factor without its sign",
        f"{_RTL}/ecp5.py",
        ".SIGNEDA(1'b1)",
        ".SIGNEDA(1'b0)",
        f"{_TESTS}/formal/test_formal_ecp5.py::test_multiplier_of_cells",
    ),
    Fault(
        "a first sum clears what the A-Core reads in its half (ECP5)",
        f"{_RTL}/ccore/psum.py",
        "value.half ^ (value.fresh & self.read.en & (self.read.half == value.half))",
        "value.half",
        f"{_TESTS}/rtl/ccore/test_psum.py::test_first_steps_overwrite_whatever_the_a_core_reads",
    ),
    Fault(
        "a row of ECP5's column walk ends a window late",
        f"{_RTL}/ccore/column_sequencer.py",
        "(j + 2)[:12] == f.cols",
        "(j + 1)[:12] == f.cols",
        f"{_TESTS}/rtl/ccore/test_ccore.py::test_ccore[g2_w1_ecp5]",
    ),
)
