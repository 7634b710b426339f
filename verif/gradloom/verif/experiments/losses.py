"""What a variant of the arithmetic loses: training loss at equal steps on CIFAR-10, beside FP32 with the same normalisation.

``python -m gradloom.verif.experiments.losses --data FOLDER|FILE.npz --variants fp32,mean,mean+acts16 --seed 1 --out FOLDER`` trains
a network in every variant, one after the other. All begin at the same weights and see the same images, cropped and flipped by a
hash (:mod:`~gradloom.verif.experiments.pictures`), in the same order. A run writes ``FOLDER/run-VARIANT-SEED.json`` after every
epoch, and a checkpoint from which the same command goes on; of the variant "product" at the end also the state that every device
of ``gradloom`` goes on from (``run-product-SEED.npz``, for ``eval --weights`` and ``verify --weights``). The variants:
:mod:`~gradloom.verif.experiments.variants`.
"""

import argparse
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from gradloom.host.commands.cli_arguments import positive, seed
from gradloom.host.devices.models import check_torch_device
from gradloom.host.files import UserError, write_json
from gradloom.models.atomic import write_with
from gradloom.models.emulator import step as emulator_step
from gradloom.models.emulator.learnt import Learnt, Parameters
from gradloom.models.emulator.numbers import value_table
from gradloom.models.emulator.step import Emulator
from gradloom.models.hyper import Hyper, schedule_table
from gradloom.models.layers import Training
from gradloom.models.network import Network
from gradloom.models.state import State
from gradloom.verif.experiments.narrow import NETWORKS, experiment_network
from gradloom.verif.experiments.pictures import Pictures, load_pictures
from gradloom.verif.experiments.refusals import told_in_a_sentence
from gradloom.verif.experiments.variants import Plan, applied, parse_plan, variant_network
from gradloom.verif.float_network import FloatNetwork

__all__ = ["FloatLearner", "IntegerLearner", "Learner", "Run", "main", "train"]

_EVALUATION = 500
"""Images of an evaluation's batch."""
_LOGIT_UNIT = 2.0**-8
_PRODUCT = "product"
"""The variant that departs from nothing."""


class Learner(Protocol):
    """A network in training whose images, class numbers and losses stay on a device."""

    def train_step(self, images: Tensor, answers: Tensor, hyper: Hyper) -> Tensor:
        """Logits (B, classes) of a step on PINT codes."""

    def logits(self, images: Tensor) -> Tensor:
        """(B, classes)."""

    def saved(self) -> dict[str, Any]:
        """What a checkpoint keeps."""

    def restore(self, saved: dict[str, Any]) -> None: ...


class IntegerLearner(Emulator):
    """The emulator by a plan, within :func:`~gradloom.verif.experiments.variants.applied`, whose wide weights it keeps."""

    def __init__(self, network: Network, plan: Plan, masters: dict[tuple[str, int], Tensor], *, seed: int, exponent: int,
                 device: str) -> None:
        planned = variant_network(network, plan)
        super().__init__(planned, State.initial(planned, seed, exponent), device)
        self.masters = masters

    @torch.inference_mode()
    def train_step(self, images: Tensor, answers: Tensor, hyper: Hyper) -> Tensor:  # type: ignore[override]
        """:meth:`gradloom.models.emulator.step.Emulator.train_step` of images that are on the device; the logits."""
        _, logits = self._advance(images, answers, hyper)
        return logits * _LOGIT_UNIT

    @torch.inference_mode()
    def logits(self, images: Tensor) -> Tensor:
        run = self._run(calibrate=False)
        try:
            return emulator_step.forward(run, images) * _LOGIT_UNIT
        finally:
            run.verify()

    def saved(self) -> dict[str, Any]:
        # Values have 16 bits at most.
        return {"learnt": {name: tuple(value.to(torch.int16) for value in (found.w, found.v) if value is not None)
                           for name, found in self.learnt.items()},
                "wide": {name: found.wide.to(torch.int32) for name, found in self.learnt.items() if found.wide is not None},
                "parameters": (self.parameters.master, self.parameters.velocity), "exponents": self._exponents, "step": self._step,
                "calibrated": self._calibrated, "masters": dict(self.masters)}

    def restore(self, saved: dict[str, Any]) -> None:
        wide = {name: value.to(torch.float32) for name, value in saved["wide"].items()}
        pairs = {name: [value.to(torch.float32) for value in pair] for name, pair in saved["learnt"].items()}
        self.learnt = {name: Learnt(w, v, wide=wide.get(name)) for name, (w, v) in pairs.items()}
        master, velocity = saved["parameters"]
        self.parameters = Parameters(master, velocity, self.parameters.places)
        self._exponents, self._step, self._calibrated = saved["exponents"], saved["step"], saved["calibrated"]
        self.masters.clear()
        self.masters.update(saved["masters"])


