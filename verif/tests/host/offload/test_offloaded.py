"""Models whose products a device computes: the same gradients where codes are exact, sentences for what cannot be, nothing left."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from torch import nn  # noqa: E402

from gradloom.host.files import UserError  # noqa: E402
from gradloom.host.offload.matrix_device import TwinDevice  # noqa: E402
from gradloom.host.offload.offloaded import offload  # noqa: E402
from gradloom.host.offload.placement import by_model  # noqa: E402
from gradloom.models.matrix.blocks import ProductFormat, Quantiser  # noqa: E402
from gradloom.systems.barista import Mesh  # noqa: E402

EXACT = ProductFormat(Quantiser(), Quantiser("image"), Quantiser("image"))
LAYERS = {
    "linear": (lambda: nn.Linear(6, 5), (4, 6)),
    "linear, no bias, more axes": (lambda: nn.Linear(6, 5, bias=False), (3, 2, 2, 6)),
    "linear, one image": (lambda: nn.Linear(6, 5), (6,)),
    "3 x 3": (lambda: nn.Conv2d(3, 4, 3, padding=1), (2, 3, 7, 6)),
    "stride 2, oblong": (lambda: nn.Conv2d(3, 4, (2, 5), stride=(2, 1), padding=(0, 2)), (2, 3, 8, 9)),
    "groups": (lambda: nn.Conv2d(6, 4, 3, groups=2, bias=False), (3, 6, 5, 5)),
    "depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4, padding=1), (2, 4, 5, 5)),
    "dilation": (lambda: nn.Conv2d(2, 3, 3, dilation=2, padding=2), (2, 2, 9, 9)),
    "padding same": (lambda: nn.Conv2d(2, 3, (3, 5), padding="same"), (2, 2, 6, 7)),
    "reflected": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (2, 2, 6, 6)),
    "one image": (lambda: nn.Conv2d(2, 3, 3), (2, 6, 6)),
}


def whole_numbers(shape, rng, top=3):
    """The largest magnitude of each image is 64, so that all are codes as they are, with the exponent 0."""
    x = rng.integers(-top, top + 1, shape).astype(np.float32)
    for image in x.reshape(shape[0] if len(shape) > 1 else 1, -1):
        image[rng.integers(image.size)] = 64
    return torch.from_numpy(x)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_pytorch_where_codes_are_exact(name):
    """Whole numbers of 8 bits lose nothing, and their sums are exact in float32, too."""
    make, shape = LAYERS[name]
    rng, layer = np.random.default_rng(1), make()
    layer.weight.data = whole_numbers(layer.weight.shape, rng)
    if layer.bias is not None:
        layer.bias.data.round_()
    model, x = nn.Sequential(layer), whole_numbers(shape, rng).requires_grad_()
    expected = model(x)
    dy = whole_numbers(expected.shape, rng)
    expected.backward(dy)
    grads, x.grad = [x.grad, *(p.grad for p in layer.parameters())], None
    layer.zero_grad()
    with offload(model, format=EXACT, check=True) as offloaded:
        found = model(x)
        found.backward(dy)
    assert torch.equal(found, expected)
    assert all(torch.equal(a, b) for a, b in zip([x.grad, *(p.grad for p in layer.parameters())], grads, strict=True))
    groups = getattr(layer, "groups", 1)
    assert offloaded.checked == 3 * groups
    assert [(line.stage, line.calls) for line in offloaded.lines] == [(stage, groups) for stage in ("FP", "BP", "WG")]


def test_a_simulated_machine_computes_the_same_as_its_twin():
    """An unchanged model, its products in RTL: every number of three steps with Adam is the twin's."""
    def trained(**options):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5), nn.GELU(), nn.Flatten(), nn.Linear(5 * 16, 3))
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        with offload(model, check=True, **options) as offloaded:
            for step in range(3):
                x = torch.randn(4, 2, 4, 4, generator=torch.Generator().manual_seed(step))
                adam.zero_grad()
                nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 2, 0])).backward()
                adam.step()
        return model.state_dict(), offloaded

    expected, twin = trained()
    found, machine = trained(device="rtl", config="fox-4")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert machine.checked == twin.checked == 3 * 5
    assert all(line.cycles > 0 for line in machine.lines) and "cycles" in machine.table()
    assert not any(line.cycles for line in twin.lines) and "cycles" not in twin.table()


