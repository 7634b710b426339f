"""Fox's detector of anomalies in frequency-modulated radio signals (section V) in every number format.

``python -m gradloom.verif.experiments.radio`` writes ``docs/results/accuracy-radio.json``. An auto-encoder learns online to
reconstruct windows of normal signals from few numbers, a new batch of 1000 windows every iteration, with the squared error
against its own input; a window whose error exceeds a threshold is an anomaly. The threshold is the 90th percentile of the errors
of normal windows that are neither trained on nor tested.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradloom.host.datasets.data import quantise
from gradloom.models.arithmetic import pint
from gradloom.models.layers import FullyConnected, Training
from gradloom.models.network import Network
from gradloom.verif.experiments.contestants import CONTESTANTS, learner
from gradloom.verif.experiments.radio_data import ANOMALIES, SAMPLES, anomalous, normal, windows
from gradloom.verif.experiments.refusals import told_in_a_sentence
from gradloom.verif.experiments.results import RESULTS, Store

__all__ = ["NETWORK", "f1_score", "main"]

BATCH, ITERATIONS, EVERY = 1000, 1000, 50
SEEDS = (1, 2, 3)
FORMATS = ("fp32", "pint8", "pint8-master16", "int8-shift", "bfp8", "bfp8-swa")
TRAIN = Training(batch=BATCH, epochs=1, lr=0.03, momentum=0.9, schedule="constant")
OVERRIDES: dict[str, dict[str, Any]] = {"int8-shift": {"lr": 0.0625, "momentum": 0.0, "schedule": "linear"}}
QUANTILE = 0.9
TESTED = 1500
"""Normal windows of the test, and as many anomalies."""
NETWORK = Network(
    "radio-autoencoder", (2, 1, SAMPLES), 2 * SAMPLES,
    (FullyConnected(name="encode1", out=32, act="relu"), FullyConnected(name="encode2", out=16, act="relu"),
     FullyConnected(name="decode1", out=32, act="relu"), FullyConnected(name="decode2", out=2 * SAMPLES)),
    loss="squared", train=TRAIN)


def f1_score(errors: np.ndarray, truth: np.ndarray, threshold: float) -> float:
    """2 TP / (2 TP + FP + FN) of ``errors > threshold`` against the anomalies."""
    found = errors > threshold
    hits, false, missed = (found & truth).sum(), (found & ~truth).sum(), (~found & truth).sum()
    return float(2 * hits / (2 * hits + false + missed))


def _signals() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Codes: a training stream, windows for the threshold, test windows; kind of each test window (-1: normal); exponent."""
    stream, held_out, good = normal(100, 40 * BATCH), normal(200, BATCH), normal(300, TESTED)
    bad, kind = anomalous(400, TESTED)
    codes, exponent = quantise(windows(np.concatenate([stream, held_out, good, bad])))
    first, second = len(stream), len(stream) + len(held_out)
    return codes[:first], codes[first:second], codes[second:], np.concatenate([np.full(TESTED, -1), kind]), exponent


def detect(contestant: str, seed: int, signals: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]) -> dict[str, Any]:
    """A run: F1 score and mean error of normal windows along the iterations; the share of every anomaly that is found."""
    stream, held_out, test, kind, exponent = signals
    train = TRAIN if contestant not in OVERRIDES else Training(**(vars(TRAIN) | OVERRIDES[contestant]))
    model = learner(CONTESTANTS[contestant], NETWORK, seed, exponent, train, ITERATIONS)

    def errors(codes: np.ndarray) -> np.ndarray:
        real = np.ldexp(pint.decode(codes).astype(np.float64), exponent).reshape(len(codes), -1)
        return ((model.outputs(codes) - real) ** 2).mean(axis=1)

    curve, shares = [], {}
    for iteration in range(1, ITERATIONS + 1):
        # Seeds see the stream from another place.
        place = (iteration + 7 * seed) % 40 * BATCH
        codes = stream[place : place + BATCH]
        targets = np.ldexp(pint.decode(codes).astype(np.float64), exponent).reshape(BATCH, -1)
        model.train_step(codes, targets, iteration - 1)
        if iteration % EVERY == 0 or iteration == 1:
            threshold, found = float(np.quantile(errors(held_out), QUANTILE)), errors(test)
            score = f1_score(found, kind >= 0, threshold)
            curve.append({"iteration": iteration, "f1": round(score, 4), "error": round(float(found[kind < 0].mean()), 5)})
            shares = {name: round(float((found > threshold)[kind == number].mean()), 3) for number, name in enumerate(ANOMALIES)}
    last = curve[-1]["f1"]
    return {"summary": f"F1 {last:.3f}", "f1": last, "found": shares, "curve": curve, "sha256": model.digest()}


@told_in_a_sentence
def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.experiments.radio", description=__doc__)
    parser.add_argument("--limit", type=int, metavar="N", help="stop after so many runs")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="default: docs/results")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    settings = {"network": NETWORK.name, "iterations": ITERATIONS, "train": vars(TRAIN), "overrides": OVERRIDES, "test": 2 * TESTED}
    store = Store("radio", settings, options.results)
    signals = _signals()
    store.run([(c, s) for s in SEEDS for c in FORMATS], lambda c, s: detect(c, s, signals), limit=options.limit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
