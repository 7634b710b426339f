"""What a training step wrote, by layer, as PyTorch tensors."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from gradloom.host.files import UserError
from gradloom.models.arithmetic import pint
from gradloom.models.golden import step as golden
from gradloom.models.layers import Kind, Layer
from gradloom.models.network import Network

__all__ = ["LayerTensors", "Tensors"]

_ALIASES = {"weight": "w", "velocity": "v"}


class LayerTensors:
    """Tensors that a step wrote for one layer, as real numbers (float32) in their logical shapes (NCHW, OIHW).

    ``z`` output (logits of the last layer), ``xhat`` normalised activations, ``bit`` threshold's bits, ``index`` choice of a
    max pool; ``dz`` error of the output and ``dx`` of the convolution's sums, per image, so of the *sum* of the batch's losses;
    ``ds`` error that a second reader sends back; ``dw`` gradient of the *mean* loss, as ``weight.grad``;
    ``weight``, ``velocity``, ``gamma``, ``beta``, ``tau`` and ``vgamma``, ``vbeta``, ``vtau`` after the step's update.
    :meth:`codes` gives the bytes instead.
    """

    def __init__(
        self,
        network: Network,
        layer: Layer,
        batch: int,
        read: Callable[[str, str], np.ndarray],
        used: Mapping[int, int],
        after: Mapping[int, int],
    ) -> None:
        self._network, self._layer, self._batch, self._read = network, layer, batch, read
        self._used, self._after = used, after
        """Exponents by tensor number, those that the step used and those after it."""
        self._names = [name for owner, name in golden.expected_tensors(network) if owner == layer.name]

    def __dir__(self) -> list[str]:
        return ["codes", "scale", *(self._own(name) for name in self._names)]

    def __getattr__(self, name: str) -> torch.Tensor:
        if name.startswith("_"):
            raise AttributeError(name)
        tensor = self._machine(name)
        codes = self._codes(tensor)
        exponent = self._exponent(tensor)
        if exponent is None:
            return torch.from_numpy(codes.astype(np.int64))
        values = pint.decode(codes) if codes.dtype == np.uint8 else codes
        real = np.ldexp(values.astype(np.float64), exponent)
        if tensor == "dw":
            real = real / self._batch
        return torch.from_numpy(real.astype(np.float32))

    def codes(self, name: str) -> np.ndarray:
        """The bytes or integers of a tensor as the machine wrote them."""
        return self._codes(self._machine(name)).copy()

    @property
    def scale(self) -> dict[str, int]:
        """Exponents by tensor: an element is its integer times 2^exponent."""
        found = {self._own(name): self._exponent(name) for name in self._names}
        return {name: exponent for name, exponent in found.items() if exponent is not None}

    def _own(self, name: str) -> str:
        last = self._layer.name == self._network.logits.name
        own = {value: key for key, value in _ALIASES.items()} | ({"logits": "z", "error": "dz"} if last else {})
        return own.get(name, name)

    def _machine(self, name: str) -> str:
        for tensor in self._names:
            if name in (tensor, self._own(tensor)):
                return tensor
        raise AttributeError(f"layer {self._layer.name!r} has no tensor {name!r}: it has "
                             f"{', '.join(self._own(tensor) for tensor in self._names)}")

    def _codes(self, tensor: str) -> np.ndarray:
        return self._read(self._layer.name, tensor)

    def _exponent(self, tensor: str) -> int | None:
        net, name = self._network, self._layer.name
        fixed = {"xhat": -8, "logits": -8, "error": net.error_exponent, "bit": None, "index": None, "q": None, "le": None,
                 "rest": None}
        if tensor in fixed:
            return fixed[tensor]
        if tensor == "dw":
            return self._used[net.dx_tid(name)] + self._used[net.z_tid(self._layer.input)]
        if tensor in ("w", "v"):
            return self._after[net.tid(name, Kind.W if tensor == "w" else Kind.V)]
        tids = {"z": net.z_tid, "dz": net.dz_tid, "dx": net.dx_tid, "ds": net.ds_tid}
        return self._used[tids[tensor](name)] if tensor in tids else -24


class Tensors(Mapping[str, LayerTensors]):
    """A step's :class:`LayerTensors` by layer name."""

    def __init__(self, layers: dict[str, LayerTensors]) -> None:
        self._layers = layers

    def __getitem__(self, name: str) -> LayerTensors:
        if name not in self._layers:
            raise UserError(f"there is no layer {name!r}: the layers are {', '.join(self._layers)}")
        return self._layers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)
