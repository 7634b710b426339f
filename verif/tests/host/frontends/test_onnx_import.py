"""ONNX models as networks and networks as ONNX models: one function, one network, the same codes; refusals word for word."""

import dataclasses
import io
import warnings
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install 'gradloom[onnx]')")

from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import gradloom.api.onnx_models as bridge  # noqa: E402
from gradloom.host.files import UserError  # noqa: E402
from gradloom.models import floatref  # noqa: E402
from gradloom.models.layers import INPUT  # noqa: E402
from gradloom.models.network import AvgPool, Conv, FullyConnected, GlobalAvgPool, MaxPool, Network, Subsample, load_network  # noqa: E402
from gradloom.models.state import State  # noqa: E402
from gradloom.verif.checkout import NETWORKS  # noqa: E402
from gradloom.verif.onnx_models import SHAPE, model_of, weights  # noqa: E402

FILES = sorted(NETWORKS.glob("*.toml"))
NETWORKS = ["digits-cnn", "resnet20", *map(str, FILES)]


def run(model, x: np.ndarray) -> np.ndarray:
    return ReferenceEvaluator(model).run(None, {INPUT: x})[0]


@pytest.mark.parametrize("name", NETWORKS, ids=[Path(name).stem for name in NETWORKS])
def test_export_computes_the_function_and_comes_back(name):
    network = load_network(name)
    state = State.initial(network, 3, -11)
    rng = np.random.default_rng(1)
    for table in state.parameters.values():
        for key, master in table.items():
            master += rng.integers(-1 << 20, 1 << 20, master.shape, dtype=np.int32) << 2
            assert key in ("gamma", "beta", "tau")
    model = bridge.to_model(network, state)
    onnx.checker.check_model(model, full_check=True)
    x = rng.normal(size=(2, *network.input_shape)).astype(np.float32)
    assert np.abs(run(model, x) - floatref.from_state(network, state).logits(x.astype(np.float64))).max() < 2e-5
    again = bridge.from_model(model)
    assert dataclasses.replace(again.network, train=network.train, loss=network.loss) == network and again.notes == ()
    read = again.state()
    for layer in network.weighted:
        assert np.array_equal(read.weights[layer.name], state.weights[layer.name])
        tid = network.tid(layer.name, 0)
        assert read.exponents[tid] == state.exponents[tid]
        for key in network.parameters(layer.name):
            if layer.act == "none" and key == "tau":
                continue
            assert np.abs(read.parameters[layer.name][key] - state.parameters[layer.name][key]).max() <= 1


def test_a_file_is_read(tmp_path):
    network = load_network("digits-cnn")
    onnx.save(bridge.to_model(network, State.initial(network, 1, -11)), tmp_path / "digits.onnx")
    assert bridge.from_model(tmp_path / "digits.onnx", 10, name="digits-cnn").network.layers == network.layers
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(UserError, match=r"^\S+bad.onnx cannot be read as an ONNX model: "):
        bridge.from_model(tmp_path / "bad.onnx")


# Operators


