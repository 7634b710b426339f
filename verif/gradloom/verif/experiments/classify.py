"""Classification in every number format: the same network, initial weights, images, order and schedule.

``python -m gradloom.verif.experiments.classify resnet20 --data FOLDER`` (CIFAR-10 in any form that ``--data`` of gradloom takes),
``... resnet20-long``, ``... vgg16`` and ``... vgg16-quarter`` likewise, ``... logistic`` (scikit-learn's digits, or an idx folder
with ``--data``), ``... digits``, ``... ablations``. ``... resnet20-recipe`` and ``... vgg16-recipe`` train as ETA's section III-C
says (200 epochs of all images; batch and weight decay are ours), which takes a GPU: ``--device cuda``.
Results go to ``docs/results/accuracy-NAME.json``, one run at a time: a command that is stopped and given again goes on.
``python -m gradloom.verif.experiments.page`` draws them.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradloom.host.datasets.data import Dataset, Preparation, epoch_order, load_dataset
from gradloom.host.devices.models import check_torch_device
from gradloom.host.files import UserError
from gradloom.models.layers import FullyConnected, Training
from gradloom.models.network import Network, load_network
from gradloom.verif.experiments.contestants import CONTESTANTS, learner
from gradloom.verif.experiments.narrow import experiment_network
from gradloom.verif.experiments.refusals import told_in_a_sentence
from gradloom.verif.experiments.results import RESULTS, Store

__all__ = ["EXPERIMENTS", "Experiment", "main", "train_once"]

FORMATS = ("fp32-bn", "fp32", "pint8", "int8-shift", "bfp8", "bfp8-swa")
DEEP = (*FORMATS, "int8-shift-stochastic")
"""Of deep networks: errors that are rounded to nearest at every layer vanish on their way back."""
_EVALUATION = 200
"""Images of an evaluation's batch."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What is trained on what.

    Parameters
    ----------
    network : :class:`Network`
    data : :class:`str`, optional
        Default of ``--data``.
    train_images, test_images : :class:`int`, optional
        So many, chosen by a hash; ``None`` is all.
    train : :class:`Training`
    seeds : tuple of :class:`int`
    contestants : tuple of :class:`str`
    overrides : dict
        Fields of ``train`` by contestant.
    exponent : :class:`int`
        Of the power of two by which the images are multiplied.
    """

    network: Network
    data: str | None
    train_images: int | None
    test_images: int | None
    train: Training
    seeds: tuple[int, ...]
    contestants: tuple[str, ...]
    overrides: dict[str, dict[str, Any]]
    exponent: int = 0

    def training(self, contestant: str) -> Training:
        return dataclasses.replace(self.train, **self.overrides.get(contestant, {}))

    def settings(self, data: Dataset) -> dict[str, Any]:
        """What a result depends on, for its record."""
        return {
            "network": self.network.name, "data": data.name, "sha256": data.digest(),
            "train_images": len(data.train_y), "test_images": len(data.test_y),
            "train": {key: value for key, value in vars(self.train).items() if value is not None}, "overrides": self.overrides,
        }


def _logistic(side: int) -> Network:
    return Network("logistic", (1, side, side), 10, (FullyConnected(name="fc", out=10),))


_SHIFT_RATE: dict[str, Any] = {"momentum": 0.0, "weight_decay": 0.0}
"""int8-shift has neither; its rate is the largest step of a weight."""


def _shift_rates(nearest: float, stochastic: float) -> dict[str, dict[str, Any]]:
    return {"int8-shift": _SHIFT_RATE | {"lr": nearest}, "int8-shift-stochastic": _SHIFT_RATE | {"lr": stochastic}}


EXPERIMENTS: dict[str, Experiment] = {
    "resnet20": Experiment(
        load_network("resnet20"), None, 2000, 1000,
        Training(batch=16, epochs=4, lr=0.02, momentum=0.9, weight_decay=2.0**-13, schedule="cosine"), (1, 2, 3), DEEP,
        _shift_rates(2.0**-7, 2.0**-7)),
    "resnet20-long": Experiment(
        load_network("resnet20"), None, 5000, 2000,
        Training(batch=16, epochs=8, lr=0.02, momentum=0.9, weight_decay=2.0**-13, schedule="cosine"), (1, 2, 3),
        ("fp32", "pint8"), {}),
    "vgg16": Experiment(
        load_network("vgg16"), None, 5000, 2000,
        Training(batch=16, epochs=4, lr=0.002, momentum=0.9, weight_decay=2.0**-13, schedule="cosine"), (1, 2, 3), DEEP,
        _shift_rates(2.0**-8, 2.0**-6)),
    "vgg16-quarter": Experiment(
        experiment_network("vgg16-quarter"), None, 2000, 1000,
        Training(batch=16, epochs=4, lr=0.002, momentum=0.9, weight_decay=2.0**-13, schedule="cosine"), (1, 2, 3), DEEP,
        _shift_rates(2.0**-8, 2.0**-6)),
    **{f"{name}-recipe": Experiment(
        load_network(name), None, None, None,
        Training(batch=128, epochs=200, lr=0.1, momentum=0.9, weight_decay=2.0**-13, schedule="cosine", warmup=5), (1,),
        ("fp32-bn", "fp32", "pint8"), {}) for name in ("resnet20", "vgg16")},
    "logistic": Experiment(
        _logistic(8), "digits", None, None, Training(batch=128, epochs=150, lr=0.1, momentum=0.9, schedule="linear"),
        (1, 2, 3, 4, 5), tuple(name for name in FORMATS if name != "fp32-bn"), {"int8-shift": _SHIFT_RATE | {"lr": 0.125}}),
    "mnist": Experiment(
        _logistic(28), None, None, None, Training(batch=128, epochs=15, lr=0.002, momentum=0.9, schedule="linear"),
        (1, 2, 3), tuple(name for name in FORMATS if name != "fp32-bn"), {"int8-shift": _SHIFT_RATE | {"lr": 0.125}}, exponent=-4),
    # As `gradloom train` does it by its defaults.
    "digits": Experiment(load_network("digits-cnn"), "digits", None, None, load_network("digits-cnn").train, tuple(range(1, 11)),
                         ("fp32-bn", "fp32", "pint8"), {}),
    "ablations": Experiment(
        load_network("digits-cnn"), "digits", None, None,
        Training(batch=16, epochs=3, lr=0.02, momentum=0.9, schedule="linear"), (1, 2, 3, 4, 5),
        ("fp32-bn", "fp32", "pint8", "pint8-stochastic", "pint8-nearest", "pint8-exact", "pint8-master16", "pint8-master32",
         "pint(8,1)", "pint(8,2)", "pint(8,4)", "pint(8,5)", "pint(7,3)", "pint(6,2)", "pint(5,2)", "int8-shift", "bfp8",
         "bfp8-nearest", "bfp8-swa"), {"int8-shift": _SHIFT_RATE | {"lr": 0.25}}),
}
"""By name."""


def subset(data: Dataset, train_images: int | None, test_images: int | None) -> Dataset:
    """The first images in the order of a hash."""
    def chosen(count: int | None, length: int, epoch: int) -> np.ndarray:
        order = epoch_order(length, 0, epoch)
        return np.sort(order[:count])

    train, test = chosen(train_images, len(data.train_y), 1), chosen(test_images, len(data.test_y), 2)
    return Dataset(data.name, data.train_x[train], data.train_y[train], data.test_x[test], data.test_y[test], data.exponent)


def train_once(experiment: Experiment, data: Dataset, contestant: str, seed: int, device: str = "cpu") -> dict[str, Any]:
    """A run on a PyTorch device: mean training loss and test accuracy (%) of every epoch, of long runs thirty of them."""
    train = experiment.training(contestant)
    per_epoch = len(data.train_y) // train.batch
    model = learner(CONTESTANTS[contestant], experiment.network, seed, data.exponent, train, per_epoch * train.epochs,
                    device)
    curve, every = [], max(1, train.epochs // 30)
    for epoch in range(train.epochs):
        order, losses = epoch_order(len(data.train_y), seed, epoch), []
        for place in range(per_epoch):
            chosen = order[place * train.batch : (place + 1) * train.batch]
            losses.append(model.train_step(data.train_x[chosen], data.train_y[chosen], epoch * per_epoch + place))
        if (epoch + 1) % every and epoch + 1 < train.epochs:
            continue
        parts = range(0, len(data.test_y), _EVALUATION)
        right = sum(int((model.outputs(data.test_x[at : at + _EVALUATION]).argmax(axis=1)
                         == data.test_y[at : at + _EVALUATION]).sum()) for at in parts)
        accuracy = 100 * right / len(data.test_y)
        curve.append({"epoch": epoch + 1, "loss": round(float(np.mean(losses)), 4), "accuracy": round(accuracy, 2)})
        print(f"  {contestant}, seed {seed}, epoch {epoch + 1} of {train.epochs}: loss {curve[-1]['loss']:.3f}, "
              f"test accuracy {accuracy:.2f} %", flush=True)
    return {"summary": f"test accuracy {curve[-1]['accuracy']:.2f} %", "accuracy": curve[-1]["accuracy"], "curve": curve,
            "sha256": model.digest()}


@told_in_a_sentence
def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.experiments.classify", description=__doc__)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--data", metavar="NAME|FILE", help="as of gradloom train")
    parser.add_argument("--only", metavar="NAME,...", help="of these contestants alone")
    parser.add_argument("--limit", type=int, metavar="N", help="stop after so many runs")
    parser.add_argument("--epochs", type=int, metavar="N", help="another length; give --results as well")
    parser.add_argument("--device", default="cpu", metavar="NAME", help="cpu, cuda or cuda:N of PyTorch (default: cpu)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="default: docs/results")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    experiment = EXPERIMENTS[options.experiment]
    if options.epochs is not None:
        experiment = dataclasses.replace(experiment, train=dataclasses.replace(experiment.train, epochs=options.epochs))
    check_torch_device(options.device)
    if options.data is None and experiment.data is None:
        source = "MNIST" if options.experiment == "mnist" else "CIFAR-10"
        raise UserError(f"experiment {options.experiment} trains on {source}: give its folder with --data")
    # Bytes as they are, as in the results that are kept; Experiment.exponent scales them where it matters.
    data = load_dataset(options.data or experiment.data or "", preparation=Preparation(divisor=1))
    shape = data.train_x.shape[1:]
    if options.experiment == "logistic":
        experiment = dataclasses.replace(experiment, network=dataclasses.replace(experiment.network, input_shape=shape))
    if shape != experiment.network.input_shape or data.classes > experiment.network.classes:
        wanted = f"images of {experiment.network.input_shape} and {experiment.network.classes} classes"
        raise UserError(f"experiment {options.experiment} takes {wanted}, data {data.name} has {shape} and {data.classes}: "
                        f"give fitting data")
    data = dataclasses.replace(data, exponent=data.exponent + experiment.exponent)
    data = subset(data, experiment.train_images, experiment.test_images)
    only = None if options.only is None else options.only.split(",")
    unknown = [name for name in only or () if name not in experiment.contestants]
    if unknown:
        raise UserError(f"--only: there is no contestant {unknown[0]!r}: give some of {', '.join(experiment.contestants)}")
    name = options.experiment if options.data is None or experiment.data is None else f"{options.experiment}-{data.name}"
    jobs = [(contestant, seed) for seed in experiment.seeds for contestant in experiment.contestants]
    store = Store(name, experiment.settings(data), options.results)
    store.run(jobs, lambda contestant, seed: train_once(experiment, data, contestant, seed, options.device), only=only,
              limit=options.limit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
