"""Training from a PyTorch loop: golden model and simulated hardware give the same steps, tensors and state."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
sys.path.insert(0, str(Path(__file__).parent))

from torch_modules import Plain, ResNet  # noqa: E402

import gradloom.api.pytorch as bridge  # noqa: E402
from gradloom.host.datasets.data import quantise  # noqa: E402
from gradloom.host.files import UserError  # noqa: E402
from gradloom.models import digests, floatref  # noqa: E402
from gradloom.models.arithmetic import pint  # noqa: E402
from gradloom.models.golden import step as golden  # noqa: E402
from gradloom.models.golden.step import Hyper  # noqa: E402
from gradloom.models.layers import NetworkError  # noqa: E402

SHAPE = (3, 8, 8)


def batches(count: int, size: int = 4) -> list[tuple]:
    torch.manual_seed(20)
    return [(torch.rand(size, *SHAPE) - 0.5, torch.randint(0, 10, (size,))) for _ in range(count)]


def module() -> ResNet:
    torch.manual_seed(5)
    return ResNet()


def test_bytes_are_256ths():
    """As --data takes them: pictures of bytes train as the same pictures in 0..1 do, tensors or arrays."""
    torch.manual_seed(7)
    pictures, labels = torch.randint(0, 256, (4, *SHAPE), dtype=torch.uint8), torch.randint(0, 10, (4,))
    found = []
    for given in (pictures, pictures.numpy(), pictures.float() / 256):
        with bridge.compile(module(), seed=9) as model:
            losses = [model.step(given, labels).loss for _ in range(2)]
            found.append((losses, digests.parameters_digest(model.network, model.state())))
    assert found[0] == found[1] == found[2]


def test_a_loop_is_the_golden_model(capsys):
    given = batches(3)
    with bridge.compile(module(), lr=0.03, weight_decay=2.0**-10, seed=9, keep=2) as model:
        outs = [model.step(x, y) for x, y in given]
        state = model.imported.state(seed=9, input_exponent=quantise(given[0][0].numpy())[1])
        results = []
        for x, y in given:
            wide = np.rint(np.ldexp(x.numpy().astype(np.float64), 20 - state.exponents[2])).astype(np.int64)
            results.append(golden.train_step(model.network, state, pint.encode(wide, 20).code, y.numpy(),
                                             Hyper.from_floats(0.03, 0.9, 2.0**-10)))
        assert [(out.number, out.loss, out.accuracy, out.cycles) for out in outs] == [
            (n, result.loss, result.correct / 4, None) for n, result in enumerate(results)
        ]
        assert digests.parameters_digest(model.network, model.state()) == digests.parameters_digest(model.network, state)
        for step in (1, 2):
            for (layer, name), codes in results[step].tensors.items():
                if layer != "input":
                    assert np.array_equal(model.tensors(step)[layer].codes(name), codes), (step, layer, name)
        with pytest.raises(UserError) as caught:
            model.tensors(0)
    assert str(caught.value) == "there are no tensors of step 0: those of steps 1..2 are kept, give keep to keep more"
    assert capsys.readouterr().err == f"gradloom: note: {model.notes[0]}\n"


@pytest.mark.parametrize("device", ["emulator", "rtl"])
def test_every_device_gives_the_same_steps_and_scales(device):
    models = [bridge.compile(module(), config="nano", device=name, lr=0.03, quiet=True) for name in ("golden", device)]
    for number, (x, y) in enumerate(batches(2, 2)):
        outs = [model.step(x, y) for model in models]
        assert outs[0] == dataclasses.replace(outs[1], cycles=None) and (outs[1].cycles or 0) > (10_000 if device == "rtl" else -1)
        tables = [model.tensors() for model in models]
        for layer in models[0].network.layers:
            assert tables[0][layer.name].scale == tables[1][layer.name].scale, (number, layer.name)
            for name in dir(tables[0][layer.name])[2:]:
                if name not in ("codes", "scale"):
                    left, right = (getattr(table[layer.name], name) for table in tables)
                    assert torch.equal(left, right), (number, layer.name, name)
    loader = batches(1, 3)
    assert models[0].evaluate(loader) == models[1].evaluate(loader)
    assert models[0].evaluate(loader).images == 3
    assert all(torch.equal(left, right) for left, right in zip(*(model.state_dict().values() for model in models), strict=True))
    for model in models:
        model.close()


def test_gradients_are_those_of_the_float_network():
    """On the same side of every threshold only 8-bit rounding separates them: the cosines are 0.91..1.00 and the norms' ratios
    0.79..1.03. An exponent that is off by one would be a factor of two."""
    x, y = batches(1, 8)[0]
    model = bridge.compile(module(), lr=0.03, quiet=True)
    model.step(x, y)
    tensors = model.tensors()
    decisions = {
        (layer, name): tensors[layer].codes(name) for layer in tensors for name in ("bit", "index") if name in dir(tensors[layer])
    }
    net = floatref.from_state(model.network, model.imported.state())
    exact = net.gradients(x.numpy().astype(np.float64), y.numpy(), decisions=decisions)
    for layer in model.network.weighted:
        for got, expected in (
            (tensors[layer.name].dw, exact.gradients[layer.name, "w"]),
            (tensors[layer.name].dz, exact.tensors[layer.name, "dz"]),
            (tensors[layer.name].z, exact.tensors[layer.name, "z"]),
        ):
            machine, wanted = got.flatten().double(), torch.from_numpy(np.array(expected)).flatten()
            assert torch.nn.functional.cosine_similarity(machine, wanted, dim=0) > 0.9, layer.name
            assert 0.75 < machine.norm() / wanted.norm() < 1.33, layer.name


def test_tensors_are_real_numbers_of_the_step():
    model = bridge.compile(Plain(), lr=0.02)
    torch.manual_seed(3)
    x, y = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    before = model.step(x, y)
    tensors = model.tensors()
    assert list(tensors) == [layer.name for layer in model.network.layers] and len(tensors) == 6
    logits = tensors["fc2"].z
    assert logits.shape == (4, 3, 1, 1) or logits.shape == (4, 3)
    loss = torch.nn.functional.cross_entropy(logits.reshape(4, 3).double(), y).item()
    # Logarithms and sums of the same logits by numpy and by torch, floats in different orders.
    assert before.loss == pytest.approx(loss, abs=1e-6)
    probability = torch.softmax(logits.reshape(4, 3), 1) - torch.nn.functional.one_hot(y, 3)
    assert (tensors["fc2"].dz.reshape(4, 3) - probability).abs().max() < 0.02
    assert torch.equal(tensors["conv1"].weight, model.state_dict()["conv1.weight"])
    assert tensors["conv1"].bit.dtype == torch.int64 and tensors["conv1"].scale["weight"] < 0
    with pytest.raises(AttributeError) as caught:
        _ = tensors["fc2"].xhat
    assert str(caught.value) == "layer 'fc2' has no tensor 'xhat': it has z, dz, dw, weight, velocity, rest, beta, vbeta"
    with pytest.raises(UserError, match=r"^there is no layer 'conv9': the layers are conv1, max_pool2d, "):
        _ = tensors["conv9"]
    model.step(x, y)
    with pytest.raises(UserError) as gone:
        _ = tensors["conv1"].z
    assert str(gone.value) == "the tensors of step 0 are gone, step 1 has overwritten them: give keep to keep more"


def test_learning_rate_changes_between_steps():
    (x, y), = batches(1)
    weights = []
    for rate in (0.01, 0.2):
        model = bridge.compile(module(), lr=0.01, quiet=True)
        model.step(x, y)
        model.lr = rate
        model.step(x, y)
        weights.append(model.state().weights["fc"])
    assert model.lr == 0.2 and (weights[0] != weights[1]).any()
    with pytest.raises(NetworkError) as caught:
        model.lr = 100.0
    assert str(caught.value) == "train: lr must be a number in 9.31323e-10..64, not 100.0: change it" and model.lr == 0.2


def test_it_learns():
    """Four classes told by the sign and place of a patch: a few epochs reach 90 %."""
    torch.manual_seed(1)
    y = torch.arange(64) % 4
    x = 0.1 * torch.randn(64, 3, 8, 8)
    for number, label in enumerate(y.tolist()):
        x[number, :, 4 * (label // 2) : 4 * (label // 2) + 4] += 1.0 if label % 2 else -1.0
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16)
    model = bridge.compile(module(), lr=0.05, input_exponent=-10, quiet=True)
    for _ in range(12):
        for images, labels in loader:
            model.step(images, labels)
    score = model.evaluate(loader)
    assert score.images == 64 and score.accuracy >= 0.9


X, Y = batches(1)[0]
REFUSED = [
    (X[:2], Y[:2], "a step takes 4 images, this batch has 2: set drop_last=True in the DataLoader, or batch=2"),
    (X, Y[:3], "there are 4 images and 3 labels: give as many"),
    (X, Y + 10, "labels must lie in 0..9, these are 11..19: give class numbers"),
    (X, Y.float(), "labels must be one whole class number for each image, not float32 of shape (4,)"),
    (X[:, :, :4], Y, "the network takes images of 3 x 8 x 8, these are 3 x 4 x 8: give images of one size"),
    (X[0], Y, "images must have the shape (images, channels, rows, columns) or (images, features), not (3, 8, 8)"),
    (X * float("nan"), Y, "the images hold values that are not finite: replace them"),
]


@pytest.mark.parametrize(("x", "y", "message"), REFUSED)
def test_batches_that_do_not_fit_are_refused(x, y, message):
    model = bridge.compile(module(), input_shape=SHAPE, batch=4, quiet=True)
    with pytest.raises(UserError) as caught:
        model.step(x, y)
    got = str(caught.value)
    assert got == (message if "11..19" not in message else
                   f"labels must lie in 0..9, these are {int(y.min())}..{int(y.max())}: give class numbers")


def test_arguments_are_checked():
    for arguments, message in (
        ({"device": "gpu"}, "there is no device 'gpu': give one of rtl, golden, emulator, emulator:cuda, emulator:cuda:N, "
         "BOARD[:PORT], sim:BOARD or netlist:BOARD[:FOLDER] (boards: ulx3s-85f)"),
        ({"keep": 0}, "keep must be 1 or more steps, not 0"),
        ({"input_exponent": 200}, "input_exponent must lie in -64..127, not 200"),
    ):
        with pytest.raises(UserError) as caught:
            bridge.compile(module(), **arguments)
        assert str(caught.value) == message
    model = bridge.compile(module())
    for action, message in (
        (lambda: model.network,
         "the network is made at the first step, from the shape of its images: give input_shape to have it now"),
        (lambda: model.batch, "the batch is that of the first step: give batch to have it now"),
        (model.tensors, "there are no tensors before the first step"),
        (lambda: model.evaluate([]), "there is nothing to evaluate before the first step: it calibrates the exponents"),
    ):
        with pytest.raises(UserError) as caught:
            action()
        assert str(caught.value) == message


def test_saturating_images_are_said_aloud_once():
    model = bridge.compile(module(), quiet=True)
    model.step(X, Y)
    said = r"^images reach .*, and input_exponent -13 holds at most 0.492188: they saturate; give a larger input_exponent$"
    with pytest.warns(UserWarning, match=said):
        model.step(4 * X, Y)
    model.step(4 * X, Y)


def test_a_closed_model_refuses():
    with bridge.compile(module(), quiet=True) as model:
        model.step(X, Y)
    with pytest.raises(UserError) as caught:
        model.step(X, Y)
    assert str(caught.value) == "this model is closed: compile the module anew"
