"""The turn from the forward to the backward pass: the last layers for one half of the images after the other.

What follows the last convolution (pools, logits, loss, their errors) leaves the array next to nothing to do. In halves, the array
convolves the second half's images while the first half turns, and those errors while the second one does.
"""

from gradloom.host.compilation.layer_sizes import Plane, shape_of
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.compilation.stream_fit import holds
from gradloom.host.compilation.transfers import PARAMETER_ENTRIES
from gradloom.host.dram.layout import ceil_div
from gradloom.host.tiles.convolution import Convolution
from gradloom.host.tiles.phase_sweeps import forward_sweep
from gradloom.models.network import Conv, FullyConnected, Layer

__all__ = ["beside_forward", "last_layers", "turn"]

Range = tuple[int, int]


def last_layers(builder: ProgramBuilder) -> tuple[Layer, ...]:
    """The last convolution and what follows it."""
    layers = builder.network.layers
    convolutions = [n for n, layer in enumerate(layers) if isinstance(layer, Conv)]
    return layers[convolutions[-1] :] if convolutions else ()


def beside_forward(builder: ProgramBuilder) -> bool:
    """Whether the parameter buffer holds the sums of the last layers' backward pass beside what the forward pass takes."""
    weighted = [layer.name for layer in last_layers(builder) if isinstance(layer, Conv | FullyConnected)]
    sets = 1 + sum(builder.groups(builder.network.shape(name)[0]) for name in weighted)
    return builder.pool["PARAMETERS"].size >= sets * PARAMETER_ENTRIES


def turn(builder: ProgramBuilder) -> tuple[Range, ...]:
    """The images of the halves; of all images, where halves would cost more, as weights are loaded for each of them (with fewer
    than three Loaders in the way of inputs: ``digits-cnn`` on ``small`` would lose 4 %), or where the parameter buffer does not
    hold the sums of these layers' backward pass beside what the forward pass takes."""
    low, high = every = builder.images
    layers = last_layers(builder)
    if high - low < 2 or not layers or builder.config.load_channels < 3:
        return (every,)
    first = layers[0]
    assert isinstance(first, Conv)
    _, y, x = builder.network.shape(first.name)
    shape = shape_of(builder.network, first, builder.config)
    sweep = forward_sweep(shape, builder.config)
    work = Convolution(builder, first.name, shape, sweep, builder.memory[first.input, "z"], shape.mg, transpose=False)
    weighted = [layer.name for layer in layers if isinstance(layer, Conv | FullyConnected)]
    regions = [builder.memory[name, "w"] for name in weighted]
    beats = sum(region.data_bytes() for region in regions) // builder.config.beat_bytes
    half = (low, low + ceil_div(high - low, 2))
    if not (beside_forward(builder) and work.fits and holds(builder, Plane(y, x))) or beats > work.cycles(half):
        return (every,)
    return half, (half[1], high)
