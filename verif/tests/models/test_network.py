"""Networks: files, shapes, tensor numbers, readers, and the whole message of every refusal."""

import dataclasses
from pathlib import Path

import pytest

from gradloom.models.network import (
    AvgPool,
    Conv,
    FullyConnected,
    GlobalAvgPool,
    Kind,
    MaxPool,
    Network,
    NetworkError,
    Rounding,
    Shortcut,
    Subsample,
    Training,
    load_network,
)
from gradloom.models.networks import zoo
from gradloom.rtl import isa
from gradloom.verif.checkout import NETWORKS

FILES = [*zoo.names(), *sorted(map(str, NETWORKS.glob("*.toml")))]
LAST = FullyConnected(name="fc", out=3)


def net(*layers, shape=(2, 8, 8), classes=3, **settings):
    return Network("test", shape, classes, (*layers, LAST), **settings)


def conv(name="a", out=4, kernel=3, pad=1, **keys):
    return Conv(name=name, out=out, kernel=kernel, pad=pad, **keys)


@pytest.mark.parametrize("source", FILES, ids=lambda source: Path(source).stem)
def test_files_survive_a_round_trip(source, tmp_path):
    network = load_network(source)
    copy = tmp_path / "copy.toml"
    copy.write_text(network.to_toml())
    assert load_network(str(copy)) == network


def test_test_networks_are_found():
    assert len(FILES) >= 6 and "digits-cnn" in FILES


def test_digits_cnn():
    network = load_network("digits-cnn")
    assert [network.shape(layer.name) for layer in network.layers] == [
        (12, 8, 8),
        (12, 4, 4),
        (12, 4, 4),
        (12, 2, 2),
        (10, 1, 1),
    ]
    assert network.macs() == 64 * 12 * 9 + 16 * 12 * 12 * 9 + 16 * 12 * 12 + 48 * 10
    assert [layer.name for layer in network.weighted] == ["conv1", "conv2", "conv3", "fc"]
    assert network.parameters("conv1") == ("gamma", "beta", "tau")
    assert network.parameters("fc") == ("beta",) and network.parameters("pool") == ()
    assert network.weight_shape("fc") == (10, 12, 2, 2)


def test_tensor_numbers_are_those_of_the_machine():
    assert [(kind.name, int(kind)) for kind in Kind] == [(kind.name, int(kind)) for kind in isa.Kind]
    network = load_network("digits-cnn")
    assert network.tid("input", Kind.Z) == 2
    assert network.tid("pool", Kind.DZ) == isa.tensor_id(4, isa.Kind.DZ)
    assert network.dx_tid("conv1") == network.tid("conv1", Kind.DX)
    assert network.dx_tid("fc") == network.tid("fc", Kind.DZ)


def test_shapes_of_odd_sizes():
    network = net(
        conv("a", out=5, kernel=5, pad=0, stride=2),
        MaxPool(name="b", kernel=3, stride=2, pad=1),
        AvgPool(name="c", kernel=2, stride=3),
        shape=(1, 27, 18),
    )
    assert [network.shape(name) for name in "abc"] == [(5, 12, 7), (5, 6, 4), (5, 2, 1)]
    assert net(conv(), GlobalAvgPool(name="g")).geometry("g").kernel == (8, 8)


def test_readers_of_shortcuts():
    network = load_network(str(NETWORKS / "tiny-residual.toml"))
    assert network.main_consumer("stem").name == "same"
    assert network.shortcut("stem") == Shortcut("residual", "same")
    assert network.main_consumer("same").name == "block1"
    assert network.shortcut("same") == Shortcut("reader", "projection")
    assert network.main_consumer("projection") is None
    assert network.shortcut("projection") == Shortcut("residual", "block2")
    assert network.shortcut("block1") is None
    assert network.sends_ds("projection") and not network.sends_ds("block1")


def test_main_consumer_may_come_after_the_residual():
    network = load_network(str(NETWORKS / "tiny-branches.toml"))
    assert network.main_consumer("left").name == "merge"
    assert network.shortcut("left") == Shortcut("residual", "right")
    assert not network.needs_error("shrink") and not network.needs_error("input")
    assert network.needs_error("left")


