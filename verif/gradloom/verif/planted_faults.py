"""The planted faults: wrong shifts, lost carries, stale weights, missed stalls and the like.

Each comes with the fastest test that notices it.
"""

from gradloom.verif.planted import Fault

__all__ = ["FAULTS", "QUICK", "named"]

_RTL = "rtl/gradloom/rtl"
_HOST = "host/gradloom/host"
_TESTS = "verif/tests"

FAULTS: tuple[Fault, ...] = (
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
        f"{_RTL}/ccore/operands.py",
        "m.d.sync += active.eq(shadow)",
        "m.d.sync += active.eq(active)",
        f"{_TESTS}/rtl/ccore/test_pe.py",
    ),
    Fault(
        "parities of the stride-2 backward windows are exchanged",
        f"{_RTL}/ccore/operands.py",
        "(c1, c0, c0), (c0, p1, p1)",
        "(c0, p1, p1), (c1, c0, c0)",
        f"{_TESTS}/rtl/ccore/test_pe.py",
    ),
    Fault(
        "clear is not honoured at the start of a row",
        f"{_RTL}/ccore/operands.py",
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
        "FIFO takes an element when it is full",
        f"{_RTL}/fifo.py",
        "self.i.ready.eq(self.level != self.depth)",
        "self.i.ready.eq(1)",
        f"{_TESTS}/rtl/test_fifo.py",
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
        "window check is off by one byte",
        f"{_RTL}/memory_path/window.py",
        "(end <= limit)",
        "(end <= limit + 1)",
        f"{_TESTS}/rtl/memory_path/test_window.py::test_window",
    ),
    Fault(
        "window check wraps at 2^32",
        f"{_RTL}/memory_path/window.py",
        "end = address + Value.cast(size)",
        "end = (address + Value.cast(size))[:32]",
        f"{_TESTS}/rtl/memory_path/test_window.py::test_window",
    ),
    Fault(
        "delayed scale is off by one",
        f"{_RTL}/sequencer/scale_unit.py",
        "e_then + length_now - self.f - 13",
        "e_then + length_now - self.f - 12",
        f"{_TESTS}/rtl/sequencer/test_scale_unit.py::test_scale_follows_the_rule_for_random_statistics",
    ),
    Fault(
        "statistics of successive cycles are lost",
        f"{_RTL}/sequencer/scale_unit.py",
        "stats.read_port(transparent_for=[stat_write])",
        "stats.read_port()",
        f"{_TESTS}/rtl/sequencer/test_scale_unit.py::test_statistics_are_ored_in_successive_cycles_beside_an_operation",
    ),
    Fault(
        "a granted semaphore is not decremented",
        f"{_RTL}/sequencer/semaphores.py",
        "for r in range(self.requesters)]) - taken)",
        "for r in range(self.requesters)]))",
        f"{_TESTS}/rtl/sequencer/test_queue.py::test_semaphores_against_a_model",
    ),
    Fault(
        "a loaded row is put one bank too far on the wrap",
        f"{_RTL}/memory_path/loader.py",
        "Mux(wraps, next_bank - banks, next_bank)",
        "Mux(wraps, next_bank - banks + 1, next_bank)",
        f"{_TESTS}/rtl/memory_path/test_loader.py",
    ),
    Fault(
        "a refused beat is lost",
        f"{_RTL}/memory_path/loader.py",
        "moves.eq(~self.bus.valid | self.ready)",
        "moves.eq(1)",
        f"{_TESTS}/rtl/memory_path/test_loader.py",
    ),
    Fault(
        "beats for different banks of the weight buffer wait for each other",
        f"{_RTL}/memory_path/load_arbiter.py",
        " & (other.bank == bus.bank)",
        "",
        f"{_TESTS}/rtl/memory_path/test_load_arbiter.py",
    ),
    Fault(
        "a block of weights that has begun is interrupted by a lower channel",
        f"{_RTL}/memory_path/load_arbiter.py",
        "return within | ~behind if this < other else within & ~behind",
        "return Value.cast(this < other)",
        f"{_TESTS}/rtl/memory_path/test_load_arbiter.py",
    ),
    Fault(
        "a bank never takes the beats of the upper channels",
        f"{_RTL}/ccore/banks.py",
        "_chosen(which, buses[1 << bit:])",
        "_chosen(which, buses[:1 << bit])",
        f"{_TESTS}/rtl/ccore/test_banks.py",
    ),
    Fault(
        "flushed write bursts still write",
        f"{_RTL}/memory_path/axi_write.py",
        "(~self.flush).replicate(self.config.beat_bytes)",
        "(~self.flush | 1).replicate(self.config.beat_bytes)",
        f"{_TESTS}/rtl/memory_path/test_axi_write.py",
    ),
    Fault(
        "what a stopped program signalled is still there for the next one",
        f"{_RTL}/accelerator.py",
        'semaphores = engine_side("semaphores", Semaphores(1 + len(units(config))))',
        "m.submodules.semaphores = semaphores = Semaphores(1 + len(units(config)))",
        f"{_TESTS}/verif/fuzzing/test_fuzz.py::test_cases_of_chance[nano]",
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
        "scheduler orders no write after a read",
        f"{_HOST}/order/tokens.py",
        "and (write or past.write)",
        "and past.write",
        f"{_TESTS}/host/order/test_token_order.py",
    ),
    Fault(
        "weight gradients of later images replace those of earlier ones",
        f"{_RTL}/ccore/drain.py",
        "Mux(add2, before, nothing)",
        "Mux(add2, nothing, nothing)",
        f"{_TESTS}/rtl/ccore/test_ccore.py",
    ),
    Fault(
        "more commands are under way than the queue remembers",
        f"{_RTL}/sequencer/queue.py",
        "~self.port.start & under_way.i.ready",
        "~self.port.start",
        f"{_TESTS}/rtl/sequencer/test_queue.py",
    ),
    Fault(
        "operands of the array overwrite others that are in use",
        f"{_HOST}/order/places.py",
        "start + count <= other or other + length <= start",
        "start + count <= other or other + length <= start + count",
        f"{_TESTS}/host/test_schedule.py",
    ),
    Fault(
        "a tile of rows lacks the last row of its halo",
        f"{_HOST}/tiles/array_sweep.py",
        "max(start + 1, min(self.rows, high))",
        "max(start + 1, min(self.rows, high - 1))",
        f"{_TESTS}/host/tiles/test_row_tiles.py::test_strips_hold_the_rows_of_their_windows",
    ),
    Fault(
        "pools take every tile of rows for the first one",
        f"{_RTL}/acore/poolwalk.py",
        "above.eq(f.ppad + f.poff)",
        "above.eq(f.ppad)",
        f"{_TESTS}/rtl/acore/test_poolwalk.py::test_a_tile_of_rows",
    ),
    Fault(
        "sums of magnitudes start anew with every tile of a plane",
        f"{_RTL}/ccore/rowwalk.py",
        "((unit[0] < wpus) & ~sharing | step_first) & ~f.sacc",
        "(unit[0] < wpus) & ~sharing | step_first",
        f"{_TESTS}/system/test_rows.py",
    ),
    Fault(
        "a window of a shared row counts in two WPUs",
        f"{_RTL}/ccore/colwalk.py",
        "(j >= row_flags.part)",
        "(j > row_flags.part)",
        f"{_TESTS}/rtl/ccore/test_feed.py",
    ),
    Fault(
        "parts of a shared row are read from the row's own place in the partial sums",
        f"{_RTL}/acore/planes.py",
        "Mux(shared, of_part, column)",
        "column",
        f"{_TESTS}/rtl/acore/test_acore.py::test_acore[g4w2]",
    ),
    Fault(
        "a command that begins in the middle of an image takes that for its first row",
        f"{_RTL}/ccore/rowwalk.py",
        "y.eq(f.u0)",
        "y.eq(0)",
        f"{_TESTS}/rtl/ccore/test_feed.py",
    ),
    Fault(
        "verification skips the normalised activations",
        f"{_HOST}/devices/verification.py",
        "unequal = device != golden",
        'unequal = (device != golden) & (name != "xhat")',
        f"{_TESTS}/host/devices/test_session_golden.py::test_flipped_tensors_are_told_by_name",
    ),
)
"""Every fault; the nox session ``faults`` plants them one after the other."""

QUICK = (
    "window check is off by one byte",
    "FIFO takes an element when it is full",
    "delayed scale is off by one",
)
"""Names of those that the test suite itself plants."""


def named(name: str) -> Fault:
    """The fault of that name."""
    return next(fault for fault in FAULTS if fault.name == name)
