"""The interleaving check itself: a program that is in order passes, and each kind of trouble is told."""

import numpy as np
import pytest

from gradloom.contracts.matrix_config import load_machine
from gradloom.contracts.matrix_isa import Operand
from gradloom.host.matrix.commands import Transfer, end, gemm, load, store
from gradloom.verif.matrix.interleaved import Hazard, run_interleaved

CONFIG = load_machine("fox-2")


def program(*, loaded=1, used=1, summed=4):
    """A word of each operand, a product, its sum stored, and another word of X; semaphores that a command waits for."""
    return [load(Operand.W, Transfer(0, 2)), load(Operand.X, Transfer(16, 1), signal=1), gemm(wait=loaded, signal=2 | 4),
            store(Transfer(64, 4), wait=summed), load(Operand.X, Transfer(32, 1), wait=2 * used), end()]


def outcomes(commands):
    found = set()
    for seed in range(12):
        dram = bytearray(np.random.default_rng(1).integers(1, 100, 128, dtype=np.uint8).tobytes())
        try:
            run_interleaved(CONFIG, dram, commands, seed)
        except Hazard as error:
            found.add(str(error).partition(":")[0])
        else:
            found.add(bytes(dram[64:80]))
    return found


def test_a_program_in_order_gives_one_result():
    (result,) = outcomes(program())
    assert isinstance(result, bytes)


@pytest.mark.parametrize(("lost", "told"), [
    ({"loaded": 0}, "X changed while it was multiplied"), ({"used": 0}, "X changed while it was multiplied"),
    ({"summed": 0}, "sums changed while they were stored")])
def test_what_is_not_waited_for_is_told(lost, told):
    found = outcomes(program(**lost))
    assert told in found or len(found) > 1


def test_a_program_that_waits_for_nothing_is_told():
    assert outcomes([gemm(wait=8), end()]) == {"no engine can go on"}
    assert outcomes([*(load(Operand.X, Transfer(0, 1), signal=1) for _ in range(256)), end()]) == {"a semaphore is above 255"}
