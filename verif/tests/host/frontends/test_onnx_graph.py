"""What an ONNX file may say in several ways is read in all of them; what does not fit is refused by its node's name."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install 'gradloom[onnx]')")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import gradloom.api.onnx_models as bridge  # noqa: E402
from gradloom.models.layers import INPUT, Conv, FullyConnected, GlobalAvgPool, MaxPool, Subsample, Upsample  # noqa: E402
from gradloom.verif.onnx_models import SHAPE, model_of, refusal, weights  # noqa: E402

node = helper.make_node


def check_round_trip(model, images: np.ndarray):
    """The import computes what the file computes, up to PINT's rounding; its export is valid, computes the same and comes back."""
    imported = bridge.from_model(model)
    exported = bridge.to_model(imported, imported.state())
    onnx.checker.check_model(exported, full_check=True)
    expected = ReferenceEvaluator(model).run(None, {INPUT: images})[0].astype(np.float64)
    planes = images.astype(np.float32).reshape(len(images), *imported.network.input_shape)
    got = ReferenceEvaluator(exported).run(None, {INPUT: images.astype(np.float32) if imported.flat else planes})[0]
    assert np.abs(got - expected).max() < 0.1 * np.abs(expected).max()
    again = bridge.from_model(exported)
    assert again.network.layers == imported.network.layers
    for key, value in imported.values.items():
        assert again.values[key].size == value.size
    return imported


# Biases


def two_layers(bias, *, join="Gemm", swapped=False, **settings):
    """16 features, 5, 3; the last layer's bias is given in a form of its own."""
    rng = np.random.default_rng(1)
    arrays = {"w1": weights(rng, 16, 5), "b1": weights(rng, 5), "w2": weights(rng, 5, 3)}
    nodes = [node("Flatten", [INPUT], ["f"]), node("Gemm", ["f", "w1", "b1"], ["h"], name="first"), node("Relu", ["h"], ["r"])]
    if join == "Gemm":
        nodes.append(node("Gemm", ["r", "w2", "b2"], ["logits"], name="second", **settings))
    else:
        nodes += [node("MatMul", ["r", "w2"], ["m"], name="second"),
                  node("Add", ["b2", "m"] if swapped else ["m", "b2"], ["logits"], name="add")]
    return model_of(nodes, arrays | {"b2": bias}, shape=("batch", 1, 4, 4))


@pytest.mark.parametrize("shape", [(3,), (1, 3), (1,), (), (1, 1)])
@pytest.mark.parametrize(("join", "swapped"), [("Gemm", False), ("MatMul", False), ("MatMul", True)])
def test_every_bias_that_broadcasts_is_read(shape, join, swapped):
    bias = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    images = np.random.default_rng(3).normal(size=(4, 1, 4, 4)).astype(np.float32)
    imported = check_round_trip(two_layers(bias, join=join, swapped=swapped), images)
    assert np.array_equal(imported.values["second", "beta"], np.broadcast_to(bias, (1, 3))[0].astype(np.float64))
    own = imported.arrays(imported.state())["b2"]
    assert own.shape == (shape if bias.size == 3 else (3,)) and np.abs(own - bias).max() < 1e-6
    one = "node 'second' (" + join + "): its bias 'b2' is one number for 3 outputs, and is trained as 3"
    assert imported.notes == (() if bias.size == 3 else (one,))


@pytest.mark.parametrize(("shape", "join"), [((3, 1), "Gemm"), ((4, 3), "Gemm"), ((2,), "Gemm"), ((1, 1, 3), "MatMul"), ((4, 1),
    "MatMul"),
                                              ((2, 3), "MatMul"), ((2,), "MatMul")])
def test_a_bias_that_differs_between_images_is_refused(shape, join):
    assert refusal(two_layers(np.ones(shape, np.float32), join=join)) == (
        f"node 'second' ({join}): its bias 'b2' has the shape {shape}, the layer has 3 outputs: give it the shape (3,)"
    )


