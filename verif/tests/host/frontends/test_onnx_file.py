"""Files and objects that are no ONNX model, or a damaged one: one sentence each, before any node is read."""

import functools
import re

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install 'gradloom[onnx]')")

from onnx import TensorProto, helper  # noqa: E402

import gradloom.api.onnx_models as bridge  # noqa: E402
from gradloom.host.files import UserError  # noqa: E402
from gradloom.models.layers import INPUT  # noqa: E402
from gradloom.verif import onnx_models  # noqa: E402
from gradloom.verif.onnx_models import model_of, weights  # noqa: E402

node = helper.make_node
refusal = functools.partial(onnx_models.refusal, kinds=UserError)


def good(**settings):
    rng = np.random.default_rng(1)
    arrays = {"w": weights(rng, 40, 5), "b": weights(rng, 5), "v": weights(rng, 5, 3), "c": weights(rng, 3)}
    nodes = [node("Gemm", [INPUT, "w", "b"], ["h"], name="one"), node("Relu", ["h"], ["r"], name="relu"),
             node("Gemm", ["r", "v", "c"], ["logits"], name="two")]
    return model_of(nodes, arrays, shape=("n", 40), **settings)


def test_what_is_no_model_is_named():
    class ONNXProgram:
        model_proto = None

    model = good()
    for given, message in (
        (None, "an object of class NoneType is no ONNX model: give a file or an onnx.ModelProto"),
        (model.graph, "an object of class GraphProto is no ONNX model: give a file or an onnx.ModelProto"),
        (ONNXProgram(), "an object of class ONNXProgram is no ONNX model: give its model_proto"),
        (model.SerializeToString(), "bytes are given: read them with onnx.load_model_from_string, or give a file"),
        (onnx.ModelProto(), "the ONNX model has no nodes: give a whole model"),
    ):
        assert refusal(given) == message


def test_files_that_are_no_model(tmp_path):
    def said(name, content=None):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        return refusal(path).replace(str(tmp_path), "DIR")

    assert said("none.onnx") == "DIR/none.onnx cannot be read as an ONNX model: No such file or directory"
    assert said("") == "DIR cannot be read as an ONNX model: Is a directory"
    assert said("empty.onnx", b"") == "DIR/empty.onnx cannot be read as an ONNX model: it holds no nodes"
    assert said("weights.pt", b"PK\3\4" + bytes(100)).startswith("DIR/weights.pt cannot be read as an ONNX model: ")
    assert said("cut.onnx", good().SerializeToString()[:300]).startswith("DIR/cut.onnx cannot be read as an ONNX model: ")
    assert said("words.json", b'{"a": 1}').startswith("DIR/words.json cannot be read as an ONNX model: ")


def test_parameters_that_are_in_another_file(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(good(), path, save_as_external_data=True, size_threshold=10, location="net.bin")
    assert len(bridge.from_model(path).network.layers) == 2
    (tmp_path / "net.bin").unlink()
    assert refusal(path).startswith(f"{path} cannot be read as an ONNX model: Data of TensorProto ( tensor name: ")
    loaded = onnx.load(path, load_external_data=False)
    assert refusal(loaded) == "initializer 'w' is in another file, net.bin, that was not loaded: load the model with onnx.load"


def test_damaged_initializers_are_refused():
    model = good()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    assert refusal(model).startswith("initializer 'w' cannot be read (")


def test_versions():
    for opset in (7, 13, onnx.defs.onnx_opset_version()):
        assert len(bridge.from_model(good(opset=opset)).network.layers) == 2
    newest = onnx.defs.onnx_opset_version()
    assert refusal(good(opset=6)) == (
        f"the ONNX model has operator set 6, sets 7 to {newest} are read: convert it with onnx.version_converter"
    )
    assert refusal(good(opset=newest + 1)) == (
        f"the ONNX model has operator set {newest + 1}, sets 7 to {newest} are read: install a newer onnx, or export with a "
        f"lower opset"
    )
    assert refusal(good(ir=onnx.IR_VERSION + 1)) == (
        f"the ONNX model has IR version {onnx.IR_VERSION + 1}, the installed onnx reads up to {onnx.IR_VERSION}: install a "
        f"newer one"
    )
    model = good()
    del model.opset_import[:]
    assert refusal(model) == "the ONNX model names no operator set: export it anew"


def test_graphs_that_do_not_hang_together():
    model = good()
    model.graph.node[1].output[0] = "h"
    model.graph.node[2].input[0] = "h"
    assert refusal(model) == "node 'relu' (Relu): its output 'h' is the name of another value: give each value a name of its own"
    model = good()
    model.graph.node[1].output[0] = "w"
    assert refusal(model) == "node 'relu' (Relu): its output 'w' is the name of another value: give each value a name of its own"
    model = good()
    model.graph.node[0].input[0] = "r"
    nothing = "is given by nothing before it: check the file with onnx.checker"
    assert refusal(model) == f"node 'one' (Gemm): its input 'r' {nothing}"
    model = good()
    model.graph.node[1].input[0] = "elsewhere"
    assert refusal(model) == f"node 'relu' (Relu): its input 'elsewhere' {nothing}"
    model = good()
    model.graph.output[0].name = "elsewhere"
    assert refusal(model) == "the ONNX model's output 'elsewhere' is given by no node: check the file with onnx.checker"
    model = good()
    model.graph.initializer.append(model.graph.initializer[0])
    assert refusal(model) == "two initializers of the ONNX model are called 'w': give each a name of its own"


def test_nodes_without_their_inputs_and_sparse_initializers():
    model = good()
    del model.graph.node[1].input[:]
    # The reason is onnx's own.
    assert re.fullmatch(r"node 'relu' \(Relu\): .* input size 0 .*: check the file with onnx.checker", refusal(model))
    model = good()
    sparse = onnx.SparseTensorProto(values=model.graph.initializer[1], dims=[5])
    sparse.values.name = "s"
    model.graph.sparse_initializer.append(sparse)
    assert refusal(model) == "initializer 's' is sparse, the machine's tensors are dense: store it as a dense one"


def test_inputs_and_outputs():
    model = good()
    model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, ["n", 3]))
    assert refusal(model) == (
        "the ONNX model has 2 inputs and 1 outputs: the machine takes one batch of images and gives its logits"
    )
    shape = "must have a fixed shape (images, channels, rows, columns) or (images, features), only the number of images "
    shape += "may be open: "
    for wrong in ((40,), ("n", 4, 10), ("n", "m"), ("n", 0), None):
        model = good()
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, wrong))
        assert refusal(model) == f"the ONNX model's input 'input' {shape}export it so"
    model = good(kind=TensorProto.INT8)
    assert refusal(model) == "the ONNX model's input 'input' holds INT8, the machine takes images as real numbers: export it so"