def test_input_may_be_read_by_many():
    network = net(
        conv("a"),
        conv("b", input="input"),
        conv("c", input="input", residual="a"),
        conv("d", input="b", residual="c"),
    )
    assert network.layer("c").input == "input"


REFUSALS = [
    (
        lambda: Network("a b", (1, 8, 8), 3, (LAST,)),
        "the network's name must be letters, digits, '_', '.' or '-', not 'a b': rename it",
    ),
    (
        lambda: net(shape=(8, 8)),
        "input must be three positive integers (channels, rows, columns), not (8, 8): give all three",
    ),
    (
        lambda: net(shape=(1, 0, 8)),
        "input must be three positive integers (channels, rows, columns), not (1, 0, 8): give all three",
    ),
    (
        lambda: net(shape=(1, True, 8)),
        "input must be three positive integers (channels, rows, columns), not (1, True, 8): give all three",
    ),
    (
        lambda: net(shape=(1, 5000, 8)),
        "input of 1 x 5000 x 8 is too large: give at most 65535 channels and 4095 rows and columns",
    ),
    (lambda: net(classes=1), "classes must be an integer in 2..4095, not 1: give the number of outputs"),
    (lambda: net(loss="hinge"), "loss must be 'softmax' or 'squared', not 'hinge': choose one of the two"),
    (
        lambda: Network("x", (1, 8, 8), 3, ()),
        "a network must have at least one layer: end it with a fully_connected layer",
    ),
    (
        lambda: net(*(conv(f"l{i}") for i in range(255))),
        "a network may have at most 255 layers, this one has 256: remove layers",
    ),
    (lambda: net(train=Training(batch=0)), "train: batch must be a positive integer, not 0: give 1 or more"),
    (
        lambda: net(train=Training(warmup=0)),
        "train: warmup must be a positive integer, not 0: give 1 or more",
    ),
    (
        lambda: net(train=Training(epochs=1.5)),
        "train: epochs must be a positive integer, not 1.5: give 1 or more",
    ),
    (
        lambda: net(train=Training(lr=0.0)),
        "train: lr must be a number in 9.31323e-10..64, not 0.0: change it",
    ),
    (
        lambda: net(train=Training(lr=float("nan"))),
        "train: lr must be a number in 9.31323e-10..64, not nan: change it",
    ),
    (
        lambda: net(train=Training(momentum=1.0)),
        "train: momentum must be a number in 0..0.996094, not 1.0: change it",
    ),
    (
        lambda: net(train=Training(weight_decay=-1.0)),
        "train: weight_decay must be a number in 0..0.5, not -1.0: change it",
    ),
    (
        lambda: net(train=Training(schedule="magic")),
        "train: schedule must be one of constant, linear, cosine, not 'magic': choose one",
    ),
    (
        lambda: net("conv"),
        "'conv' is not a layer: give one of Conv, MaxPool, AvgPool, GlobalAvgPool, Subsample, FullyConnected",
    ),
    (lambda: net(conv("a b")), "layer 'a b': a name must be letters, digits, '_', '.' or '-': rename it"),
    (lambda: net(conv("a"), conv("a")), "layer 'a': the name is taken: rename it"),
    (lambda: net(conv("input")), "layer 'input': the name is taken by the input: rename it"),
    (
        lambda: net(conv("a"), conv("b", input="c")),
        "layer 'b': input 'c' is no earlier layer: give one of input, a",
    ),
    (lambda: net(conv("a", input=3)), "layer 'a': input must be a layer's name, not 3: give a string"),
    (lambda: net(conv("a", residual=3)), "layer 'a': residual must be a layer's name, not 3: give a string"),
    (lambda: net(conv("a", residual="b")), "layer 'a': residual 'b' is no earlier layer: give one of input"),
    (lambda: net(conv(kernel=16)), "layer 'a': kernel must lie in 1..15, not 16: change it"),
    (lambda: net(conv(kernel="3")), "layer 'a': kernel must be an integer, not '3': give a whole number"),
    (lambda: net(conv(kernel=True)), "layer 'a': kernel must be an integer, not True: give a whole number"),
    (lambda: net(conv(stride=3)), "layer 'a': stride must lie in 1..2, not 3: change it"),
    (lambda: net(conv(pad=-1)), "layer 'a': pad must lie in 0..15, not -1: change it"),
    (lambda: net(conv(out=0)), "layer 'a': out must lie in 1..65535, not 0: change it"),
    (lambda: net(conv(pad=3)), "layer 'a': pad must be below kernel, pad is 3 and kernel 3: lower pad"),
    (
        lambda: net(MaxPool(name="p", kernel=2, stride=2, pad=2)),
        "layer 'p': pad must be below kernel, pad is 2 and kernel 2: lower pad",
    ),
    (
        lambda: net(MaxPool(name="p", kernel=16, stride=2)),
        "layer 'p': kernel must lie in 1..15, not 16: change it",
    ),
    (
        lambda: net(conv(kernel=9, pad=0)),
        "layer 'a': a kernel of 9 with pad 0 does not fit its input of 8 x 8, nothing would be left: shrink "
        "kernel or raise pad",
    ),
    (
        lambda: net(conv(kernel=3, pad=2), shape=(1, 4095, 8)),
        "layer 'a': its output of 4097 x 10 is larger than 4095: lower pad",
    ),
    (
        lambda: net(conv(norm="batch")),
        "layer 'a': norm must be 'frn' or 'none', not 'batch': choose one of the two",
    ),
    (
        lambda: net(conv(act="relu")),
        "layer 'a': act must be 'tlu' or 'none' with norm 'frn', not 'relu': change act or norm",
    ),
    (
        lambda: net(conv(norm="none")),
        "layer 'a': act must be 'relu' or 'none' with norm 'none', not 'tlu': change act or norm",
    ),
    (
        lambda: net(conv(kernel=8, pad=0)),
        "layer 'a': FRN on a 1 x 1 plane would leave only signs: set norm to 'none', or use a "
        "fully_connected layer",
    ),
    (
        lambda: net(conv(), shape=(1, 256, 256)),
        "layer 'a': FRN needs a plane of at most 32767 positions, its output is 256 x 256: raise stride or "
        "shrink the input",
    ),
    (
        lambda: net(conv("a"), conv("b", norm="none", act="relu", residual="a")),
        "layer 'b': a residual needs norm 'frn' and act 'tlu', here they are 'none' and 'relu': "
        "change them or remove residual",
    ),
    (
        lambda: net(conv("a"), conv("b", act="none", residual="a")),
        "layer 'b': a residual needs norm 'frn' and act 'tlu', here they are 'frn' and 'none': "
        "change them or remove residual",
    ),
    (
        lambda: net(conv("a"), conv("b", stride=2, residual="a")),
        "layer 'b': residual 'a' is 4 x 8 x 8, the layer's output is 4 x 4 x 4: "
        "add a subsample layer or a projection (a conv with act 'none') of the same shape",
    ),
    (
        lambda: net(FullyConnected(name="h", out=4, act="tlu")),
        "layer 'h': act of a fully connected layer must be 'relu' or 'none', not 'tlu': change it",
    ),
    (
        lambda: net(GlobalAvgPool(name="g"), shape=(1, 8, 7)),
        "layer 'g': a global average pool needs a square plane of at most 15 x 15, its input is 8 x 7: "
        "put an avg_pool layer before or in its place",
    ),
    (
        lambda: Network("x", (1, 8, 8), 3, (conv(),)),
        "layer 'a': the last layer must be fully_connected, it gives the logits: append one",
    ),
    (
        lambda: Network("x", (1, 8, 8), 3, (FullyConnected(name="fc", out=3, act="relu"),)),
        "layer 'fc': the last layer gives the logits and has no activation: set act to 'none'",
    ),
    (lambda: net(classes=4), "layer 'fc': out is 3, the network has 4 classes: make them equal"),
    (
        lambda: net(conv("a"), conv("b", input="input")),
        "layer 'a': no layer reads its output: remove it, or name it as an input",
    ),
    (
        lambda: net(
            conv("a"),
            conv("b"),
            conv("c", input="a"),
            conv("d", input="b", residual="a"),
            conv("e", residual="c"),
        ),
        "layer 'a': at most two layers may read a tensor, its output goes to b (input), c (input), d "
        "(residual): remove one of them",
    ),
    (
        lambda: net(conv("a"), MaxPool(name="p", kernel=3, stride=1, pad=1), conv("c", residual="a")),
        "layer 'p': a pool must be the only reader of its input, 'a' goes to p (input), c (residual): "
        "let the other read the pool's output",
    ),
    (
        lambda: net(conv("a"), conv("s", input="input"), conv("b", residual="a"), conv("c", residual="a")),
        "layer 'a': of two layers that read a tensor one must convolve it, its output goes to b (residual), c "
        "(residual): remove one of them",
    ),
    (
        lambda: net(
            conv("a"),
            Subsample(name="s", out=4, stride=1),
            Subsample(name="t", input="a", out=4, stride=1),
            conv("b", input="input", residual="s"),
            conv("c", residual="t"),
        ),
        "layer 'a': of two layers that read a tensor one must convolve it, its output goes to s (input), t "
        "(input): remove one of them",
    ),
    (
        lambda: net(conv("a"), Subsample(name="s", out=3), conv("b", input="a", stride=2, residual="s")),
        "layer 's': out must lie in 4..65535, not 3: change it",
    ),
    (
        lambda: net(conv("a"), Subsample(name="s", out=4, stride=0)),
        "layer 's': stride must lie in 1..15, not 0: change it",
    ),
    (
        lambda: net(conv("a"), Subsample(name="s", out=4), conv("b")),
        "layer 's': a subsample layer is a shortcut, one layer adds it and nothing else reads it, its output goes "
        "to b (input): name it as one layer's residual only",
    ),
    (
        lambda: net(rounding=Rounding(errors="up")),
        "rounding: errors must be 'nearest' or 'stochastic', not 'up': choose one of the two",
    ),
    (
        lambda: net().rounded({"gradients": "nearest"}),
        "rounding: unknown key 'gradients': the keys are activations, normalised, errors, weights, velocities",
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSALS, ids=[message[:60] for _, message in REFUSALS])
def test_refusals(build, message):
    with pytest.raises(NetworkError) as caught:
        build()
    assert str(caught.value) == message


HEAD = "input = [1, 8, 8]\nclasses = 3\n"
TAIL = '[[layers]]\ntype = "fully_connected"\nname = "fc"\nout = 3\n'
BAD_FILES = [
    (
        "wrong = 1\n" + HEAD + TAIL,
        "unknown key 'wrong': the keys are name, input, classes, loss, layers, train, rounding, format",
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
        "rounding: weights must be 'nearest' or 'stochastic', not 1: choose one of the two",
    ),
    (
        HEAD + TAIL + "[train]\nrate = 1\n",
        "train: unknown key 'rate': the keys are batch, epochs, lr, momentum, weight_decay, schedule, warmup",
    ),
    (
        HEAD + '[[layers]]\nname = "a"\n' + TAIL,
        "layer 'a': type must be one of conv, max_pool, avg_pool, global_avg_pool, subsample, fully_connected, not "
        "None: change it",
    ),
    (
        HEAD + '[[layers]]\ntype = "lstm"\n' + TAIL,
        "layer number 1: type must be one of conv, max_pool, avg_pool, global_avg_pool, subsample, fully_connected, not "
        "'lstm': change it",
    ),
    (
        HEAD + '[[layers]]\ntype = "max_pool"\nname = "p"\nkernel = 2\nstride = 2\nout = 2\n' + TAIL,
        "layer 'p': unknown key 'out': the keys of max_pool are type, name, input, kernel, stride, pad",
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


def test_networks_are_frozen():
    network = load_network("digits-cnn")
    with pytest.raises(dataclasses.FrozenInstanceError):
        network.classes = 4