class FloatLearner:
    """L1-FRN and TLU in float32, with autograd; weights decay, gamma, beta and tau do not."""

    def __init__(self, network: Network, *, seed: int, exponent: int, device: str) -> None:
        self.module = FloatNetwork(network, State.initial(network, seed, exponent))
        self.module.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's type stubs lack it
        self.unit = math.ldexp(1.0, exponent)
        named = dict(self.module.table.items())
        groups = [{"params": [value for key, value in named.items() if key.endswith("-w") is decays]} for decays in (True, False)]
        self.optimizer = torch.optim.SGD(groups, 0.1, 0.9)

    def _images(self, codes: Tensor) -> Tensor:
        values = value_table(str(codes.device)).mul(self.unit)[codes.to(torch.int64)]
        return values.contiguous(memory_format=torch.channels_last)

    def train_step(self, images: Tensor, answers: Tensor, hyper: Hyper) -> Tensor:
        decay = math.ldexp(1.0, -hyper.decay_n)
        for group, rate in zip(self.optimizer.param_groups, (decay, 0.0), strict=True):
            group.update(lr=hyper.lr, momentum=hyper.momentum / 256, weight_decay=rate)
        self.optimizer.zero_grad()
        logits = self.module(self._images(images))
        F.cross_entropy(logits, answers).backward()
        self.optimizer.step()
        return logits.detach()

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        return self.module(self._images(images))

    def saved(self) -> dict[str, Any]:
        return {"module": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, saved: dict[str, Any]) -> None:
        self.module.load_state_dict(saved["module"])
        self.optimizer.load_state_dict(saved["optimizer"])


