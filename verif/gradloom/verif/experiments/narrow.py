"""Networks with a fraction of their channels, for experiments that a processor is to finish."""

import dataclasses

from gradloom.models.layers import Conv, FullyConnected, Layer
from gradloom.models.network import Network, load_network

__all__ = ["NETWORKS", "experiment_network", "narrow"]

NETWORKS = ("resnet20", "vgg16", "vgg16-quarter")
"""Of experiments on CIFAR-10."""
_QUARTER = "-quarter"


def narrow(network: Network, name: str, divisor: int) -> Network:
    """The network with a fraction of the outputs of every layer but the last."""
    def thin(layer: Layer) -> Layer:
        if isinstance(layer, Conv | FullyConnected) and layer.name != network.logits.name:
            return dataclasses.replace(layer, out=layer.out // divisor)
        return layer

    return dataclasses.replace(network, name=name, layers=tuple(thin(layer) for layer in network.layers))


def experiment_network(name: str) -> Network:
    """One of :data:`NETWORKS`; ``-quarter``: with a quarter of its channels."""
    return narrow(load_network(name.removesuffix(_QUARTER)), name, 4) if name.endswith(_QUARTER) else load_network(name)
