"""How the tensors of a linear and of a convolution layer become matrices, group by group, and back (im2col and col2im)."""

import dataclasses
from typing import Protocol

import torch
from torch.nn import functional

__all__ = ["ConvolutionShape", "LayerShape", "LinearShape"]

Pair = tuple[int, int]


class LayerShape(Protocol):
    """Tensors of a layer as matrices: R rows, as many to each image; K inputs and N outputs of each group.

    Codes come as float32 tensors, in which they are exact.
    """

    def inputs(self, x: torch.Tensor) -> list[torch.Tensor]:
        """(R, K) of each group."""
        ...

    def spread(self, rows: list[torch.Tensor]) -> torch.Tensor:
        """What :meth:`inputs` took apart; what was taken several times is added up."""
        ...

    def errors(self, dy: torch.Tensor) -> list[torch.Tensor]:
        """(R, N) of each group."""
        ...

    def outputs(self, rows: list[torch.Tensor]) -> torch.Tensor:
        """The output that (R, N) of all groups are."""
        ...

    def kernels(self, w: torch.Tensor) -> list[torch.Tensor]:
        """(N, K) of each group."""
        ...

    def weights(self, kernels: list[torch.Tensor]) -> torch.Tensor:
        """What :meth:`kernels` took apart."""
        ...


@dataclasses.dataclass(frozen=True)
class LinearShape:
    """Of ``torch.nn.Linear``: features in the last of any number of axes.

    Parameters
    ----------
    lead : tuple of :class:`int`
        The other axes of the input.
    """

    lead: tuple[int, ...]

    def inputs(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x.reshape(-1, x.shape[-1])]

    errors = inputs

    def spread(self, rows: list[torch.Tensor]) -> torch.Tensor:
        return rows[0].reshape(*self.lead, -1)

    outputs = spread

    def kernels(self, w: torch.Tensor) -> list[torch.Tensor]:
        return [w]

    def weights(self, kernels: list[torch.Tensor]) -> torch.Tensor:
        return kernels[0]


@dataclasses.dataclass(frozen=True)
class ConvolutionShape:
    """Of ``torch.nn.Conv2d`` with padding by zeros.

    Parameters
    ----------
    size : rows and columns of the input
    kernel, stride, padding, dilation : as of PyTorch
    groups : :class:`int`
    """

    size: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    @property
    def positions(self) -> Pair:
        """Rows and columns of the output."""
        found = [(size + 2 * pad - spacing * (kernel - 1) - 1) // stride + 1 for size, pad, spacing, kernel, stride in
                 zip(self.size, self.padding, self.dilation, self.kernel, self.stride, strict=True)]
        return found[0], found[1]

    def inputs(self, x: torch.Tensor) -> list[torch.Tensor]:
        found = (functional.unfold(part, self.kernel, self.dilation, self.padding, self.stride) for part in x.chunk(self.groups, 1))
        return [part.transpose(1, 2).reshape(-1, part.shape[1]) for part in found]

    def spread(self, rows: list[torch.Tensor]) -> torch.Tensor:
        count = self.positions[0] * self.positions[1]
        found = (part.reshape(-1, count, part.shape[1]).transpose(1, 2) for part in rows)
        return torch.cat([functional.fold(part, self.size, self.kernel, self.dilation, self.padding, self.stride)
                          for part in found], 1)

    def errors(self, dy: torch.Tensor) -> list[torch.Tensor]:
        return [part.flatten(2).transpose(1, 2).reshape(-1, part.shape[1]) for part in dy.chunk(self.groups, 1)]

    def outputs(self, rows: list[torch.Tensor]) -> torch.Tensor:
        y, x = self.positions
        return torch.cat([part.reshape(-1, y * x, part.shape[1]).transpose(1, 2).unflatten(2, (y, x)) for part in rows], 1)

    def kernels(self, w: torch.Tensor) -> list[torch.Tensor]:
        return [part.flatten(1) for part in w.chunk(self.groups)]

    def weights(self, kernels: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(kernels).unflatten(1, (-1, *self.kernel))