class Block(nn.Module):
    """Of a residual network in the manner of torchvision's."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        found = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(found + self.down(x))


def resnet():
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), Block(8, 8, 1), Block(8, 16, 2), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(16, 4))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 4))


def trained(model, steps=12, rate=0.02, **options):
    """Losses of some steps with Adam on four kinds of images."""
    rng = np.random.default_rng(3)
    kinds = rng.normal(size=(4, 1, 8, 8))
    y = rng.integers(0, 4, 32)
    x = torch.from_numpy((kinds[y] + 0.3 * rng.normal(size=(32, 1, 8, 8))).astype(np.float32))
    adam, losses = torch.optim.Adam(model.parameters(), rate), []
    with offload(model, **options) as offloaded:
        for _ in range(steps):
            adam.zero_grad()
            loss = nn.functional.cross_entropy(model(x), torch.from_numpy(y))
            loss.backward()
            adam.step()
            losses.append(loss.item())
    return losses, offloaded


@pytest.mark.parametrize("format", ["bfp8", "bfp8-nearest", "int8"])
@pytest.mark.parametrize("make", [resnet, mlp])
def test_models_learn_with_adam(make, format):
    torch.manual_seed(1)
    losses, offloaded = trained(make(), format=format, check=True)
    assert losses[-1] < 0.5 * losses[0]
    assert offloaded.checked == sum(line.calls for line in offloaded.lines) == 12 * (3 * len(offloaded.layers) - 1)


def test_the_same_seed_gives_the_same_numbers():
    found = []
    for seed in (7, 7, 8):
        torch.manual_seed(1)
        found.append(trained(resnet(), steps=3, seed=seed)[0])
    assert found[0] == found[1] != found[2]


def test_the_radio_encoder_of_fox():
    """32-16-8-16-32, a batch of 1000, real targets."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 32))
    x, adam, losses = torch.randn(1000, 4) @ torch.randn(4, 32), torch.optim.Adam(model.parameters(), 0.01), []
    with offload(model):
        for _ in range(40):
            adam.zero_grad()
            loss = (model(x) - x).square().mean()
            loss.backward()
            adam.step()
            losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


def test_a_model_is_given_back_as_it_was():
    model = resnet()
    before, state = {name: dict(vars(layer)) for name, layer in model.named_modules()}, copy.deepcopy(model.state_dict())
    seen, x = [], torch.randn(2, 1, 8, 8)
    model[0].register_forward_hook(lambda *_: seen.append(1))
    model.eval()
    expected = model(x)
    offloaded = offload(model, format="int8")
    assert not torch.equal(model(x), expected) and len(seen) == 2, "8 bits, and hooks are called"
    assert model.state_dict().keys() == state.keys()
    offloaded.restore()
    offloaded.restore()
    assert torch.equal(model(x), expected)
    assert all("forward" not in vars(layer) and vars(layer).keys() == before[name].keys() for name, layer in model.named_modules())


def test_a_copy_runs_on_the_device_as_well():
    model, x = mlp().eval(), torch.randn(2, 64)
    with offload(model, format="bfp8-nearest") as offloaded:
        other = copy.deepcopy(model)
        assert torch.equal(other(x), model(x))
        assert sum(line.calls for line in offloaded.lines) == 2, "the copy counts for itself"
    assert "forward" in vars(other[1]) and "forward" not in vars(model[1])


def test_a_layer_that_is_used_twice_and_parts_that_learn_nothing():
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    layer.weight.requires_grad_(False)
    with offload(model, check=True) as offloaded:
        model(torch.randn(3, 4)).sum().backward()
    assert offloaded.layers == ("0",) and layer.weight.grad is None
    assert [(line.stage, line.calls) for line in offloaded.lines] == [("FP", 2), ("BP", 1)]


def test_what_is_not_offloaded_is_named():
    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x)

    with offload(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), Own(2, 2), nn.ConvTranspose2d(1, 1, 2))) as offloaded:
        assert offloaded.layers == ("0",) and offloaded.others == ("1", "2", "3")


def test_tensors_of_any_layout():
    layer, x = nn.Conv2d(2, 3, 3), torch.randn(2, 6, 7, 2).permute(0, 3, 1, 2)
    with offload(layer, format="bfp8-nearest", check=True):
        assert torch.equal(layer(x), layer(x.contiguous()))
        layer(x).transpose(2, 3)[:, :, ::2].sum().backward()


class Broken(TwinDevice):
    """One sum is wrong by one."""

    def product(self, a, b):
        found = super().product(a, b)
        found[-1, 0] += 1
        return found


def test_the_check_names_what_differs():
    model = nn.Sequential(nn.Linear(3, 2))
    told = r"layer '0', FP: element \(3, 0\) of the device's product is -?\d+, the CPU's -?\d+ \(1 of 8 differ\)"
    with offload(model, device=Broken(), check=True), pytest.raises(UserError, match=told):
        model(torch.randn(4, 3))


