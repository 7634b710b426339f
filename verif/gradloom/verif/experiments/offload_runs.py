"""PyTorch models that train with their products on a matrix machine in RTL, beside its software twin and beside float32.

``python -m gradloom.verif.experiments.offload_runs TASK --config NAME`` (docs/offload.md) trains a task's model three times, from
the same parameters and on the same batches: in PyTorch's float32, with its products on the twin, and with them in simulated
hardware, where every product is compared with the CPU's. It keeps a line in ``docs/results/offload.json``; ``--table`` prints what
is kept.
"""

import argparse
import dataclasses
import hashlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gradloom.host.commands.cli_arguments import positive
from gradloom.host.files import write_json
from gradloom.host.offload.matrix_device import MatrixDevice, RtlDevice, TwinDevice, load_matrix_config
from gradloom.host.offload.offloaded import offload
from gradloom.verif.checkout import DOCS
from gradloom.verif.experiments.radio_data import normal
from gradloom.verif.experiments.refusals import told_in_a_sentence

__all__ = ["KEPT", "TASKS", "Task", "main", "run_task", "table"]

KEPT = DOCS / "results" / "offload.json"
_SEED = 1
Batch = tuple[Tensor, Tensor]


@dataclasses.dataclass(frozen=True)
class Task:
    """What is trained on what.

    Parameters
    ----------
    title : :class:`str`
    config : :class:`str`
        Machine unless another one is named.
    steps : :class:`int`
    model : callable
        Makes it.
    optimizer : callable
        Of its parameters.
    batches : callable
        Endless; the same each time.
    loss : callable
        Of output and answer.
    score : callable
        Of the trained model: a name and a number.
    """

    title: str
    config: str
    steps: int
    model: Callable[[], nn.Module]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    batches: Callable[[], Iterator[Batch]]
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[nn.Module], tuple[str, float]]


def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.tensor(found.images, dtype=torch.float32) / 16, torch.tensor(found.target)


def _shuffled(x: Tensor, y: Tensor, batch: int) -> Iterator[Batch]:
    order = np.random.default_rng(_SEED)
    while True:
        for part in torch.from_numpy(order.permutation(len(x))).split(batch):
            if len(part) == batch:
                yield x[part], y[part]


def _flat_digits(batch: int) -> Callable[[], Iterator[Batch]]:
    def found() -> Iterator[Batch]:
        x, y = _digits()
        return _shuffled(x[360:].flatten(1), y[360:], batch)

    return found


@torch.no_grad()
def _digits_right(model: nn.Module) -> tuple[str, float]:
    x, y = _digits()
    return "test accuracy, %", 100 * float((model(x[:360].flatten(1)).argmax(1) == y[:360]).float().mean())


def _large_digits() -> Iterator[Batch]:
    """The scans as images of 3 x 32 x 32."""
    x, y = _digits()
    large = x[:, None].repeat_interleave(4, 2).repeat_interleave(4, 3).expand(-1, 3, -1, -1)
    return _shuffled(large, y, 4)


def _resnet() -> nn.Module:
    from torchvision.models import resnet18

    found: nn.Module = resnet18(num_classes=10)
    return found


def _windows(seed: int, count: int) -> Tensor:
    """I and Q of 16 samples of a frequency-modulated carrier."""
    signal = normal(seed, count)[:, :16]
    return torch.tensor(np.concatenate([signal.real, signal.imag], 1), dtype=torch.float32)


def _radio() -> Iterator[Batch]:
    x = _windows(100, 8000)
    return _shuffled(x, x, 1000)


def _autoencoder() -> nn.Module:
    sizes = (32, 16, 8, 16, 32)
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


@torch.no_grad()
def _error(model: nn.Module) -> tuple[str, float]:
    x = _windows(900, 1000)
    return "mean squared error of new windows", float(functional.mse_loss(model(x), x))


TASKS = {
    "regression": Task("logistic regression, 64-10, batch 128, SGD", "fox-8", 110, lambda: nn.Linear(64, 10),
                       lambda p: torch.optim.SGD(p, 0.5), _flat_digits(128), functional.cross_entropy, _digits_right),
    "radio": Task("auto-encoder of Fox et al., 32-16-8-16-32, batch 1000, Adam", "fox-8", 200, _autoencoder,
                  lambda p: torch.optim.Adam(p, 0.01), _radio, functional.mse_loss, _error),
    "mlp": Task("perceptron, 64-128-10, batch 64, Adam", "barista-8x8x32", 66,
                lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), lambda p: torch.optim.Adam(p, 0.003),
                _flat_digits(64), functional.cross_entropy, _digits_right),
    "resnet18": Task("torchvision's ResNet18, 3 x 32 x 32, batch 4, Adam", "fox-16", 2, _resnet,
                     lambda p: torch.optim.Adam(p, 0.001), _large_digits, functional.cross_entropy,
                     lambda model: ("parameters", float(sum(p.numel() for p in model.parameters())))),
}


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()[:16]


