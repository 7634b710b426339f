"""What PyTorch's own exporter writes into an ONNX file is read; norms that it folded are noted."""

import io
import warnings

import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install 'gradloom[onnx]')")
torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

import gradloom.api.onnx_models as bridge  # noqa: E402
from gradloom.models.layers import INPUT, Subsample, Upsample  # noqa: E402
from gradloom.verif.onnx_models import SHAPE, refusal  # noqa: E402

nn = torch.nn


def exported_by_torch(module, *, preserve=False, shape=SHAPE, **settings):
    stream = io.BytesIO()
    if preserve:
        settings |= {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(2, *shape),), stream, dynamo=False, **settings)
    return onnx.load_model_from_string(stream.getvalue())


FOLDED = (
    "no convolution has a norm, and the parameters of 2 do not have a module's names: if the network had BatchNormalization, its "
    "exporter probably folded it into them, and they are trained without; to train norms, export in training mode "
    "(TrainingMode.PRESERVE, do_constant_folding=False)"
)


def test_folded_norms_are_noted():
    def chain(norm):
        return nn.Sequential(nn.Conv2d(3, 4, 3), norm(4), nn.ReLU(), nn.Conv2d(4, 4, 3, bias=False), norm(4), nn.ReLU(),
            nn.Flatten(),
                             nn.Linear(64, 2))

    assert bridge.from_model(exported_by_torch(chain(nn.BatchNorm2d).eval())).notes == (FOLDED,)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    assert bridge.from_model(exported_by_torch(plain.eval())).notes == ()
    kept = bridge.from_model(exported_by_torch(chain(nn.BatchNorm2d).train(), preserve=True))
    assert len(kept.notes) == 1 and kept.notes[0].startswith("BatchNorm2d is replaced by L1-FRN ")
    own = bridge.from_model(bridge.to_model(bridge.from_model(exported_by_torch(plain)), kept_state(plain)))
    assert own.notes == ()


def kept_state(module):
    imported = bridge.from_model(exported_by_torch(module))
    return imported.state()


@pytest.mark.parametrize("opset", [11, 17])
def test_a_subsampling_shortcut_that_pytorch_exported(opset):
    """A slice for each dimension, and a Pad whose numbers are computed by a chain of nodes."""
    functional = torch.nn.functional

    class Block(nn.Module):
        def __init__(self, before, behind):
            super().__init__()
            self.pads = (0, 0, 0, 0, before, behind)
            self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
            self.body = nn.Sequential(nn.Conv2d(4, 6, 3, 2, 1), nn.BatchNorm2d(6))
            self.fc = nn.Linear(6, 2)

        def forward(self, x):
            x = self.stem(x)
            x = torch.relu(self.body(x) + functional.pad(x[:, :, ::2, ::2], self.pads))
            return self.fc(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))

    layers = bridge.from_model(exported_by_torch(Block(0, 2), preserve=True, opset_version=opset)).network.layers
    assert [(layer.out, layer.stride) for layer in layers if isinstance(layer, Subsample)] == [(6, 2)]
    before = exported_by_torch(Block(1, 1), preserve=True, opset_version=opset)
    assert "only channels of zeros behind the source's are appended" in refusal(before)


@pytest.mark.parametrize("opset", [9, 10, 11, 17])
def test_upsampling_that_pytorch_exported(opset):
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Upsample(scale_factor=2), nn.Conv2d(4, 2, 3), nn.Flatten(),
                           nn.Linear(2 * 14 * 14, 2))
    layers = bridge.from_model(exported_by_torch(module, opset_version=opset)).network.layers
    assert [layer.scale for layer in layers if isinstance(layer, Upsample)] == [2]


def test_a_legacy_flatten_with_an_open_batch_is_read():

    class Legacy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(144, 2)

        def forward(self, x):
            x = torch.relu(self.conv(x))
            return self.fc(x.view(x.size(0), -1))

    for axes in (None, {INPUT: {0: "n"}}):
        model = exported_by_torch(Legacy(), input_names=[INPUT], dynamic_axes=axes)
        assert [layer.name for layer in bridge.from_model(model).network.layers] == ["conv", "fc"]


def test_equal_norms_that_the_exporter_merged_are_two():
    """torch.onnx writes equal initializers once and gives the others their names by Identity: fresh norms are all equal."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, bias=False),
                           nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    imported = bridge.from_model(exported_by_torch(module, preserve=True))
    assert set(imported.names.values()) >= {"1.weight", "1.bias", "4.weight", "4.bias"}