@pytest.mark.parametrize(("make", "x", "told"), [
    (lambda: nn.Linear(3, 2).double(), torch.randn(2, 3).double(), r"its input is of torch.float64: give torch.float32"),
    (lambda: nn.Linear(3, 2).double(), torch.randn(2, 3), r"its weight is of torch.float64"),
    (lambda: nn.Linear(3, 2), torch.randn(2, 4), r"takes 3 features, and its input has the shape \(2, 4\)"),
    (lambda: nn.Conv2d(3, 2, 3), torch.randn(2, 4, 5, 5), r"takes 3 channels, and its input has the shape"),
    (lambda: nn.Conv2d(3, 2, 3), torch.randn(5, 5), r"takes 3 channels, and its input has the shape"),
    (lambda: nn.Conv2d(3, 2, 3), torch.randn(1, 3, 2, 5), r"a kernel of \(3, 3\) does not fit an input of \(2, 5\)"),
    (lambda: nn.Linear(3, 2), torch.randn(0, 3), r"has no elements"),
    (lambda: nn.Linear(3, 2), torch.full((2, 3), torch.nan), r"its activations are not all finite"),
    (lambda: nn.Linear(3, 2), torch.randn(2, 3, device="meta"), r"its input lies on meta: move the model"),
])
def test_what_a_layer_cannot_take_is_told_in_a_sentence(make, x, told):
    model = nn.Sequential(make())
    with offload(model), pytest.raises(UserError, match=f"^layer '0'.*{told}") as error:
        model(x)
    assert "\n" not in str(error.value)


def test_autocast_is_refused():
    model = nn.Sequential(nn.Linear(3, 2))
    with offload(model), torch.autocast("cpu", torch.bfloat16), pytest.raises(UserError, match="layer '0' runs under autocast"):
        model(torch.randn(2, 3))


@pytest.mark.parametrize(("given", "told"), [
    ({"format": "fp8"}, "no product format 'fp8': give 'bfp8'"), ({"device": "fpga"}, "no device 'fpga' that multiplies"),
    ({"config": "fox-4"}, "the software twin is no machine and has no configuration: leave config out, or give device='rtl'"),
    ({"device": TwinDevice(), "config": "fox-4"}, "a device that is an object has its configuration: leave config out"),
    ({"device": "rtl", "config": "nano"}, "nano trains networks as a whole and has no products of its own: give a matrix machine"),
    ({"device": "rtl", "config": "fox-3"}, "rows must be a power of two, not 3"),
    ({"device": "rtl", "config": "mesh"}, "there is no configuration 'mesh': give one of .*, fox-N, .* or a TOML file"),
    ({"seed": -1}, "seed must be a whole number"), ({"module": 3}, "class int is no torch.nn.Module"),
    ({"module": nn.ReLU()}, "has no Linear or Conv2d layer")])
def test_what_cannot_be_offloaded_is_told(given, told):
    with pytest.raises(UserError, match=told):
        offload(**{"module": nn.Linear(2, 2)} | given)


def test_twice_is_refused_and_leaves_the_first_alone():
    model = mlp()
    with offload(model) as first:
        with pytest.raises(UserError, match="has a forward of its own already"):
            offload(model)
        model(torch.randn(2, 64))
        assert len(first.lines) == 2


def test_layers_go_where_they_are_sooner():
    """A wide layer to the device, a narrow one not; what stays is PyTorch's own."""
    mesh = Mesh(16, 16, 64, latency=1, dsps=1, bits=8)
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 2))
    reference, x = model[1], torch.randn(256, 512)
    with offload(model, placement=by_model(mesh, 2e10, memory_rate=1e12, host_rate=1e12)) as offloaded:
        hidden = model[0](x)
        assert torch.equal(model[1](hidden), nn.functional.linear(hidden, reference.weight, reference.bias))
    assert [(line.layer, line.place) for line in offloaded.lines] == [("0", "device"), ("1", "cpu")]


def test_the_table_adds_up():
    model = mlp()
    with offload(model) as offloaded:
        model(torch.randn(2, 64)).sum().backward()
    lines, rows = offloaded.lines, offloaded.table().splitlines()
    assert [row.split()[0] for row in rows] == ["layer", "1", "4", "4", "4", "1", "all"]
    first = lines[0]
    assert (first.m, first.n, first.k, first.macs, first.bytes) == (2, 32, 64, 4096, 2 * 64 + 64 * 32 + 4 * 2 * 32)
    assert rows[-1].split()[1] == str(len(lines)) and f"{sum(line.macs for line in lines):,}" in rows[-1]
