"""Random bits: shared vectors, known values of the mixer, laws of the hash."""

import json

import numpy as np
import pytest

from gradloom.models.arithmetic import dither
from gradloom.verif.checkout import VECTORS


def test_shared_vectors():
    for record in json.loads((VECTORS / "dither.json").read_text()):
        assert int(dither.hash24(record["seed"], record["idx"])) == record["x24"]


@pytest.mark.parametrize(("x", "mixed"), [(0, 0), (1, 0x514E28B7), (0xFFFFFFFF, 0x81F16F39)])
def test_mixer_is_murmur3s(x, mixed):
    """murmur3 of the empty string under seed x is its final mixer of x."""
    assert dither.mix32(x) == mixed
    assert dither.mix32(x + (1 << 32)) == mixed


def test_seed_depends_on_each_part():
    triples = [(seed, step, tid) for seed in (0, 5000) for step in range(40) for tid in range(64)]
    seeds = {dither.tensor_seed(*triple) for triple in triples}
    assert len(seeds) == len(triples)
    assert all(0 <= seed < 1 << 32 for seed in seeds)
    # Run seed and step enter by their sum, which counts modulo 2^32.
    assert dither.tensor_seed(7, 3, 9) == dither.tensor_seed(10, 0, 9)
    assert dither.tensor_seed(10, 0, 9) == dither.tensor_seed((1 << 32) + 10, 0, 9)


def test_index_counts_modulo_2_24():
    idx = np.array([0, 1, 12345, (1 << 24) - 1])
    assert dither.hash24(77, idx).tolist() == dither.hash24(77, idx + (1 << 24)).tolist()


def test_hash_of_one_seed_never_repeats():
    x = dither.hash24(0xDEADBEEF, np.arange(1 << 20))
    assert x.min() >= 0 and x.max() < 1 << 24
    assert len(np.unique(x)) == 1 << 20


@pytest.mark.parametrize("f", [1, 4, 8, 16])
def test_random_bits_are_the_top_and_balanced(f):
    idx = np.arange(1 << 16)
    r = dither.random_bits(123456789, idx, f)
    assert r.tolist() == (dither.hash24(123456789, idx) >> (24 - f)).tolist()
    assert abs(r.mean() / ((1 << f) - 1) - 0.5) < 0.01


def test_hash_does_not_change_its_input():
    idx = np.arange(5)
    dither.hash24(1, idx)
    assert idx.tolist() == [0, 1, 2, 3, 4]