def test_every_device_trains_the_same_bias():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    import gradloom.api.pytorch as torch_bridge

    x, y = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0])
    results = set()
    for shape in ((3,), (1, 3)):
        for device in ("golden", "emulator", "rtl") if shape == (1, 3) else ("golden",):
            model = two_layers(np.array([0.5, -0.25, 0.125], np.float32).reshape(shape))
            with torch_bridge.compile(bridge.from_model(model), config="nano", device=device, quiet=True) as compiled:
                losses = compiled.step(x, y).loss, compiled.step(x, y).loss
                results.add((*losses, *compiled.state_dict()["b2"].reshape(-1).tolist()))
                trained = bridge.to_model(compiled.imported, compiled.state())
                onnx.checker.check_model(trained, full_check=True)
    assert len(results) == 1


def conv_bias(shape, *, first=True):
    rng = np.random.default_rng(4)
    arrays = {"w": weights(rng, 4, 3, 3, 3), "b": weights(rng, *shape), "f": weights(rng, 2, 144), "fb": weights(rng, 2)}
    nodes = [node("Conv", [INPUT, "w"], ["c"], name="conv"), node("Add", ["c", "b"] if first else ["b", "c"], ["d"], name="add"),
             node("Relu", ["d"], ["r"]), node("Flatten", ["r"], ["flat"]), node("Gemm", ["flat", "f", "fb"], ["logits"], transB=1)]
    return model_of(nodes, arrays)


@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1), (), (1,), (1, 1, 1)])
def test_an_addition_is_a_convolutions_bias(shape):
    images = np.random.default_rng(5).normal(size=(2, *SHAPE)).astype(np.float32)
    for first in (True, False):
        imported = check_round_trip(conv_bias(shape, first=first), images)
        assert imported.network.layers[0] == Conv(name="conv", input=INPUT, out=4, kernel=3, norm="none", act="relu")
        own = imported.arrays(imported.state())["b"]
        assert own.shape == (shape if 4 in shape else (4,))


def test_additions_that_are_no_bias_are_refused():
    assert refusal(conv_bias((4, 1, 6))) == (
        "node 'conv' (Conv): its bias 'b' has the shape (4, 1, 6), the layer has 4 outputs: give it the shape (4, 1, 1)"
    )
    model = two_layers(np.ones(3, np.float32), join="MatMul")
    model.graph.node[-1].output[0] = "sum"
    model.graph.node.append(node("Add", ["sum", "m"], ["logits"], name="again"))
    only = "a constant is added only as the bias of the MatMul right before it: use Gemm or Conv with a bias"
    assert refusal(model) == f"node 'add' (Add): {only}"
    model = two_layers(np.ones(3, np.float32))
    model.graph.node[-1].output[0] = "sum"
    model.graph.node.append(node("Add", ["sum", "b1"], ["logits"], name="more"))
    assert refusal(model) == f"node 'more' (Add): {only}"


def test_scaled_and_transposed_products():
    for settings in ({"alpha": 0.5}, {"beta": 2.0}, {"transA": 1}):
        assert refusal(two_layers(np.ones(3, np.float32), **settings)) == (
            "node 'second' (Gemm): alpha, beta and transA are not supported: leave them at their defaults"
        )
    assert bridge.from_model(two_layers(np.ones(3, np.float32), alpha=1.0, beta=1.0, transA=0)).notes == ()


# Parameters


def test_parameters_come_from_constants_identities_and_transpositions():
    """As exporters write them: equal initializers merged by Identity, a Linear's matrix behind a Transpose, half precision."""
    rng = np.random.default_rng(6)
    w, b = weights(rng, 4, 48), weights(rng, 4)
    half = w.astype(np.float16)
    tail = [node("Relu", ["h"], ["r"]), node("Gemm", ["r", "w2", "b2"], ["logits"], name="last")]
    arrays = {"w2": weights(rng, 4, 2), "b2": weights(rng, 2)}
    flatten = node("Flatten", [INPUT], ["f"])
    gemm = node("Gemm", ["f", "w", "b"], ["h"], name="first", transB=1)
    bias = node("Constant", [], ["b"], value=numpy_helper.from_array(b))
    forms = [
        ([node("Constant", [], ["w"], value=numpy_helper.from_array(w)), bias, flatten, gemm], {}),
        ([node("Identity", ["stored"], ["w"]), node("Identity", ["bias"], ["b"]), flatten, gemm], {"stored": w, "bias": b}),
        ([bias, node("Transpose", ["stored"], ["w"], perm=[1, 0]), flatten, gemm], {"stored": np.ascontiguousarray(w.T)}),
        ([bias, flatten, node("Transpose", ["stored"], ["t"]), node("MatMul", ["f", "t"], ["m"], name="first"),
          node("Add", ["m", "b"], ["h"])], {"stored": w}),
        ([bias, node("Cast", ["stored"], ["w"], to=TensorProto.FLOAT), flatten, gemm], {"stored": half}),
        ([bias, node("Reshape", ["stored", "to"], ["w"]), flatten, gemm], {"stored": w.reshape(-1), "to": np.array([4, 48])}),
        ([node("Constant", [], ["b"], value_floats=b.tolist()), flatten, gemm], {"w": w}),
    ]
    for number, (nodes, more) in enumerate(forms):
        images = rng.normal(size=(2, 3, 4, 4)).astype(np.float32)
        imported = check_round_trip(model_of([*nodes, *tail], arrays | more, shape=("n", 3, 4, 4)), images)
        assert np.array_equal(imported.values["first", "w"], (half if number == 4 else w).astype(np.float64)), number
        own = imported.arrays(imported.state())
        for name in more.keys() & own.keys():
            assert own[name].shape == more[name].shape