@dataclasses.dataclass(frozen=True)
class Run:
    """What is trained, and how.

    Parameters
    ----------
    variant : :class:`str`
        "fp32", or names of variants joined by "+".
    sums : :class:`str`
        Of the emulator's convolutions: "exact" or "float32".
    """

    variant: str
    network: str = "resnet20"
    seed: int = 1
    epochs: int = 22
    batch: int = 256
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 2.0**-12
    warmup: int = 3
    sums: str = "exact"

    @property
    def name(self) -> str:
        return f"{self.variant}-{self.seed}"

    def table(self, images: int) -> list[Hyper]:
        """Hyperparameters of every step; the last images of an epoch that fill no batch are left out."""
        train = Training(batch=self.batch, epochs=self.epochs, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay,
                         schedule="cosine", warmup=min(self.warmup, self.epochs - 1))
        return schedule_table(train, images // self.batch * self.epochs)


def _mean_loss(learner: Learner, images: Tensor, answers: Tensor, hypers: Sequence[Hyper], batch: int) -> float:
    """Of an epoch; it is read once, at the end."""
    total = torch.zeros((), dtype=torch.float64, device=images.device)
    for number, hyper in enumerate(hypers):
        part = slice(number * batch, (number + 1) * batch)
        logits = learner.train_step(images[part], answers[part], hyper)
        total += F.cross_entropy(logits.to(torch.float64), answers[part])
    return float(total) / len(hypers)


def _accuracy(learner: Learner, data: Pictures) -> float:
    right = torch.zeros((), dtype=torch.int64, device=data.test.device)
    for images, answers in zip(data.test.split(_EVALUATION), data.test_y.split(_EVALUATION), strict=True):
        right += (learner.logits(images).argmax(1) == answers).sum()
    return int(right) / len(data.test)


def _save(path: Path, record: dict[str, Any], learner: Learner) -> None:
    write_with(path.with_suffix(".pt"), lambda stream: torch.save({"record": record, "learner": learner.saved()}, stream))
    write_json(path, record)


def train(run: Run, learner: Learner, data: Pictures, out: Path, *, ends: float = math.inf,
          say: Callable[[str], None] = print) -> dict[str, Any]:
    """Train from the beginning or from a checkpoint; the record that was written.

    ``ends`` : of :func:`time.monotonic`; an epoch that would last beyond it is not begun.

    Raises
    ------
    :exc:`UserError`
        If a batch is larger than the training images, or the run that is there has other settings.
    """
    if run.batch > len(data.train):
        raise UserError(f"a batch of {run.batch} images is larger than the {len(data.train)} images that there are: give a smaller "
                        f"--batch")
    device = str(data.train.device)
    settings = dataclasses.asdict(run) | {"images": len(data.train), "test_images": len(data.test), "input_exponent": data.exponent}
    machine = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"}
    record: dict[str, Any] = settings | machine | {"test_accuracy": None, "curve": []}
    path = out / f"run-{run.name}.json"
    if path.with_suffix(".pt").exists():
        found = torch.load(path.with_suffix(".pt"), map_location=device, weights_only=False)
        if any(found["record"].get(key) != value for key, value in settings.items()):
            raise UserError(f"{path} holds a run of other settings: move it away, or restore the settings")
        record = found["record"]
        learner.restore(found["learner"])
    # A run that has gone on elsewhere says so of every epoch that was trained there.
    elsewhere = {key: value for key, value in machine.items() if record[key] != value}
    hypers, curve = run.table(len(data.train)), record["curve"]
    steps, latest, spent = len(hypers) // run.epochs, 0.0, curve[-1]["seconds"] if curve else 0.0
    for epoch in range(len(curve), run.epochs):
        began = time.monotonic()
        if began + latest > ends:
            say(f"{run.name}: no time for epoch {epoch + 1}")
            return record
        images, answers = data.epoch(run.seed, epoch)
        loss = _mean_loss(learner, images, answers, hypers[epoch * steps : (epoch + 1) * steps], run.batch)
        latest = time.monotonic() - began
        spent += latest
        rate = steps * run.batch / latest
        curve.append({"epoch": epoch + 1, "loss": loss, "images_per_second": round(rate, 1), "seconds": round(spent, 2)}
                     | elsewhere)
        if epoch + 1 == run.epochs:
            record["test_accuracy"] = _accuracy(learner, data)
        _save(path, record, learner)
        note = "" if record["test_accuracy"] is None else f", test accuracy {record['test_accuracy']:.4f}"
        say(f"{run.name}: epoch {epoch + 1}, loss {loss:.4f}, {rate:.0f} images/s{note}")
    return record


def _plan(variant: str) -> Plan | None:
    """Of a variant; nothing of FP32."""
    try:
        return None if variant == "fp32" else parse_plan(variant)
    except ValueError as error:
        raise UserError(str(error)) from None


def _one(run: Run, data: Pictures, out: Path, ends: float) -> dict[str, Any]:
    network, device = experiment_network(run.network), str(data.train.device)
    made: dict[str, Any] = {"seed": run.seed, "exponent": data.exponent, "device": device}

    def say(text: str) -> None:
        print(text, flush=True)

    plan = _plan(run.variant)
    if plan is None:
        return train(run, FloatLearner(network, **made), data, out, ends=ends, say=say)
    with applied(plan, run.sums) as masters:
        learner = IntegerLearner(network, plan, masters, **made)
        record = train(run, learner, data, out, ends=ends, say=say)
        if run.variant == _PRODUCT and record["test_accuracy"] is not None:
            learner.state().save(out / f"run-{run.name}.npz")
        return record


@told_in_a_sentence
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.experiments.losses", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER|FILE")
    parser.add_argument("--variants", required=True, metavar="NAME[+NAME...],...")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--network", default="resnet20", choices=NETWORKS)
    parser.add_argument("--seed", type=seed, default=1)
    parser.add_argument("--epochs", type=positive, default=22)
    parser.add_argument("--batch", type=positive, default=256)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--weight-decay", type=float, default=2.0**-12)
    parser.add_argument("--sums", default="exact", choices=("exact", "float32"))
    parser.add_argument("--images", type=positive, metavar="N", help="the first N training images (default: all)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--stop-after", type=float, default=math.inf, metavar="SECONDS")
    options = parser.parse_args(arguments)
    ends = time.monotonic() + options.stop_after
    # Values of more than 11 bits would lose some in TF32, and FP32 is to be FP32.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    variants = options.variants.split(",")
    for variant in variants:  # all of them before the first is trained
        _plan(variant)
    check_torch_device(options.device)
    data = load_pictures(options.data, options.device, options.images)
    options.out.mkdir(parents=True, exist_ok=True)
    for variant in variants:
        run = Run(variant, options.network, options.seed, options.epochs, options.batch, options.lr,
                  weight_decay=options.weight_decay, sums="exact" if variant == "fp32" else options.sums)
        _one(run, data, options.out, ends)
    return 0


if __name__ == "__main__":
    sys.exit(main())
