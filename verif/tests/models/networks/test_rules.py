"""The whole message of every refusal of a network."""

import pytest

from gradloom.models.layers import Upsample
from gradloom.models.network import (
    FullyConnected,
    GlobalAvgPool,
    MaxPool,
    Network,
    NetworkError,
    Rounding,
    Subsample,
    Training,
)
from gradloom.verif.networks import LAST, conv, net

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
        "'conv' is not a layer: give one of Conv, MaxPool, AvgPool, GlobalAvgPool, Upsample, Subsample, "
        "FullyConnected",
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
        "layer 'p': a layer of type max_pool must be the only reader of its input, 'a' goes to p (input), c (residual): "
        "let the other read its output",
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
        lambda: net(conv("a"), Upsample(name="u", scale=0)),
        "layer 'u': scale must lie in 1..15, not 0: change it",
    ),
    (
        lambda: net(conv("a"), Upsample(name="u", scale=1.5)),
        "layer 'u': scale must be an integer, not 1.5: give a whole number",
    ),
    (
        lambda: net(Upsample(name="u", scale=15), shape=(1, 2, 274)),
        "layer 'u': its output of 30 x 4110 is larger than 4095: lower scale",
    ),
    (
        lambda: net(conv("a"), Upsample(name="u", scale=1), conv("c", input="a"), conv("d", input="c", residual="u")),
        "layer 'u': a layer of type upsample must be the only reader of its input, 'a' goes to u (input), c (input): "
        "let the other read its output",
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
        "rounding: errors must be 'nearest' or 'stochastic', not 'up': choose one of them",
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
