"""Which phases of a fully connected layer on a plane take the plane's beats as planes of 1 x 2.

A kernel as large as the plane fills the nine taps of the array or leaves most of them idle, backward it multiplies mostly padding,
and its gradients take an image at a time where rows of several images fall on one bank. With a kernel of 1 x 2
(:mod:`gradloom.host.dram.flat_plane`) the array takes three input and three output groups at once, as for any 1 x 1 plane. Backward
every second position is one of padding, and the A-Core takes a command for each beat of the plane. Every byte is the same, so each
phase takes what is cheaper (docs/decisions/0017-flattened-planes.md).
"""

import dataclasses

from gradloom.contracts.config import PE_ROWS, PE_TAPS, WEIGHT_BANKS, Config
from gradloom.contracts.engines import load_channels
from gradloom.contracts.isa import Dest
from gradloom.host.compilation.layer_sizes import shape_of
from gradloom.host.compilation.windows import Shape
from gradloom.host.dram.flat_plane import FlatPlane
from gradloom.host.dram.layout import ceil_div
from gradloom.host.tiles.conv_mapping import ConvMapping
from gradloom.host.tiles.phase_sweeps import backward_sweep, forward_sweep
from gradloom.models.network import Conv, FullyConnected, Layer, Network

__all__ = ["FLAT_GAIN", "backward_shape", "flattened", "forward_shape"]

FLAT_GAIN = 2
"""Least ratio of cycles before and after. Where little is gained, loads in shorter runs may cost more."""
_COMMAND_CYCLES = 20
"""Of an engine for a command beside its data, about."""


def flattened(network: Network, layer: Layer, config: Config) -> Shape | None:
    """A fully connected layer with the beats of its input's plane as planes of their own; ``None``: it has no such plane."""
    shape = shape_of(network, layer, config)
    if not isinstance(layer, FullyConnected) or shape.ky * shape.kx == 1:
        return None
    flat = FlatPlane(shape.yi, shape.xi)
    return dataclasses.replace(shape, cg=shape.cg * flat.beats, yi=1, xi=2, ky=1, kx=2, flat=flat)


def forward_shape(network: Network, layer: Layer, config: Config, images: int) -> Shape:
    """Of the forward pass of so many images."""
    whole, flat = shape_of(network, layer, config), flattened(network, layer, config)
    if flat is None:
        return whole
    before, after = (_array(forward_sweep(shape, config), shape.mg, config, images) for shape in (whole, flat))
    return flat if before >= FLAT_GAIN * after else whole


def backward_shape(network: Network, layer: Conv | FullyConnected, config: Config, images: int) -> Shape:
    """Of the backward pass of so many images. What is added to the errors comes plane by plane, and so do they."""
    whole, flat = shape_of(network, layer, config), flattened(network, layer, config)
    if flat is None or network.shortcut(layer.input) is not None or network.main_consumer(layer.input) != network.layer(layer.name):
        return whole
    before, after = (_backward_cycles(shape, config, images) for shape in (whole, flat))
    return flat if before >= FLAT_GAIN * after else whole


def _backward_cycles(shape: Shape, config: Config, images: int) -> int:
    """Cycles of the array and of commands: loads and CONVs of every tile, a RUN and a STORE for every output group. Of a flattened
    plane the weights of each PE row and tap are a load; the channels that fill the buffer take them side by side."""
    sweep, ways = backward_sweep(shape), min(len(load_channels(config, Dest.WBUF)), WEIGHT_BANKS)
    tiles, loads = (ceil_div(shape.cg, PE_TAPS), PE_ROWS * PE_TAPS) if sweep.k1 else (shape.cg, 1)
    commands = tiles * (ceil_div(loads, ways) + len(sweep.windows)) + 2 * shape.cg
    return _array(sweep, shape.cg, config, images) + commands * _COMMAND_CYCLES


def _array(sweep: ConvMapping, outputs: int, config: Config, images: int) -> int:
    """Cycles of the array."""
    tiles = ceil_div(outputs, PE_TAPS) if sweep.k1 else outputs
    return tiles * sweep.group_step() * sweep.step_cycles(config, images)