def test_every_operator():
    """BatchNormalization, both pools, MatMul with Add, Reshape, ReduceMean, Slice with Pad, Identity and Constant."""
    rng = np.random.default_rng(2)
    node = helper.make_node
    arrays = {"a.weight": weights(rng, 4, 3, 3, 3), "b.weight": weights(rng, 6, 4, 3, 3), "c.weight": weights(rng, 6, 6, 3, 3),
              "c.bias": weights(rng, 6), "m": weights(rng, 24, 5), "mb": weights(rng, 5), "f": weights(rng, 4, 5),
              "fb": weights(rng, 4), "to": np.array([0, -1], np.int64), "starts": np.array([0, 0], np.int64),
              "ends": np.array([1 << 40, 1 << 40], np.int64), "axes": np.array([2, 3], np.int64),
              "steps": np.array([2, 2], np.int64), "pads": np.array([0, 0, 0, 0, 0, 2, 0, 0], np.int64)}
    for name, count in (("an", 4), ("bn", 6)):
        arrays |= {f"{name}.weight": weights(rng, count), f"{name}.bias": weights(rng, count),
                   f"{name}.mean": np.zeros(count, np.float32), f"{name}.var": np.ones(count, np.float32)}

    def norm(source, name, to):
        return node("BatchNormalization", [source, *(f"{name}.{key}" for key in ("weight", "bias", "mean", "var"))], [to])

    nodes = [
        node("Conv", [INPUT, "a.weight"], ["1"], name="/a/Conv", auto_pad="SAME_UPPER"),
        norm("1", "an", "2"), node("Relu", ["2"], ["3"]),
        node("Slice", ["3", "starts", "ends", "axes", "steps"], ["4"]), node("Pad", ["4", "pads"], ["5"], name="short"),
        node("Conv", ["3", "b.weight"], ["6"], pads=[1, 1, 1, 1], strides=[2, 2]), norm("6", "bn", "7"),
        node("Add", ["5", "7"], ["8"]), node("Relu", ["8"], ["9"]), node("Identity", ["9"], ["10"]),
        node("AveragePool", ["10"], ["11"], name="mean", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        node("Conv", ["11", "c.weight", "c.bias"], ["12"], pads=[1, 1, 1, 1]), node("MaxPool", ["12"], ["13"], name="max",
                                                                                      kernel_shape=[2, 2], strides=[2, 2]),
        node("Relu", ["13"], ["14"]), node("Reshape", ["14", "to"], ["15"]), node("MatMul", ["15", "m"], ["16"], name="hidden"),
        node("Add", ["mb", "16"], ["17"]), node("Relu", ["17"], ["18"]), node("Gemm", ["18", "f", "fb"], ["logits"], name="last",
                                                                             transB=1),
    ]
    imported = bridge.from_model(model_of(nodes, arrays), 4)
    assert imported.network.layers == (
        Conv(name="a", input="input", out=4, kernel=3, pad=1),
        Subsample(name="short", input="a", out=6, stride=2),
        Conv(name="b", input="a", out=6, kernel=3, stride=2, pad=1, residual="short"),
        AvgPool(name="mean", input="b", kernel=3, stride=1, pad=1),
        Conv(name="c", input="mean", out=6, kernel=3, pad=1, norm="none", act="relu"),
        MaxPool(name="max", input="c", kernel=2, stride=2),
        FullyConnected(name="hidden", input="max", out=5, act="relu"),
        FullyConnected(name="last", input="hidden", out=4),
    )
    assert len(imported.notes) == 1 and imported.names["b", "tau"] == "bn.tau" and imported.names["hidden", "w"] == "m"
    state = imported.state()
    own = imported.arrays(state)
    assert all(own[name].shape == arrays[name].shape for name in ("a.weight", "m", "mb", "f"))
    assert np.abs(own["m"] - arrays["m"]).max() < 2 * np.abs(arrays["m"]).max() / 64
    exported = bridge.to_model(imported, state)
    names = {tensor.name for tensor in exported.graph.initializer}
    assert names >= {"a.weight", "an.weight", "bn.tau", "c.bias", "m", "mb", "f", "fb"}
    x = rng.normal(size=(2, *SHAPE)).astype(np.float32)
    # The matrix of MatMul is exported as Gemm's, so the same network comes back, and the same function.
    assert bridge.from_model(exported).network.layers == imported.network.layers
    assert np.abs(run(exported, x) - floatref.from_state(imported.network, state).logits(x.astype(np.float64))).max() < 1e-4


def test_mean_over_the_plane_is_a_pool():
    rng = np.random.default_rng(3)
    nodes = [helper.make_node("ReduceMean", [INPUT], ["1"], axes=[-2, -1], keepdims=0, name="mean"),
             helper.make_node("Gemm", ["1", "w", "b"], ["logits"], name="fc")]
    imported = bridge.from_model(model_of(nodes, {"w": weights(rng, 3, 4), "b": weights(rng, 4)}))
    assert imported.network == Network("net", SHAPE, 4, (GlobalAvgPool(name="mean"), FullyConnected(name="fc", out=4)))
    assert np.array_equal(imported.values["fc", "w"].shape, (4, 3))


def head(name: str, size: int, rng) -> tuple[list, dict]:
    return ([helper.make_node("Flatten", [name], ["flat"]), helper.make_node("Gemm", ["flat", "fw", "fb"], ["logits"], transB=1)],
            {"fw": weights(rng, 2, size), "fb": weights(rng, 2)})


REFUSED = [
    (["Sigmoid", {}], 192, "node 'inner' (Sigmoid): its activation is not one of the machine's: use ReLU"),
    (["GlobalMaxPool", {}], 3,
     "node 'inner' (GlobalMaxPool): its pool is not one of the machine's: use MaxPool2d, AvgPool2d or AdaptiveAvgPool2d(1)"),
    (["MaxPool", {"kernel_shape": [3, 3], "pads": [0, 0, 1, 1]}], 147,
     "node 'inner' (MaxPool): pads are [0, 0, 1, 1], padding is the same on all sides: pad all sides equally"),
    (["MaxPool", {"kernel_shape": [2, 3]}], 126,
     "node 'inner' (MaxPool): kernel is 2 x 3, the machine's windows are square: make kernel equal both ways"),
    (["MaxPool", {"kernel_shape": [2, 2], "dilations": [2, 2]}], 108,
     "node 'inner' (MaxPool): dilations are [2, 2], windows are dense: use dilations of 1"),
    (["AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}], 192,
     "node 'inner' (AveragePool): padding counts as zeros in the mean, and ceil_mode is not supported: set count_include_pad to 1 "
     "and ceil_mode to 0"),
    (["Relu", {}], 192,
     "node 'inner' (Relu): an activation must follow a convolution, a linear layer, their norm or sum, or a max pool of these, "
     "whose output nothing else reads, here it follows the network's input: put it there, or remove it"),
    (["Conv", {"group": 3}, np.ones((3, 1, 1, 1), np.float32)], 192,
     "node 'inner' (Conv): group is 3, every output channel reads every input channel: use group 1"),
    (["Conv", {}, np.ones((3, 3, 1, 1), np.float32)], 192,
     "node 'inner' (Conv): a layer without a norm trains a bias, and this one has none: set bias=True, or put a BatchNorm2d behind "
     "it"),
    (["Add", {}, np.ones((3, 1, 1), np.float32)], 192,
     "node 'inner' (Add): a constant is added only as the bias of the MatMul right before it: use Gemm or Conv with a bias"),
    (["Dropout", {}, np.array(0.25, np.float32), np.array(True)], 192,
     "node 'inner' (Dropout): the machine has no dropout, and its ratio is 0.25: set the ratio to 0 or remove it"),
    (["ReduceMean", {"axes": [1]}], 64,
     "node 'inner' (ReduceMean): only the mean over rows and columns of a feature map is a layer: reduce axes 2 and 3"),
]


@pytest.mark.parametrize(("what", "size", "message"), REFUSED)
def test_refused(what, size, message):
    rng = np.random.default_rng(4)
    op, settings, *constants = what
    arrays = {f"k{n}": value for n, value in enumerate(constants)}
    nodes, more = head("1", size, rng)
    inner = helper.make_node(op, [INPUT, *arrays], ["1"], name="inner", **settings)
    with pytest.raises(UserError) as caught:
        bridge.from_model(model_of([inner, *nodes], arrays | more))
    assert str(caught.value) == message


def test_a_folded_norm_is_explained():
    """An exporter in evaluation mode folds norms into convolutions; sums then have none."""
    rng = np.random.default_rng(5)
    nodes, more = head("4", 192, rng)
    body = [
        helper.make_node("Conv", [INPUT, "w1", "b1"], ["1"], name="first"), helper.make_node("Relu", ["1"], ["2"]),
        helper.make_node("Conv", ["2", "w2", "b2"], ["3"], name="second"), helper.make_node("Add", ["3", "2"], ["sum"], name="add"),
        helper.make_node("Relu", ["sum"], ["4"]),
    ]
    arrays = {f"w{n}": weights(rng, 3, 3, 1, 1) for n in (1, 2)} | {f"b{n}": weights(rng, 3) for n in (1, 2)}
    with pytest.raises(UserError) as caught:
        bridge.from_model(model_of([*body, *nodes], arrays | more))
    assert str(caught.value) == (
        "node 'add' (Add): one side of a sum must be a Conv2d followed by BatchNorm2d that nothing else reads, here the sides are "
        "node 'second' (Conv) and node '2' (Relu): put a BatchNorm2d before the addition"
    )


def test_open_shapes_and_shared_parameters_are_refused():
    rng = np.random.default_rng(6)
    nodes, arrays = head(INPUT, 192, rng)
    with pytest.raises(UserError) as caught:
        bridge.from_model(model_of(nodes, arrays, shape=("batch", 3, "rows", "columns")))
    assert str(caught.value) == (
        "the ONNX model's input 'input' must have a fixed shape (images, channels, rows, columns) or (images, features), only "
        "the number of images may be open: export it so"
    )
    body = [helper.make_node("Conv", [INPUT, "w", "b"], ["1"], name="first"),
            helper.make_node("Conv", ["1", "w", "b"], ["2"], name="two")]
    nodes, arrays = head("2", 192, rng)
    with pytest.raises(UserError) as shared:
        bridge.from_model(model_of([*body, *nodes], arrays | {"w": weights(rng, 3, 3, 1, 1), "b": weights(rng, 3)}))
    assert str(shared.value) == (
        "node 'two' (Conv): parameter 'w' has another reader, shared parameters are not trained: copy it"
    )


def test_a_module_that_pytorch_exported():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    import gradloom.api.pytorch as torch_bridge

    torch.manual_seed(1)
    nn = torch.nn
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                           nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(1, *SHAPE),), stream, dynamo=False, training=torch.onnx.TrainingMode.PRESERVE,
                          do_constant_folding=False)
    imported = bridge.from_model(onnx.load_model_from_string(stream.getvalue()), name="Sequential")
    direct = torch_bridge.from_module(module, SHAPE)
    assert [type(layer) for layer in imported.network.layers] == [type(layer) for layer in direct.network.layers]
    assert set(imported.names.values()) == set(direct.names.values()) and imported.names["0", "w"] == "0.weight"
    for name, array in imported.arrays(imported.state()).items():
        assert np.array_equal(array, direct.arrays(direct.state())[name]), name
