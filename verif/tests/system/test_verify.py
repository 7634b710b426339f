"""The machine against the golden model: every byte of every tensor of every step, on networks of awkward shapes."""

import dataclasses
import itertools

import pytest

from gradloom.contracts.config import load_config
from gradloom.contracts.isa import Opcode
from gradloom.host import cli
from gradloom.host.schedule import compile_network
from gradloom.models.hyper import Hyper
from gradloom.models.network import Conv, FullyConnected, Network
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.system_bench import make_case, verify_steps

AWKWARD = sorted(path.stem for path in NETWORKS.glob("*.toml"))


def test_verify_command_on_digits(capsys):
    assert cli.main(["verify", "--config", "small", "--batch", "4", "--steps", "4"]) == 0
    out = capsys.readouterr().out
    assert "0 differences" in out and "over 4 steps" in out and "simulated cycles" in out
    compared = int(out.split("tensors, ")[1].split(" bytes")[0].replace(",", ""))
    assert compared > 100_000


@pytest.mark.parametrize("name", AWKWARD)
def test_small(name):
    verify_steps(make_case(name, 3, 3), "small")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.long("the network runs on small, nano with seven others")]
                 if name in ("tiny-deep", "tiny-stem") else []) for name in AWKWARD
])
def test_nano(name):
    verify_steps(make_case(name, 1 if name == "tiny-strided" else 2, 2), "nano")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.long("three images of it on this machine, one image of five others")]
                 if name in ("tiny-deep", "tiny-stem", "tiny-strided", "tiny-rows") else []) for name in AWKWARD
])
def test_one_image(name):
    verify_steps(make_case(name, 1, 2), "small")


@pytest.mark.long("four clusters, as test_kept has them with more WPUs and channels")
@pytest.mark.parametrize("name", ["digits-cnn", "tiny-residual", "tiny-awkward"])
def test_ulx3s(name):
    verify_steps(make_case(name, 5, 2), "ulx3s")


@pytest.mark.parametrize("config", ["nano", "small"])
def test_digits(config):
    verify_steps(make_case("digits-cnn", 16 if config == "small" else 4, 3), config)


@pytest.mark.parametrize(("config", "channels"), [
    ("small", 24), pytest.param("small", 48, marks=pytest.mark.long("twice as many channels"))])
def test_gradients_between_the_commands_of_a_tile(config, channels):
    """Many channels of 2 x 2 positions: a tile of gradients leaves the array more slowly than it is made, and so they come between
    the commands of backward tiles, whose sums go on behind them."""
    layers = tuple(Conv(name=name, out=channels, kernel=3, pad=1, norm="frn", act="tlu") for name in ("a", "b", "c"))
    network = Network("deep", (channels, 2, 2), 9, (*layers, FullyConnected(name="fc", out=9)))
    case = make_case(network, 2, 2)
    backward, gradients = 8 * 2 + 1, 3  # tags of conv b's backward pass, of any gradients
    program = compile_network(network, load_config(config), 2).instructions
    array = [command for command in program if command.opcode == Opcode.CONV]
    assert any(before.tag % 8 == gradients and command.tag == backward and command["acc"]
               for before, command in itertools.pairwise(array)), "gradients within a tile"
    verify_steps(case, config)


def test_hyperparameters_at_their_edges():
    """Weight decay of the whole weight (n = 0) and of less than any bit; momentum and rate at the ends of the table."""
    case = make_case("tiny-relu", 2, 4)
    hypers = [Hyper(128, 15, momentum, decay) for momentum, decay in ((230, 0), (0, 254), (255, 1))]
    verify_steps(dataclasses.replace(case, hypers=[*hypers, Hyper(255, 30, 0, 0)]), "nano")


def test_many_small_tiles():
    """A fully connected layer on 256 positions: more updates than a semaphore can count."""
    layers = (Conv(name="conv", out=13, kernel=3, pad=2, act="none"), FullyConnected(name="fc", input="conv", out=9))
    verify_steps(make_case(Network("many-tiles", (5, 14, 14), 9, layers), 1, 1), "small")
