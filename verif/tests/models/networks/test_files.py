"""Networks as files: every one survives a round trip, and a bad one is told with the fix."""

import dataclasses
from pathlib import Path

import pytest

from gradloom.models.images import ImageSettings
from gradloom.models.network import (
    NetworkError,
    load_network,
)
from gradloom.models.networks import zoo
from gradloom.verif.checkout import NETWORKS

FILES = [*zoo.names(), *sorted(map(str, NETWORKS.glob("*.toml")))]


@pytest.mark.parametrize("source", FILES, ids=lambda source: Path(source).stem)
def test_files_survive_a_round_trip(source, tmp_path):
    network = load_network(source)
    copy = tmp_path / "copy.toml"
    copy.write_text(network.to_toml())
    assert load_network(str(copy)) == network


def test_test_networks_are_found():
    assert len(FILES) >= 6 and "digits-cnn" in FILES


HEAD = "input = [1, 8, 8]\nclasses = 3\n"
TAIL = '[[layers]]\ntype = "fully_connected"\nname = "fc"\nout = 3\n'
BAD_FILES = [
    (
        "wrong = 1\n" + HEAD + TAIL,
        "unknown key 'wrong': the keys are name, input, classes, loss, layers, train, rounding, format, data",
    ),
    ("classes = 3\n" + TAIL, "key 'input' is missing: give it"),
    (HEAD + "layers = 3\n", "layers must be a list of tables: write each layer under [[layers]]"),
    (HEAD + "train = 3\n" + TAIL, "train must be a table: write its keys under [train]"),
    (HEAD + "rounding = 3\n" + TAIL, "rounding must be a table: write its keys under [rounding]"),
    (
        HEAD + TAIL + "[rounding]\nbias = 'nearest'\n",
        "rounding: unknown key 'bias': the keys are activations, normalised, errors, weights, velocities",
    ),
    (
        HEAD + TAIL + "[rounding]\nweights = 1\n",
        "rounding: weights must be 'nearest', 'stochastic' or 'feedback', not 1: choose one of them",
    ),
    (
        HEAD + TAIL + "[train]\nrate = 1\n",
        "train: unknown key 'rate': the keys are batch, epochs, lr, momentum, weight_decay, schedule, warmup",
    ),
    (
        HEAD + '[[layers]]\nname = "a"\n' + TAIL,
        "layer 'a': type must be one of conv, max_pool, avg_pool, global_avg_pool, upsample, subsample, "
        "fully_connected, not None: change it",
    ),
    (
        HEAD + '[[layers]]\ntype = "lstm"\n' + TAIL,
        "layer number 1: type must be one of conv, max_pool, avg_pool, global_avg_pool, upsample, subsample, "
        "fully_connected, not 'lstm': change it",
    ),
    (
        HEAD + '[[layers]]\ntype = "max_pool"\nname = "p"\nkernel = 2\nstride = 2\nout = 2\n' + TAIL,
        "layer 'p': unknown key 'out': the keys of max_pool are type, name, input, kernel, stride, pad",
    ),
    (
        HEAD + '[[layers]]\ntype = "upsample"\nname = "u"\nstride = 2\n' + TAIL,
        "layer 'u': unknown key 'stride': the keys of upsample are type, name, input, scale",
    ),
    (
        HEAD + '[[layers]]\ntype = "upsample"\nname = "u"\n' + TAIL,
        "layer 'u': key 'scale' is missing: give it",
    ),
    (
        HEAD + '[[layers]]\ntype = "conv"\nname = "c"\nkernel = 2\n' + TAIL,
        "layer 'c': key 'out' is missing: give it",
    ),
    (
        'input = "large"\nclasses = 3\n' + TAIL,
        "input must be three positive integers (channels, rows, columns), not 'large': give all three",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES, ids=[message[:50] for _, message in BAD_FILES])
def test_bad_files_name_the_file_and_the_fix(text, message, tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(NetworkError) as caught:
        load_network(str(file))
    assert str(caught.value) == f"{file}: {message}"


def test_missing_and_unreadable_files(tmp_path):
    with pytest.raises(
        NetworkError, match=r"there is no network 'nothing': give one of .*digits-cnn.* or a TOML file"
    ):
        load_network("nothing")
    file = tmp_path / "bad.toml"
    file.write_bytes(b"name = \xff")
    with pytest.raises(NetworkError, match=r"bad\.toml is not a TOML file: "):
        load_network(str(file))
    file.write_text("name = = 3")
    with pytest.raises(NetworkError, match=r"bad\.toml is not a TOML file: "):
        load_network(str(file))


def test_what_is_done_with_images(tmp_path):
    """A table of its own, written only where it says something: files without it stay as they are."""
    network = load_network("digits-cnn")
    assert "[data]" not in network.to_toml()
    asked = dataclasses.replace(network, data=ImageSettings("channel", "crop=2"))
    file = tmp_path / "asked.toml"
    file.write_text(asked.to_toml())
    assert load_network(str(file)) == asked and asked.to_toml().startswith(network.to_toml())
    file.write_text(network.to_toml() + '[data]\nnormalise = "image"\n')
    with pytest.raises(NetworkError, match=r"asked\.toml: data: normalise must be one of none, channel, not 'image': change it"):
        load_network(str(file))
    file.write_text(network.to_toml() + "[data]\nmirror = true\n")
    with pytest.raises(NetworkError, match="data: unknown key 'mirror': the keys are normalise, augment"):
        load_network(str(file))
