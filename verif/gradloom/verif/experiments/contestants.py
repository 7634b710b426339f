"""What takes part in an accuracy experiment: number formats on the exact emulator, and float32 networks, behind one interface."""

import dataclasses
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gradloom.host.devices.limits import told
from gradloom.models import digests
from gradloom.models.arithmetic import pint
from gradloom.models.emulator.step import Emulator
from gradloom.models.golden.step import schedule_table
from gradloom.models.layers import Training
from gradloom.models.network import Network
from gradloom.models.state import State
from gradloom.verif.experiments.titles import TITLES
from gradloom.verif.float_network import FloatNetwork

__all__ = ["CONTESTANTS", "Contestant", "Learner", "learner"]

KINDS = ("activations", "normalised", "errors", "weights", "velocities")


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A number format with its rounding, or a float32 network (``form`` "fp32" or "fp32-bn")."""

    form: str
    rounding: Mapping[str, str] = dataclasses.field(default_factory=dict)


_ROUNDED = {"pint8-stochastic": ("pint8", "stochastic"), "pint8-nearest": ("pint8", "nearest"), "bfp8-nearest": ("bfp8", "nearest"),
            "int8-shift-stochastic": ("int8-shift", "stochastic")}
"""Contestants that are a format with all kinds of tensors rounded alike."""


def _contestant(name: str) -> Contestant:
    form, how = _ROUNDED.get(name, (name, None))
    return Contestant(form, {} if how is None else dict.fromkeys(KINDS, how))


CONTESTANTS: dict[str, Contestant] = {name: _contestant(name) for name in TITLES}
"""By name."""


class Learner(Protocol):
    """A network in training: steps numbered from 0, and outputs as real numbers."""

    def train_step(self, x_codes: np.ndarray, targets: np.ndarray, step: int) -> float:
        """Do step ``step`` on PINT codes and class numbers, or real targets (B, outputs); the mean loss."""

    def outputs(self, x_codes: np.ndarray) -> np.ndarray:
        """(B, outputs), float64."""

    def digest(self) -> str | None:
        """Of all that was learnt, where it is exact."""


def learner(contestant: Contestant, network: Network, seed: int, exponent: int, train: Training, steps: int,
            device: str = "cpu") -> Learner:
    """A contestant at its initial weights, all from the same hash, on a PyTorch device."""
    if contestant.form.startswith("fp32"):
        return _Float(network, seed, exponent, train, steps, device, batch_norm=contestant.form == "fp32-bn")
    return _Integer(network.formatted(contestant.form).rounded(contestant.rounding), seed, exponent, train, steps, device)


class _Integer:
    def __init__(self, network: Network, seed: int, exponent: int, train: Training, steps: int, device: str) -> None:
        self.network = network
        self.emulator = Emulator(network, State.initial(network, seed, exponent), device)
        self.hypers = schedule_table(train, steps, average=network.arithmetic.average)

    def train_step(self, x_codes: np.ndarray, targets: np.ndarray, step: int) -> float:
        given = np.rint(256 * targets).astype(np.int64) if targets.ndim == 2 else targets
        with told(f"{self.network.format}, step {step}"):
            return self.emulator.train_step(x_codes, given, self.hypers[step]).loss

    def outputs(self, x_codes: np.ndarray) -> np.ndarray:
        with told(f"{self.network.format}, evaluation"):
            return self.emulator.evaluate(x_codes, np.zeros(len(x_codes), np.int64)).logits / 256

    def digest(self) -> str | None:
        return digests.parameters_digest(self.network, self.emulator.state())


class _Float:
    def __init__(self, network: Network, seed: int, exponent: int, train: Training, steps: int, device: str, *,
                 batch_norm: bool) -> None:
        plain = network.formatted("pint8")
        self.module = FloatNetwork(plain, State.initial(plain, seed, exponent), batch_norm=batch_norm)
        self.module.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's type stubs lack it
        self.network, self.exponent, self.device = network, exponent, device
        self.hypers = schedule_table(train, steps)
        weights = [value for key, value in self.module.table.items() if key.endswith("-w")]
        others = [value for key, value in self.module.table.items() if not key.endswith("-w")]
        groups = [{"params": weights, "weight_decay": train.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.SGD(groups, train.lr, train.momentum)

    def _images(self, x_codes: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ldexp(pint.decode(x_codes).astype(np.float32), self.exponent)).to(self.device)

    def train_step(self, x_codes: np.ndarray, targets: np.ndarray, step: int) -> float:
        self.module.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.hypers[step].lr
        self.optimizer.zero_grad()
        outputs, given = self.module(self._images(x_codes)), torch.from_numpy(targets).to(self.device)
        if targets.ndim == 2:
            loss = 0.5 * ((outputs - given.to(torch.float32)) ** 2).sum(1).mean()
        elif self.network.loss == "softmax":
            loss = F.cross_entropy(outputs, given)
        else:
            loss = 0.5 * ((outputs - F.one_hot(given, outputs.shape[1])) ** 2).sum(1).mean()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def outputs(self, x_codes: np.ndarray) -> np.ndarray:
        self.module.eval()
        with torch.inference_mode():
            return self.module(self._images(x_codes)).to("cpu", torch.float64).numpy()

    def digest(self) -> str | None:
        return None
