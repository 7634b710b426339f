"""What the forward passes of all layers with weights begin from."""

from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.order.pieces import OPEN, Gate
from gradloom.host.tiles.convolution import Convolution
from gradloom.host.tiles.flat_shapes import forward_shape
from gradloom.host.tiles.phase_sweeps import forward_sweep, stacked_sweep
from gradloom.models.network import INPUT, Conv, FullyConnected, Layer

__all__ = ["after_layer_before", "forward_work"]


def forward_work(builder: ProgramBuilder, layer: Conv | FullyConnected, *, stacked: bool = False) -> tuple[Convolution, Plane]:
    """A layer's convolution in tiles, and its output's plane."""
    network, name = builder.network, layer.name
    _, y, x = network.shape(name)
    plane, shape = Plane(y, x), forward_shape(network, layer, builder.config, builder.images[1] - builder.images[0])
    sweep = (stacked_sweep if stacked else forward_sweep)(shape, builder.config)
    region = builder.memory[layer.input, "z"].flattened(shape.flat)
    ordered = name == network.logits.name
    return Convolution(builder, name, shape, sweep, region, shape.mg, transpose=False, beats=plane.nb, ordered=ordered), plane


def after_layer_before(builder: ProgramBuilder, layer: Layer, *, convolved: bool = False) -> Gate:
    """Waits for the results of the last layer with weights before a layer: then the array is free for it. ``convolved``: only for
    the array, so that the A-Core may still be at these results."""
    source = builder.network.layer(layer.input) if layer.input != INPUT else None
    while source is not None and not isinstance(source, Conv | FullyConnected):
        source = builder.network.layer(source.input) if source.input != INPUT else None
    if source is None:
        return OPEN
    if convolved:
        return Gate(summed=(builder.region(source.name, "z", builder.images),))
    return Gate((builder.region(source.name, "z", builder.images),))
