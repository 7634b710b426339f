"""The search on small networks: what fits, what is best, what is refused."""

import dataclasses

import pytest

from gradloom.boards.fpgas import FPGAS
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.explore.explore_command import memory_of
from gradloom.host.explore.search import explore, front, limits_of, pareto
from gradloom.host.files import UserError
from gradloom.models.network import load_network
from gradloom.verif.cli_desk import lay


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A network that compiles in no time; results are kept in a folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return load_network(str(lay(tmp_path) / "tiny.toml"))


def test_the_boards_own_machine_is_named(tiny):
    """A machine with more MACs than ecp5-9 would fill more of the LFE5U-85F than has been routed."""
    board = FPGAS["ulx3s-85f"]
    [point], refused = explore(tiny, 4, board, memory_of(board), points=5)
    assert point.config.name == "ecp5-9" and point.ends == "LUTs" and refused == []
    assert point.images_per_second == 4 * board.clock_hz / point.cycles
    assert 0 < point.use < 1


def test_a_filled_device_takes_a_larger_machine(tiny):
    board = dataclasses.replace(FPGAS["ulx3s-85f"], filled=0.8)
    points, _ = explore(tiny, 4, board, DramCost(12, 16.0), points=3)
    assert max(point.config.macs for point in points) > 9
    assert points == sorted(points, key=lambda point: -point.images_per_second)
    for point in points:
        assert point.resources.over(limits_of(board)) == []


def test_what_was_found_is_kept(tiny, monkeypatch, tmp_path):
    fpga = FPGAS["xc7a35t"]
    fpga = dataclasses.replace(fpga, filled=1.0, luts=30_000)
    first, _ = explore(tiny, 4, fpga, DramCost(40, 6.0), points=1)
    files = list((tmp_path / "cache/gradloom/explore").glob("*.json"))
    assert len(files) == 1
    monkeypatch.setattr("gradloom.host.explore.search.compile_network", None)
    assert explore(tiny, 4, fpga, DramCost(40, 6.0), points=1)[0] == first


def test_progress_is_told(tiny):
    told = []
    board = FPGAS["ulx3s-85f"]
    explore(tiny, 4, board, memory_of(board), points=2, listener=lambda *now: told.append(now))
    assert told == [(0, 1, "ecp5-9"), (1, 1, "")]


def test_the_smallest_machine_names_what_ends_it(tiny):
    fpga = dataclasses.replace(FPGAS["xc7a35t"], name="mine", luts=5000)
    with pytest.raises(UserError, match=r"^no machine fits mine: the smallest, \S+ with 9 MACs, takes [\d,]+ LUTs of 4,000 "
                                        r"\(80% of 5,000\).*; give a larger device$"):
        explore(tiny, 4, fpga, DramCost(40, 6.0), points=1)
    with pytest.raises(UserError, match=r"^no machine fits lfe5u-45f: the smallest, ecp5-9 with 9 MACs, takes 32,100 LUTs of "
                                        r"18,416 \(42% of 43,848\); fill more of it$"):
        explore(tiny, 4, FPGAS["lfe5u-45f"], DramCost(12, 2.0), points=1)
    fpga = dataclasses.replace(FPGAS["zcu111"], name="mine", dsps=3)
    with pytest.raises(UserError, match=r"takes \d+ multipliers of 3; give"):
        explore(tiny, 4, fpga, DramCost(40, 6.0), points=1)


def test_a_network_that_no_fitting_machine_holds(tiny, monkeypatch):
    def compile_network(network, config, *arguments, **more):
        raise ScheduleError("layer 'conv': a row takes 5 entries, configuration 'ecp5-9' has 4 (ibuf_depth)")

    monkeypatch.setattr("gradloom.host.explore.search.compile_network", compile_network)
    board = FPGAS["ulx3s-85f"]
    with pytest.raises(UserError, match=r"^network 'tiny' fits none of the machines that fit ulx3s-85f: ecp5-9: layer 'conv': a "):
        explore(tiny, 4, board, memory_of(board), points=1)


def test_the_front():
    assert front([(5, 10), (4, 12), (3, 4), (5, 9), (1, 1)]) == [3, 2, 4]
    assert front([]) == []


def test_pareto_leaves_out_what_is_beaten(tiny):
    fpga = dataclasses.replace(FPGAS["pynq-z1"], filled=1.0)
    points, _ = explore(tiny, 4, fpga, memory_of(fpga), points=4)
    best = pareto(points)
    assert best[0] == points[0]
    assert [point.resources.luts for point in best] == sorted([point.resources.luts for point in best], reverse=True)
