"""Training images a second of the exact emulator, beside plain FP32 training of the same network in PyTorch.

``python -m gradloom.verif.throughput`` prints both and their ratio, and writes docs/results/emulator-throughput.json, or
docs/results/emulator-throughput-cuda.json with ``--device cuda``. The FP32 network has the same layers (L1-FRN and TLU in float32,
autograd, ``torch.optim.SGD``), images, batch and threads; matrix products of a GPU are of float32, not of TF32.
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from gradloom.host.files import write_json
from gradloom.models.arithmetic import pint
from gradloom.models.emulator.step import Emulator
from gradloom.models.golden.step import Hyper
from gradloom.models.network import load_network
from gradloom.models.state import State
from gradloom.verif.checkout import DOCS
from gradloom.verif.float_network import FloatNetwork

__all__ = ["measure"]

INPUT_EXPONENT = -11
LEARNING_RATE, MOMENTUM = 0.02, 0.9
RESULTS = DOCS / "results" / "emulator-throughput.json"


def _seconds(step: Callable[[], object], repeats: int, device: str) -> list[float]:
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    found = []
    for _ in range(repeats):
        wait()
        began = time.perf_counter()
        step()
        wait()
        found.append(time.perf_counter() - began)
    return found


def measure(name: str, batch: int, threads: int, repeats: int, device: str = "cpu") -> dict[str, Any]:
    """Images per second of both, and their ratio.

    The two take turns, so that a busy machine slows both; a figure is the median of its steps. FP32 runs with
    channels last in memory or first, whichever is faster.
    """
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    net = load_network(name)
    state = State.initial(net, 1, INPUT_EXPONENT)
    rng = np.random.default_rng(1)
    x = pint.encode(rng.integers(-4096, 4096, (batch, *net.input_shape)), 0).code
    labels = rng.integers(0, net.classes, batch)
    emulator, hyper = Emulator(net, state, device), Hyper.from_floats(LEARNING_RATE, MOMENTUM)
    images = torch.from_numpy(np.ldexp(pint.decode(x).astype(np.float32), INPUT_EXPONENT)).to(device)
    targets = torch.from_numpy(labels).to(device)

    def fp32(memory_format: torch.memory_format) -> Callable[[], object]:
        module = FloatNetwork(net, state).to(device)
        module.to(memory_format=memory_format)  # type: ignore[call-overload]  # torch's type stubs lack this argument
        optimizer = torch.optim.SGD(module.parameters(), LEARNING_RATE, MOMENTUM)
        placed = images.contiguous(memory_format=memory_format)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(module(placed), targets).backward()
            optimizer.step()

        return step

    steps: dict[str, Callable[[], object]] = {
        "emulator": lambda: emulator.train_step(x, labels, hyper),
        "channels last": fp32(torch.channels_last),
        "channels first": fp32(torch.contiguous_format),
    }
    times: dict[str, list[float]] = {key: [] for key in steps}
    for step in steps.values():
        _seconds(step, 3, device)
    for _ in range(repeats):
        for key, step in steps.items():
            times[key] += _seconds(step, 1, device)
    seconds = {key: statistics.median(found) for key, found in times.items()}
    layout = min(("channels last", "channels first"), key=lambda key: seconds[key])
    return {
        "network": name, "batch": batch, "threads": threads, "steps": repeats, "fp32_layout": layout,
        "emulator_images_per_second": batch / seconds["emulator"], "fp32_images_per_second": batch / seconds[layout],
        "ratio": seconds[layout] / seconds["emulator"],
        "machine": torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor() or platform.machine(),
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.throughput", description=__doc__)
    parser.add_argument("--network", nargs="+", default=["resnet20", "vgg16", "digits-cnn"], metavar="NAME|FILE")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu", metavar="NAME", help="cpu, cuda or cuda:N of PyTorch (default: cpu)")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    far = options.device != "cpu"
    runs = []
    for name in options.network:
        found = measure(name, options.batch, options.threads, options.steps, options.device)
        rates = [f"{title} {found[key]:.0f} images/s" for title, key in (
            ("emulator", "emulator_images_per_second"), ("FP32", "fp32_images_per_second"))]
        print(f"{name}, batch {found['batch']}, threads {found['threads']}: {', '.join(rates)} ({found['fp32_layout']}), "
              f"ratio {found['ratio']:.2f}", flush=True)
        runs.append(found)
    write_json(options.out or (RESULTS.with_stem(f"{RESULTS.stem}-cuda") if far else RESULTS), {"runs": runs})


if __name__ == "__main__":
    main()
