"""Which registers are reached late, from delays as nextpnr writes them."""

import pytest

from gradloom.boards.slow_ends import SlowEnd, slow_ends

HEAD = '(DELAYFILE\n (SDFVERSION "3.0")\n (CELL\n  (CELLTYPE "top")\n  (INSTANCE )\n  (DELAY (ABSOLUTE\n'


def wire(source, target, ns):
    return f"   (INTERCONNECT {source} {target} (1:1:{1000 * ns:.0f}) (1:1:{1000 * ns:.0f}))\n"


def cell(name, *lines):
    return f"  (CELL\n   (INSTANCE {name})\n" + "".join(f"    {line}\n" for line in lines) + "  )\n"


def through(source, target, ns):
    return f"(IOPATH {source} {target} (1:1:{1000 * ns:.0f}) (1:1:{1000 * ns:.0f}))"


def flip_flop(name, setup=0.5):
    return cell(name, through("CLK", "Q", 0.5), f"(SETUPHOLD (posedge DI) (posedge CLK) (1:1:{1000 * setup:.0f}) (9:9:9))")


@pytest.fixture
def sdf(tmp_path):
    def write(*parts):
        path = tmp_path / "top.sdf"
        path.write_text(HEAD + "".join(parts) + "))\n")
        return path
    return write


def test_paths(sdf):
    """Two registers of one name behind a LUT and a block RAM; the slowest of each corner counts, with the set-up time."""
    path = sdf(
        wire("m.a_TRELLIS_FF_Q/Q", "m.b[0]_LUT4_Z/A", 2), wire("m.ram.0.0/DOA3", r"m.b[0]_LUT4_Z/B", 1),
        wire("m.b[0]_LUT4_Z/F", "m.b[0]_TRELLIS_FF_Q/DI", 3), wire("m.a_TRELLIS_FF_Q/Q", "m.b[1]_TRELLIS_FF_Q_1/DI", 1),
        wire("m.b[0]_TRELLIS_FF_Q/Q", "m.a_TRELLIS_FF_Q/DI", 4),
        cell("m.b[0]_LUT4_Z", through("A", "F", 0.25), through("B", "F", 0.25)), cell("m.ram.0.0", through("CLKA", "DOA3", 5.5)),
        *(flip_flop(name) for name in ("m.a_TRELLIS_FF_Q", "m.b[0]_TRELLIS_FF_Q", "m.b[1]_TRELLIS_FF_Q_1")))
    assert slow_ends(path) == [SlowEnd("m.b", 2, 10.25, 4.0, ("m.ram.0.", "m.b")), SlowEnd("m.a", 1, 5.0, 4.0, ("m.b",))]
    assert slow_ends(path, later_than=5.0, most=9) == [SlowEnd("m.b", 1, 10.25, 4.0, ("m.ram.0.", "m.b"))]
    assert [end.name for end in slow_ends(path, most=1)] == ["m.b"]


def test_constants_are_never_late(sdf):
    """The first cell of a carry chain has inputs that no clock reaches: however long their wires are, they settle before any."""
    path = sdf(wire("$PACKER_VCC/F", "c_CCU2C/A", 90), wire("a/Q", "c_CCU2C/B", 1), wire("c_CCU2C/F", "d/DI", 1),
               wire("$PACKER_GND/F", "e/DI", 90), cell("c_CCU2C", through("A", "F", 1), through("B", "F", 1)),
               flip_flop("a"), flip_flop("d"), flip_flop("e"))
    assert slow_ends(path) == [SlowEnd("d", 1, 4.0, 2.0, ("a", "c"))]


def test_a_loop_of_cells_ends(sdf):
    path = sdf(wire("a/Q", "x/A", 1), wire("y/F", "x/B", 1), wire("x/F", "y/A", 1), wire("y/F", "a/DI", 1),
               cell("x", through("A", "F", 1), through("B", "F", 1)), cell("y", through("A", "F", 1)), flip_flop("a"))
    assert [(end.name, end.count) for end in slow_ends(path)] == [("a", 1)]


def test_a_file_that_is_none(sdf):
    with pytest.raises(ValueError, match="'fast' is no delay of an SDF file"):
        slow_ends(sdf("   (INTERCONNECT a/Q b/DI fast fast)\n"))
