"""Networks in float32 with PyTorch's autograd: what accuracy and throughput are compared with."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradloom.models.floatref import BATCH_EPSILON, BATCH_MOMENTUM, EPSILON, from_state
from gradloom.models.layers import INPUT, Conv, FullyConnected, MaxPool, Subsample, Upsample
from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["FloatNetwork"]


class FloatNetwork(nn.Module):
    """A network in float32, with the initial weights of a pint8 state.

    Parameters
    ----------
    batch_norm : :class:`bool`
        Batch normalisation and ReLU in place of L1-FRN and TLU.
    """

    def __init__(self, net: Network, state: State, *, batch_norm: bool = False) -> None:
        super().__init__()
        self.net, self.batch_norm = net, batch_norm
        self.table = nn.ParameterDict({
            self._key(layer, key): nn.Parameter(torch.from_numpy(value.astype(np.float32)))
            for (layer, key), value in from_state(net, state, np.float32).parameters.items()
            if not (batch_norm and key == "tau")
        })
        for layer in net.weighted if batch_norm else ():
            if layer.norm == "frn":
                self.register_buffer(self._key(layer.name, "mean"), torch.zeros(layer.out))
                self.register_buffer(self._key(layer.name, "variance"), torch.ones(layer.out))

    @staticmethod
    def _key(layer: str, key: str) -> str:
        return f"{layer}-{key}".replace(".", "_")

    def parameter(self, layer: str, key: str) -> Tensor:
        return self.table[self._key(layer, key)]

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, C, Y, X) to logits (B, classes)."""
        z = {INPUT: x}
        for layer in self.net.layers:
            name, source, g = layer.name, z[layer.input], self.net.geometry(layer.name)
            if isinstance(layer, Conv | FullyConnected):
                y = F.conv2d(source, self.parameter(name, "w"), stride=g.stride, padding=g.pad)
                beta = self.parameter(name, "beta")[:, None, None]
                if layer.norm == "frn":
                    z[name] = self._normalised(layer, y, z)
                else:
                    z[name] = F.relu(y + beta) if layer.act == "relu" else y + beta
            elif isinstance(layer, Subsample):
                kept = source[:, :, :: layer.stride, :: layer.stride]
                z[name] = F.pad(kept, (0, 0, 0, 0, 0, layer.out - kept.shape[1]))
            elif isinstance(layer, Upsample):
                z[name] = F.interpolate(source, scale_factor=layer.scale)
            elif isinstance(layer, MaxPool):
                z[name] = F.max_pool2d(source, g.kernel, g.stride, g.pad)
            else:
                z[name] = F.avg_pool2d(source, g.kernel, g.stride, g.pad)
        return z[self.net.logits.name].flatten(1)

    def _normalised(self, layer: Conv | FullyConnected, y: Tensor, z: dict[str, Tensor]) -> Tensor:
        gamma, beta = self.parameter(layer.name, "gamma"), self.parameter(layer.name, "beta")
        if self.batch_norm:
            mean, variance = (self.get_buffer(self._key(layer.name, key)) for key in ("mean", "variance"))
            y = F.batch_norm(y, mean, variance, gamma, beta, self.training, BATCH_MOMENTUM, BATCH_EPSILON)
        else:
            y = y / (y.abs().mean((2, 3), keepdim=True) + EPSILON)
            y = gamma[:, None, None] * y + beta[:, None, None]
        if layer.residual is not None:
            y = y + z[layer.residual]
        if layer.act != "tlu":
            return y
        return F.relu(y) if self.batch_norm else torch.maximum(y, self.parameter(layer.name, "tau")[:, None, None])
