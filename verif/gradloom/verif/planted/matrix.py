"""Planted in the matrix core, its memories, and the host's plan of a product; each with the fastest test that notices it."""

from gradloom.verif.planted.fault import Fault

__all__ = ["FAULTS"]

_RTL = "rtl/gradloom/rtl/matrix"
_TESTS = "verif/tests"
_STORE = f"{_TESTS}/rtl/matrix/test_operand_store.py::test_store"
_SUMS = f"{_TESTS}/rtl/matrix/test_sums.py::test_sums"
_MACHINE = f"{_TESTS}/system/test_matrix_machine.py"
_PRODUCT = f"{_TESTS}/host/matrix/test_product.py"

FAULTS = (
    Fault(
        "a GEMM's middle loop goes on from where the inner one ended",
        f"{_RTL}/gemm_walk.py",
        'for began, name in ((of_j, "j"), (of_i, "i")))',
        'for began, name in ((here, "j"), (of_i, "i")))',
        f"{_TESTS}/rtl/matrix/test_gemm_walk.py::test_walk",
    ),
    Fault(
        "a block of weights is never turned",
        f"{_RTL}/operand_store.py",
        "chosen.eq(Mux(self.turn, turned, straight))",
        "chosen.eq(straight)",
        f"{_STORE}[block]",
    ),
    Fault(
        "the codes of the columns wait a cycle too long for the sums",
        f"{_RTL}/operand_store.py",
        'f"word{column}_{place}", column))]',
        'f"word{column}_{place}", column + 1))]',
        f"{_STORE}[block]",
    ),
    Fault(
        "of a beat of several words the first one is written again and again",
        f"{_RTL}/operand_store.py",
        "self.data.word_select(part * self.word_bytes + byte, 8)",
        "self.data.word_select(byte, 8)",
        f"{_STORE}[several words in a beat]",
    ),
    Fault(
        "a sum over k that leaves 32 bits is not told",
        f"{_RTL}/sums.py",
        "left_then.eq(self.leaving.valid & left.any())",
        "left_then.eq(0)",
        f"{_SUMS}[rows]",
    ),
    Fault(
        "a sum over lanes is written to all of them",
        f"{_RTL}/sums.py",
        "here = ~merge | (slot == n) if self.levels",
        "here = Value.cast(1) if self.levels",
        f"{_SUMS}[lanes]",
    ),
    Fault(
        "what P holds is added to every sum",
        f"{_RTL}/sums.py",
        "Mux(acc, own.data.word_select(n, _BITS).as_signed(), 0)",
        "own.data.word_select(n, _BITS).as_signed()",
        f"{_SUMS}[output]",
    ),
    Fault(
        "a stationary sum begins with what the one before it left",
        f"{_RTL}/array_column.py",
        "mac.keep.eq(~self.shift & ~first)",
        "mac.keep.eq(~self.shift)",
        f"{_MACHINE}::test_random_programs_equal_the_reference[barista-4x4x16]",
    ),
    Fault(
        "products of no step are added to the sums that leave the array",
        f"{_RTL}/array_column.py",
        "factor = Mux(self.step.valid, self.x[lane], 0) if self.stays else self.x[lane]",
        "factor = self.x[lane]",
        f"{_MACHINE}::test_random_programs_equal_the_reference[barista-4x4x16]",
    ),
    Fault(
        "a GEMM is done while its last sums are on their way to P",
        f"{_RTL}/matrix_core.py",
        "wait(through + sums.latency - 1)",
        "wait(through)",
        f"{_MACHINE}::test_products_of_any_shape_take_the_cycles_that_are_stated[fox-4]",
    ),
    Fault(
        "an array of one lane takes flags of lanes",
        f"{_RTL}/matrix_core.py",
        "refused |= cmd.errors | cmd.merge",
        "refused |= cmd.errors",
        f"{_MACHINE}::test_what_is_no_command_of_the_machine_is_refused_where_it_stands[fox-4]",
    ),
    Fault(
        "bytes for one word each are wanted of a memory that has none",
        "rtl/gradloom/rtl/memory_path/loader.py",
        "illegal |= (cmd.bank0 > 1) | (cmd.bank0[0] & ~turns)",
        "illegal |= cmd.bank0 > 1",
        f"{_MACHINE}::test_what_is_no_command_of_the_machine_is_refused_where_it_stands[fox-4]",
    ),
    Fault(
        "a block comes in before the last one in its place is multiplied",
        "host/gradloom/host/matrix/product.py",
        "number >= min(w.count, x.count) else 0",
        "number > min(w.count, x.count) else 0",
        f"{_PRODUCT}::test_in_whatever_order_the_engines_come",
    ),
    Fault(
        "sums are written over those that are still being stored",
        "host/gradloom/host/matrix/product.py",
        "(_STORED if first and p.taken > p.count else 0)",
        "0",
        f"{_PRODUCT}::test_in_whatever_order_the_engines_come",
    ),
)
