"""The three products of a layer on a device: forward (FP), error of the input (BP), weight gradient (WG)."""

import time
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from gradloom.host.devices.device import MachineError
from gradloom.host.files import UserError
from gradloom.host.offload.geometry import LayerShape
from gradloom.host.offload.ledger import Ledger
from gradloom.host.offload.matrix_device import MatrixDevice
from gradloom.models.arithmetic.dither import tensor_seed
from gradloom.models.matrix.blocks import Blocks, ProductFormat, Quantiser, quantise
from gradloom.models.matrix.gemm import real

__all__ = ["LayerProduct", "Multiplier"]

_OPERANDS = ("weights", "activations", "errors", "activations of the gradient", "errors of the gradient")


class Multiplier:
    """Quantises and multiplies for one layer.

    Parameters
    ----------
    layer, number : its name, and its place among all layers, by which its random bits are chosen
    check : every product is compared with PyTorch's in 64-bit integers
    """

    def __init__(self, layer: str, number: int, device: MatrixDevice, formats: ProductFormat, ledger: Ledger, *, check: bool,
                 seed: int) -> None:
        self._layer, self._number, self._device, self._formats, self._ledger = layer, number, device, formats, ledger
        self._check, self._seed = check, seed
        self.calls = self.checked = 0
        """Forward passes; products that were compared."""

    def activations(self, x: torch.Tensor, call: int) -> Blocks:
        """Codes of the forward pass."""
        return self._quantise(x, self._formats.activations, 1, call)

    def weights(self, w: torch.Tensor, call: int) -> Blocks:
        """Codes of both passes."""
        return self._quantise(w, self._formats.weights, 0, call)

    def errors(self, dy: torch.Tensor, call: int) -> Blocks:
        """Codes of the backward pass."""
        return self._quantise(dy, self._formats.errors, 2, call)

    def summed(self, blocks: Blocks, tensor: torch.Tensor, operand: int, call: int) -> Blocks:
        """Codes of a product that sums over images, which therefore have one exponent."""
        if blocks.exponents.ndim == 0:
            return blocks
        quantiser = self._formats.activations if operand == 1 else self._formats.errors
        return self._quantise(tensor, Quantiser("tensor", quantiser.rounding), operand + 2, call)

    def _quantise(self, tensor: torch.Tensor, quantiser: Quantiser, operand: int, call: int) -> Blocks:
        seed = tensor_seed(self._seed, call, len(_OPERANDS) * self._number + operand)
        try:
            return quantise(tensor.detach().numpy(), quantiser, seed)
        except ValueError:
            raise UserError(f"layer {self._layer!r}: its {_OPERANDS[operand]} are not all finite, and have no codes: look for what "
                            "made them so (a lower learning rate often mends it)") from None

    def multiply(self, stage: str, a: torch.Tensor, b: torch.Tensor, rows: np.ndarray, columns: np.ndarray) -> torch.Tensor:
        """Codes (M, K) and (K, N) to float32 (M, N).

        Raises
        ------
        :exc:`~gradloom.host.files.UserError`
            If the product is too deep, or the check finds another sum.
        """
        one, other = (np.ascontiguousarray(part.numpy().astype(np.int8)) for part in (a, b))
        begin, before = time.perf_counter(), getattr(self._device, "cycles", 0)
        try:
            sums = self._device.product(one, other)
        except (ValueError, UserError, MachineError) as error:
            raise UserError(f"layer {self._layer!r}, {stage}: {error}") from None
        seconds, cycles = time.perf_counter() - begin, getattr(self._device, "cycles", 0) - before
        if self._check:
            self._compare(stage, a, b, sums)
        self._ledger.add(self._layer, stage, "device", (one.shape[0], other.shape[1], one.shape[1]), seconds, cycles)
        return torch.from_numpy(real(sums, rows, columns))

    def _compare(self, stage: str, a: torch.Tensor, b: torch.Tensor, sums: np.ndarray) -> None:
        expected = (a.long() @ b.long()).numpy()
        wrong = np.argwhere(expected != sums)
        if len(wrong):
            row, column = wrong[0]
            raise UserError(f"layer {self._layer!r}, {stage}: element ({row}, {column}) of the device's product is "
                            f"{sums[row, column]}, the CPU's {expected[row, column]} ({len(wrong)} of {sums.size} differ)")
        self.checked += 1


def _codes(blocks: Blocks) -> torch.Tensor:
    return torch.from_numpy(blocks.codes).float()


def _row_exponents(blocks: Blocks, rows: int) -> np.ndarray:
    """One for each row of a matrix, to which every image gives equally many."""
    return np.repeat(blocks.exponents, rows // max(1, len(blocks.exponents))) if blocks.exponents.ndim else blocks.exponents


class LayerProduct(torch.autograd.Function):
    """A layer without its bias, as PyTorch's automatic differentiation calls it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, multiplier: Multiplier, shape: LayerShape) -> torch.Tensor:
        call, multiplier.calls = multiplier.calls, multiplier.calls + 1
        codes, weights = multiplier.activations(x, call), multiplier.weights(w, call)
        ctx.multiplier, ctx.shape, ctx.call, ctx.codes, ctx.weights = multiplier, shape, call, codes, weights
        ctx.save_for_backward(x)
        found = [multiplier.multiply("FP", part, kernel.T, _row_exponents(codes, len(part)), weights.exponents)
                 for part, kernel in zip(shape.inputs(_codes(codes)), shape.kernels(_codes(weights)), strict=True)]
        return shape.outputs(found)

    # The annotation is a text, as the documentation is built without PyTorch, with stand-ins that know no "|".
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> "tuple[torch.Tensor | None, torch.Tensor | None, None, None]":
        multiplier, shape, call = ctx.multiplier, ctx.shape, ctx.call
        (x,) = ctx.saved_tensors
        codes, dx, dw = multiplier.errors(dy, call), None, None
        if ctx.needs_input_grad[0]:
            parts = zip(shape.errors(_codes(codes)), shape.kernels(_codes(ctx.weights)), strict=True)
            dx = shape.spread([multiplier.multiply("BP", part, kernel, _row_exponents(codes, len(part)), ctx.weights.exponents)
                               for part, kernel in parts])
        if ctx.needs_input_grad[1]:
            inputs, errors = multiplier.summed(ctx.codes, x, 1, call), multiplier.summed(codes, dy, 2, call)
            parts = zip(shape.errors(_codes(errors)), shape.inputs(_codes(inputs)), strict=True)
            dw = shape.weights([multiplier.multiply("WG", part.T, other, errors.exponents, inputs.exponents)
                                for part, other in parts])
        return dx, dw, None, None