def _trained(task: Task, steps: int, device: MatrixDevice | None, format: str) -> dict[str, Any]:
    """Losses of the first and the last steps, score, digest, and what a device did."""
    torch.manual_seed(_SEED)
    model = task.model()
    optimizer, batches, losses = task.optimizer(model.parameters()), task.batches(), []
    begin = time.perf_counter()
    offloaded = None if device is None else offload(model, format=format, device=device, check=True)
    for _ in range(steps):
        x, y = next(batches)
        optimizer.zero_grad()
        loss = task.loss(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]  # torch declares it without types
        optimizer.step()
        losses.append(float(loss.detach()))
    seconds = time.perf_counter() - begin
    found: dict[str, Any] = {"images_per_second": round(steps * len(x) / seconds, 2), "first_loss": round(losses[0], 5),
                             "last_loss": round(losses[-1], 5), "digest": _digest(model)}
    if offloaded is not None:
        found["products"] = offloaded.checked
        found["macs"] = sum(line.macs for line in offloaded.lines)
        offloaded.restore()
    name, score = task.score(model)
    return found | {"score": name, "value": round(score, 5)}


def run_task(name: str, config: str | None = None, steps: int | None = None, format: str = "bfp8") -> dict[str, Any]:
    """Train a task's model in float32, on the twin and in RTL; a line to keep.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If a product of either device is not the CPU's.
    :exc:`AssertionError`
        If the two devices end with other parameters.
    """
    task = TASKS[name]
    steps, machine = steps or task.steps, config or task.config
    macs = load_matrix_config(machine).macs
    exact, twin = _trained(task, steps, None, format), _trained(task, steps, TwinDevice(), format)
    device = RtlDevice(machine)
    try:
        found = _trained(task, steps, device, format)
        cycles, useful = device.cycles, found["macs"]
    finally:
        device.close()
    assert found["digest"] == twin["digest"], f"{name}: {machine} ends with {found['digest']}, its twin with {twin['digest']}"
    return {"task": name, "title": task.title, "machine": machine, "macs": macs, "format": format, "steps": steps, "float32": exact,
            "twin": twin, "rtl": found | {"cycles": cycles, "use": round(useful / (cycles * macs), 4)}}


def table(kept: Sequence[dict[str, Any]]) -> str:
    """Markdown."""
    lines = ["| model | machine | steps | products, each equal to the CPU's | loss, first and last step | score "
             "| the same in float32 | cycles a step | use of the MACs | images a second, twin and RTL |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for run in kept:
        rtl, exact, twin = run["rtl"], run["float32"], run["twin"]
        lines.append(f"| {run['title']} | `{run['machine']}` | {run['steps']} | {rtl['products']:,} | {rtl['first_loss']:.4f}, "
                     f"{rtl['last_loss']:.4f} | {_score(rtl)} | {_score(exact)} | {rtl['cycles'] // run['steps']:,} | "
                     f"{100 * rtl['use']:.0f} % | {twin['images_per_second']:,.0f}, {rtl['images_per_second']:,.1f} |")
    return "\n".join(lines)


def _score(found: dict[str, Any]) -> str:
    return "" if found["score"] == "parameters" else f"{found['value']:.4g} ({found['score']})"


def _kept(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())) if path.is_file() else []


@told_in_a_sentence
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.experiments.offload_runs", description=__doc__)
    parser.add_argument("task", choices=TASKS, nargs="?")
    parser.add_argument("--config", metavar="NAME|FILE")
    parser.add_argument("--steps", type=positive)
    parser.add_argument("--out", type=Path, default=KEPT, metavar="FILE")
    parser.add_argument("--table", action="store_true", help="print what is kept, and stop")
    options = parser.parse_args(arguments)
    kept = _kept(options.out)
    if options.task is not None and not options.table:
        run = run_task(options.task, options.config, options.steps)
        kept = [other for other in kept if other["task"] != options.task] + [run]
        kept.sort(key=lambda other: list(TASKS).index(other["task"]))
        write_json(options.out, kept)
    print(table(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
