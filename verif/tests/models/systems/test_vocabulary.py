"""The words that all systems' models share."""

import pytest

from gradloom.models.network import load_network
from gradloom.systems.networks import NETWORKS, VGG_LIKE, workload
from gradloom.systems.vocabulary import ConvShape, Prediction, Resources, chunks, forward_macs, round_up, step_macs


def test_chunks_end_with_a_smaller_one():
    assert chunks(256, 112) == [112, 112, 32]
    assert chunks(96, 96) == [96]
    assert round_up(1025, 32) == 1056


def test_a_convolution_counts_its_multiply_accumulates():
    shape = ConvShape(name="conv", outputs=96, inputs=3, rows=55, columns=55, kernel=11, stride=4)
    assert shape.macs == 96 * 3 * 55 * 55 * 121
    assert not shape.dense and ConvShape(name="fc", outputs=10, inputs=64).dense


def test_the_first_layer_passes_no_error_on():
    layers = VGG_LIKE.layers
    assert step_macs(layers, 2) == 2 * (3 * forward_macs(layers) - layers[0].macs)


def test_resources_name_what_is_exceeded():
    need = Resources(luts=10, dsps=300, brams=5)
    assert need.over(Resources(luts=20, dsps=220, brams=140)) == ["dsps"]
    assert need.over(Resources(dsps=300)) == []


def test_a_prediction_derives_its_rates():
    found = Prediction(system="fox", point="8 x 8", cycles=1000, clock_hz=1e6, batch=4, macs=64, useful=32_000,
                       resources=Resources())
    assert (found.seconds, found.images_per_second, found.use, found.gops) == (1e-3, 4000, 0.5, 0.064)
    with pytest.raises(ValueError, match="cycles must be positive, not 0"):
        Prediction(system="fox", point="", cycles=0, clock_hz=1, batch=1, macs=1, useful=1, resources=Resources())


def test_a_network_of_ours_has_the_papers_shapes():
    """VGG16 for CIFAR-10 is in Fox's table I but for its second layer of 512."""
    ours = {shape.name: shape for shape in workload(load_network("vgg16")).layers}
    theirs = NETWORKS["vgg16-cifar"].layers
    assert [ours[shape.name] for shape in theirs[:13]] == list(theirs[:13])
    assert ours["fc1"].weights == 512 * 512 and ours["fc1"].dense


def test_a_flattened_plane_is_a_fully_connected_layer():
    last = workload(load_network("digits-cnn")).layers[-1]
    assert last.dense and last.outputs == 10
