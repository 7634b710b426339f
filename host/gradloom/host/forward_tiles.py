"""What the forward passes of all layers with weights begin from."""

from gradloom.host.convolution import Convolution
from gradloom.host.layer_sizes import Plane, shape_of
from gradloom.host.pacing import Part
from gradloom.host.tiling import Builder
from gradloom.host.windows import forward_sweep
from gradloom.models.network import INPUT, Conv, FullyConnected, Layer

__all__ = ["forward_work", "through"]


def forward_work(builder: Builder, layer: Conv | FullyConnected) -> tuple[Convolution, Plane]:
    """A layer's convolution in tiles, and its output's plane."""
    network, name = builder.network, layer.name
    _, y, x = network.shape(name)
    plane, shape = Plane(y, x), shape_of(network, layer, builder.config)
    sweep, region = forward_sweep(shape, builder.config), builder.memory[layer.input, "z"]
    ordered = name == network.logits.name
    return Convolution(builder, name, shape, sweep, region, shape.mg, transpose=False, beats=plane.nb, ordered=ordered), plane


def through(builder: Builder, layer: Layer) -> tuple[Part, ...]:
    """The results of the last layer with weights before a layer: then the array is free for it."""
    source = builder.network.layer(layer.input) if layer.input != INPUT else None
    while source is not None and not isinstance(source, Conv | FullyConnected):
        source = builder.network.layer(source.input) if source.input != INPUT else None
    return (builder.part(source.name, "z", builder.images),) if source else ()
