"""SHA-256 digests over the logical tensors (NCHW, OIHW, little-endian), independent of any memory layout."""

import hashlib
from collections.abc import Mapping

import numpy as np

from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["parameters_digest", "tensor_digest", "tensor_digests"]


def _update(digest: "hashlib._Hash", name: str, array: np.ndarray) -> None:
    array = np.ascontiguousarray(array)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    kind = "u" if array.dtype.kind == "b" else array.dtype.kind
    digest.update(f"{name} {kind}{array.dtype.itemsize} {'x'.join(map(str, array.shape))}\n".encode())
    digest.update(array.tobytes())


def tensor_digest(array: np.ndarray) -> str:
    """Hexadecimal digest of one tensor: type and shape, then the values in row-major order."""
    digest = hashlib.sha256()
    _update(digest, "tensor", array)
    return digest.hexdigest()


def tensor_digests(tensors: Mapping[tuple[str, str], np.ndarray]) -> dict[str, str]:
    """Digest of every tensor of a step by ``LAYER/TENSOR``, sorted by name."""
    return {f"{layer}/{name}": tensor_digest(array) for (layer, name), array in sorted(tensors.items())}


def parameters_digest(net: Network, state: State) -> str:
    """Digest of all that training has learnt.

    Layers in network order, each with weight codes, velocity codes (and masters or rests, where there are any), then every
    parameter's master and velocity; sums of averaged weights, if there are any; at the end (tensor number, exponent) of every
    tensor as int64, by number.
    """
    digest = hashlib.sha256()
    for layer in net.weighted:
        name = layer.name
        for key, table in state.weight_tables().items():
            if name in table:
                _update(digest, f"{name}/{key}", table[name])
        for key in net.parameters(name):
            _update(digest, f"{name}/{key}", state.parameters[name][key])
            _update(digest, f"{name}/v{key}", state.parameter_velocities[name][key])
    for path, total in sorted(state.averages.items()):
        _update(digest, f"average of {state.averaged}/{path}", total)
    _update(digest, "exponents", np.array(sorted(state.exponents.items()), np.int64).reshape(-1, 2))
    return digest.hexdigest()