@pytest.mark.parametrize(("kind", "dtype"), [(TensorProto.DOUBLE, np.float64), (TensorProto.FLOAT16, np.float16)])
def test_any_float_is_read(kind, dtype):
    rng = np.random.default_rng(7)
    arrays = {"w": rng.normal(size=(8, 3)).astype(dtype), "b": rng.normal(size=3).astype(dtype)}
    model = model_of([node("Gemm", [INPUT, "w", "b"], ["logits"], name="fc")], arrays, shape=("n", 8), kind=kind)
    check_round_trip(model, rng.normal(size=(4, 8)).astype(dtype))


def test_a_parameter_named_as_its_layer_is_exported():
    rng = np.random.default_rng(8)
    model = model_of([node("Gemm", [INPUT, "fc", "b"], ["logits"], name="fc")], {"fc": weights(rng, 8, 3), "b": weights(rng, 3)},
                     shape=("n", 8))
    check_round_trip(model, weights(rng, 4, 8))


def test_features_are_accepted():
    """(images, features), before Gemm or MatMul; the export takes them, too."""
    rng = np.random.default_rng(9)
    arrays = {"w": weights(rng, 8, 5), "b": weights(rng, 5), "w2": weights(rng, 5, 3), "b2": weights(rng, 3)}
    nodes = [node("MatMul", [INPUT, "w"], ["m"], name="one"), node("Add", ["m", "b"], ["a"]), node("Relu", ["a"], ["r"]),
             node("Gemm", ["r", "w2", "b2"], ["logits"], name="two")]
    for batch in ("n", 4):
        imported = check_round_trip(model_of(nodes, arrays, shape=(batch, 8)), weights(rng, 4, 8))
        assert imported.flat and imported.network.input_shape == (8, 1, 1)
        assert imported.network.layers == (FullyConnected(name="one", input=INPUT, out=5, act="relu"),
                                           FullyConnected(name="two", input="one", out=3))
    exported = bridge.to_model(imported, imported.state())
    assert [dim.dim_value for dim in exported.graph.input[0].type.tensor_type.shape.dim] == [0, 8]


# What means nothing else


def body(nodes, size, arrays=(), *, opset=17, shape=("batch", *SHAPE), start="c"):
    """A convolution to 4 channels with pad 1, nodes from value ``c`` to ``z``, and a Gemm of ``size`` features."""
    rng = np.random.default_rng(10)
    more = {"conv.weight": weights(rng, 4, 3, 3, 3), "conv.bias": weights(rng, 4), "b": weights(rng, 4), "f": weights(rng, 2,
        size), "fb": weights(rng, 2)}
    every = [node("Conv", [INPUT, "conv.weight", "conv.bias"], [start], name="conv", pads=[1, 1, 1, 1]), *nodes,
             node("Gemm", ["z", "f", "fb"], ["logits"], name="last", transB=1)]
    return model_of(every, more | dict(arrays), opset=opset, shape=shape)


def ints(*values):
    return np.array(values, np.int64)


LEGACY = [node("Shape", ["c"], ["s"]), node("Gather", ["s", "zero"], ["n"], axis=0), node("Unsqueeze", ["n", "axis"], ["u"]),
          node("Concat", ["u", "rest"], ["to"], axis=0), node("Reshape", ["c", "to"], ["z"], name="reshape")]
GLOBAL = node("GlobalAveragePool", ["c"], ["p"])
ACCEPTED = [
    (LEGACY, 256, {"zero": np.array(0), "axis": ints(0), "rest": ints(-1)}, None),
    ([*LEGACY[:2], node("Constant", [], ["k"], value=numpy_helper.from_array(np.array(256))), node("Unsqueeze", ["k", "axis"],
     ["rest"]),
      *LEGACY[2:]], 256, {"zero": np.array(0), "axis": ints(0)}, None),
    ([node("Reshape", ["c", "to"], ["z"])], 256, {"to": ints(0, -1)}, None),
    ([node("Reshape", ["c", "to"], ["z"])], 256, {"to": ints(-1, 256)}, None),
    ([node("Flatten", ["c"], ["z"])], 256, {}, None),
    ([node("Flatten", ["c"], ["z"], axis=-3)], 256, {}, None),
    ([GLOBAL, node("Squeeze", ["p", "axes"], ["z"])], 4, {"axes": ints(2, 3)}, GlobalAvgPool),
    ([GLOBAL, node("Squeeze", ["p", "last"], ["q"]), node("Squeeze", ["q", "last"], ["z"])], 4, {"last": ints(-1)}, GlobalAvgPool),
    ([node("ReduceMean", ["c"], ["z"], axes=[2, 3], keepdims=0)], 4, {}, GlobalAvgPool),
    ([GLOBAL, node("Reshape", ["p", "to"], ["z"])], 4, {"to": ints(0, 4)}, GlobalAvgPool),
    ([node("Flatten", ["c"], ["g"]), node("Unsqueeze", ["g", "axes"], ["h"]), node("Squeeze", ["h", "axes"], ["z"])], 256,
     {"axes": ints(2)}, None),
    ([node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, dilations=[1, 1], storage_order=0),
      node("Flatten", ["p"], ["z"])], 64, {}, MaxPool),
    ([node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID"), node("Flatten", ["p"], ["z"])], 64,
     {}, MaxPool),
    ([node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"), node("Flatten", ["p"], ["z"])], 64,
     {}, MaxPool),
    ([node("Identity", ["c"], ["i"]), node("Dropout", ["i"], ["j"]), node("Cast", ["j"], ["k"], to=1), node("Flatten", ["k"],
     ["z"])],
     256, {}, None),
    ([node("Dropout", ["c", "none", "on"], ["j"]), node("Flatten", ["j"], ["z"])], 256,
     {"none": np.array(0, np.float32), "on": np.array(True)}, None),
]


@pytest.mark.parametrize(("nodes", "size", "arrays", "pool"), ACCEPTED, ids=[str(number) for number in range(len(ACCEPTED))])
@pytest.mark.parametrize("batch", ["batch", 2])
def test_what_means_nothing_else_is_accepted(nodes, size, arrays, pool, batch):
    images = np.random.default_rng(11).normal(size=(2, *SHAPE)).astype(np.float32)
    imported = check_round_trip(body(nodes, size, arrays, shape=(batch, *SHAPE)), images)
    assert [type(layer) for layer in imported.network.layers[1:-1]] == ([pool] if pool else [])


def test_a_dropout_that_is_switched_off_is_noted():
    imported = bridge.from_model(body([node("Dropout", ["c"], ["d"], name="drop"), node("Flatten", ["d"], ["z"])], 256))
    assert imported.notes == (
        "node 'drop' (Dropout): it is switched off in the file and left out, the machine has no dropout",
    )
    zero = body([node("Dropout", ["c", "none"], ["d"], name="drop"), node("Flatten", ["d"], ["z"])], 256, {"none": np.array(0,
        np.float32)})
    assert bridge.from_model(zero).notes == ()


def test_settings_as_attributes_of_older_operator_sets():
    """Slice and Pad had no inputs for them before operator sets 10 and 11, Squeeze before 13."""
    rng = np.random.default_rng(12)
    count = 4
    norm = {f"n.{key}": np.ones(count, np.float32) if key in ("weight", "var") else np.zeros(count, np.float32)
            for key in ("weight", "bias", "mean", "var")}
    arrays = {"v": weights(rng, 4, 4, 3, 3), **norm}

    def network(steps, opset):
        return body([node("Relu", ["c"], ["r"]), *steps, node("Conv", ["r", "v"], ["d"], name="two", pads=[1] * 4),
                     node("BatchNormalization", ["d", "n.weight", "n.bias", "n.mean", "n.var"], ["e"]), node("Add", ["e", "s"],
                         ["g"]),
                     node("Relu", ["g"], ["h"]), node("GlobalAveragePool", ["h"], ["p"]), node("Squeeze", ["p"], ["z"], axes=[2,
                         3])],
                    4, arrays, opset=opset)

    whole = network([node("Slice", ["r"], ["s"], name="slice", starts=[0, 0], ends=[1 << 31, 1 << 31], axes=[2, 3])], 9)
    assert [type(layer) for layer in bridge.from_model(whole).network.layers].count(Subsample) == 1
    part = body([node("Slice", ["c"], ["s"], name="slice", starts=[1], ends=[1 << 31], axes=[2]), node("Flatten", ["s"],
        ["z"])], 224, opset=9)
    assert refusal(part) == (
        "node 'slice' (Slice): only every s-th row and column of a whole feature map is a layer (subsample): slice so"
    )


HALVES = [(f"{start}half_pixel{end}", f"round_prefer_{tie}") for start, end in (("", ""), ("pytorch_", ""), ("", "_symmetric"))
          for tie in ("floor", "ceil")]


def enlarged(scale=2, inputs=("", "s"), arrays=None, opset=19, kind="Resize", size=None, **settings):
    """4 features of 8 x 8, larger, in a fully connected layer."""
    size = 4 * (8 * scale) ** 2 if size is None else size
    arrays = {"s": np.array([1, 1, scale, scale], np.float32)} if arrays is None else arrays
    steps = [node(kind, ["c", *inputs], ["u"], name="up", **settings), node("Flatten", ["u"], ["z"])]
    return body(steps, size, arrays, opset=opset)


@pytest.mark.parametrize("scale", [2, 3])
@pytest.mark.parametrize("way", [("asymmetric", "floor"), *HALVES], ids="-".join)
def test_repeated_rows_and_columns_are_a_layer(way, scale):
    """All that give position x / s, rounded down, at x; the reference evaluator says so, too."""
    model = enlarged(scale, coordinate_transformation_mode=way[0], nearest_mode=way[1])
    images = np.random.default_rng(7).normal(size=(2, *SHAPE)).astype(np.float32)
    layers = check_round_trip(model, images).network.layers
    assert [(layer.name, layer.scale) for layer in layers if isinstance(layer, Upsample)] == [("up", scale)]


@pytest.mark.parametrize("model", [
    enlarged(),
    enlarged(inputs=("", "", "size"), arrays={"size": ints(2, 4, 16, 16)}),
    enlarged(inputs=("s",), opset=10),
    enlarged(inputs=("s",), opset=9, kind="Upsample"),
], ids=["defaults", "a size", "opset 10", "opset 9"])
def test_older_and_other_forms_of_upsampling(model):
    layers = bridge.from_model(model).network.layers
    assert [layer.scale for layer in layers if isinstance(layer, Upsample)] == [2]


@pytest.mark.parametrize("model", [
    enlarged(mode="linear"),
    enlarged(coordinate_transformation_mode="align_corners"),
    enlarged(nearest_mode="floor"),
    enlarged(coordinate_transformation_mode="asymmetric", nearest_mode="ceil"),
    enlarged(coordinate_transformation_mode="asymmetric"),
    enlarged(arrays={"s": np.array([1, 1, 2.1, 2.1], np.float32)}),
    enlarged(arrays={"s": np.array([1, 1, 2, 3], np.float32)}, size=4 * 16 * 24),
    enlarged(arrays={"s": np.array([1, 1, 0.5, 0.5], np.float32)}, size=4 * 16),
], ids=["linear", "corners", "half floor", "ceil", "asymmetric prefers floor", "2.1", "2 x 3", "0.5"])
def test_other_ways_to_enlarge_are_refused(model):
    assert refusal(model) == (
        "node 'up' (Resize): only repeating every row and every column a whole number of times, the same both ways, is a layer "
        "(upsample): use the mode nearest and one whole scale"
    )


def test_what_means_something_else_is_refused():
    assert refusal(body([node("Reshape", ["c", "to"], ["z"], name="reshape")], 128, {"to": ints(-1, 128)})) == (
        "node 'reshape' (Reshape): it reshapes images of 4 x 8 x 8 to 128: only flattening each image is supported, use Flatten "
        "with axis 1"
    )
    assert refusal(body([node("Flatten", ["c"], ["z"], name="all", axis=0)], 256)).startswith("node 'all' (Flatten): it reshapes ")
    assert refusal(body([node("MaxPool", ["c"], ["p"], name="pool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
                         node("Flatten", ["p"], ["z"])], 64)) == (
        "node 'pool' (MaxPool): ceil_mode and indices are not supported: leave them out"
    )
    assert refusal(body([node("MaxPool", ["c"], ["p"], name="pool", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
                         node("Flatten", ["p"], ["z"])], 64)) == (
        "node 'pool' (MaxPool): auto_pad SAME_UPPER pads more on one side: give pads, equal on all sides"
    )
    assert refusal(body([node("Transpose", ["c"], ["t"], name="turn", perm=[0, 2, 3, 1]), node("Flatten", ["t"], ["z"])],
        256)).startswith(
        "node 'turn' (Transpose): the machine has no such operation: "
    )


# Shapes that do not fit


def fitting(**changed):
    """conv - norm - Relu - Flatten - Gemm, with some of the parameters exchanged."""
    rng = np.random.default_rng(13)
    arrays = {"w": weights(rng, 4, 3, 3, 3), "g": weights(rng, 4), "t": weights(rng, 4), "m": weights(rng, 4), "v": weights(rng, 4),
              "f": weights(rng, 144, 2), "fb": weights(rng, 2)} | changed
    arrays = {name: value for name, value in arrays.items() if value is not None}
    return model_of([node("Conv", [INPUT, "w"], ["c"], name="conv"), node("BatchNormalization", ["c", "g", "t", "m", "v"],
        ["n"], name="norm"),
                     node("Relu", ["n"], ["r"]), node("Flatten", ["r"], ["flat"]), node("Gemm", ["flat", "f", "fb"], ["logits"],
                         name="fc")],
                    arrays)


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


@pytest.mark.parametrize(("changed", "message"), [
    ({"w": ones(4, 5, 3, 3)}, "node 'conv' (Conv): its weight 'w' of shape (4, 5, 3, 3) reads 5 channels, its input has 3: "
                              "give it the "
                              "shape (4, 3, 3, 3)"),
    ({"w": ones(4, 3, 3)}, "node 'conv' (Conv): its weight 'w' has 3 dimensions, the machine works on planes of rows and "
                           "columns: use "
                           "two-dimensional windows"),
    ({"w": ones(4, 3, 9, 9)}, "node 'conv' (Conv): its kernel is 9 x 9, larger than its input of 8 x 8 with 0 rows and columns of "
                              "padding: shrink the kernel or pad more"),
    ({"w": ones(0, 3, 3, 3)}, "node 'conv' (Conv): its parameter 'w' of shape (0, 3, 3, 3) is empty: give it numbers"),
    ({"w": ones(4, 3, 3, 3, dtype=np.int8)}, "node 'conv' (Conv): its parameter 'w' holds int8, the machine trains real "
                                             "numbers: store "
                                             "float32"),
    ({"w": None}, "node 'conv' (Conv): its input 'w' is given by nothing before it: check the file with onnx.checker"),
    ({"g": ones(5)}, "node 'norm' (BatchNormalization): its parameter 'g' has the shape (5,), its input has 4 channels: give "
                     "it the "
                     "shape (4,)"),
    ({"t": ones(1, 4)}, "node 'norm' (BatchNormalization): its parameter 't' has the shape (1, 4), its input has 4 channels: "
                        "give it "
                        "the shape (4,)"),
    ({"f": ones(145, 2)}, "node 'fc' (Gemm): its matrix 'f' of shape (145, 2) reads 145 features, its input has 144: give it the "
                          "shape (144, 2)"),
    ({"f": ones(2, 144)}, "node 'fc' (Gemm): its matrix 'f' of shape (2, 144) reads 2 features, its input has 144: give it "
                          "the shape "
                          "(144, 144)"),
    ({"f": ones(144)}, "node 'fc' (Gemm): its matrix 'f' has 1 dimensions: multiply flattened images by a matrix"),
    ({"fb": ones(3)}, "node 'fc' (Gemm): its bias 'fb' has the shape (3,), the layer has 2 outputs: give it the shape (2,)"),
])
def test_parameters_that_do_not_fit_are_refused(changed, message):
    assert refusal(fitting(**changed)) == message


def test_values_that_do_not_fit_are_refused():
    flat = body([node("Conv", ["c", "v", "b"], ["d"], name="two"), node("Flatten", ["d"], ["z"])], 256, {"v": ones(4, 4, 1, 1)})
    assert bridge.from_model(flat).network.layers[1].name == "two"
    vector = body([node("Flatten", ["c"], ["e"]), node("Conv", ["e", "v", "b"], ["d"], name="two"), node("Flatten", ["d"],
        ["z"])], 256,
                  {"v": ones(4, 4, 1, 1)})
    assert refusal(vector) == (
        "node 'two' (Conv): its input 'e' is no feature map, its shape for one image is 256: give it (images, channels, rows, "
        "columns)"
    )
    assert refusal(body([node("Identity", ["c"], ["z"])], 8)) == (
        "node 'last' (Gemm): its input is a feature map, a fully connected layer takes every element of an image: put a "
        "Flatten before "
        "it"
    )
    unlike = body([node("Relu", ["c"], ["r"]), node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
                   node("Add", ["r", "p"], ["s"], name="sum"), node("Flatten", ["s"], ["z"])], 256)
    assert refusal(unlike) == "node 'sum' (Add): only two feature maps of one shape are added: give both sides the same shape"
    mask = body([node("Dropout", ["c"], ["d", "mask"]), node("Cast", ["mask"], ["m"], name="cast", to=1), node("Flatten", ["m"],
        ["z"])], 256)
    assert refusal(mask) == "node 'cast' (Cast): its input 'mask' is no output of a layer: compute only from the network's input"
    window = body([node("Conv", ["c", "v", "b"], ["d"], name="two", kernel_shape=[3, 3]), node("Flatten", ["d"], ["z"])], 256,
                  {"v": ones(4, 4, 1, 1)})
    assert refusal(window) == "node 'two' (Conv): kernel_shape is 3 x 3 and its weight is 1 x 1: make them equal"


@pytest.mark.parametrize(("settings", "reason"), [
    ({"strides": [2]}, "strides is [2]: give it a whole number from 1 for rows and one for columns"),
    ({"strides": [0, 0]}, "strides is [0, 0]: give it a whole number from 1 for rows and one for columns"),
    ({"pads": [0, 0]}, "pads are [0, 0], padding is the same on all sides: pad all sides equally"),
    ({"pads": [-1] * 4}, "pads are [-1, -1, -1, -1], padding is the same on all sides: pad all sides equally"),
    ({"auto_pad": "FOO"}, "auto_pad is 'FOO', which is none of the operator's: give pads, equal on all sides"),
])
def test_settings_that_are_none_are_refused(settings, reason):
    pool = node("MaxPool", ["c"], ["p"], name="pool", **{"kernel_shape": [2, 2]} | settings)
    assert refusal(body([pool, node("Flatten", ["p"], ["z"])], 64)) == f"node 'pool' (MaxPool): {reason}"


@pytest.mark.parametrize("settings", [{}, {"kernel_shape": "ab"}, {"kernel_shape": [2, 2], "foo": 1}])
def test_attributes_that_are_not_the_operators_are_refused(settings):
    """The reason is onnx's own."""
    pool = node("MaxPool", ["c"], ["p"], name="pool", **settings)
    message = refusal(body([pool, node("Flatten", ["p"], ["z"])], 64))
    assert message.startswith("node 'pool' (MaxPool): ") and message.endswith(": check the file with onnx.checker")


@pytest.mark.parametrize("nodes", [[], [node("Identity", ["f"], ["y"])]])
def test_an_output_that_is_a_constant_is_refused(nodes):
    model = body([node("Flatten", ["c"], ["z"]), *nodes], 256)
    model.graph.output[0].name = "y" if nodes else "f"
    assert refusal(model) == (
        f"the ONNX model's output {'y' if nodes else 'f'!r} does not depend on its input: give the logits as its output"
    )
