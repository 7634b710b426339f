"""The sections of docs/accuracy.md on all of CIFAR-10, from the runs that :mod:`gradloom.verif.experiments.losses` made.

``python -m gradloom.verif.experiments.losses_page FILE...`` keeps runs (``run-*.json``, or a campaign's ``runs.json``) as
``docs/results/accuracy-losses-NETWORK-EPOCHS.json``, beside those that are kept there already. One that was stopped is kept, too.
"""

import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradloom.host.files import UserError, write_json, write_text
from gradloom.verif.experiments.curves import draw
from gradloom.verif.experiments.refusals import told_in_a_sentence
from gradloom.verif.experiments.results import RESULTS, load_results

__all__ = ["SECTIONS", "keep", "losses_section", "main"]

Run = Mapping[str, Any]
"""As it is recorded."""

_BESIDE = """\
`python -m gradloom.verif.experiments.losses --data FOLDER --variants fp32,product --seed SEED --epochs 30 --batch 256 --device cuda
--sums float32 --out FOLDER`: ResNet20 on all 50,000 training images with random crops and flips, 30 epochs, batch 256, rate 0.1
(cosine, 3 epochs of warm-up), momentum 0.9, weight decay 2^-12. "product" is the machine's arithmetic of today. FP32 has the same
L1-FRN, TLU, initial weights, images and order; sums of convolutions of "product" are in float32, where single low bits differ from
the machine's. Trained on one H200, runs beside each other; what was trained elsewhere says so in the record, epoch by epoch: the
last epochs of "product" are from a CPU. Test images were looked at once, after the last epoch. No setting was chosen by them here;
the recipe is that of "What PINT8 lost" below. In each of the three seeds PINT8 ends
where FP32 ends, 0.006 of its training loss behind at most: the seeds of FP32 alone lie 0.013 apart.

The state of PINT8's seed 1 after all epochs is kept, and every device goes on from it:
`gradloom eval --network resnet20 --weights docs/results/trained/resnet20-30-epochs.npz --data FOLDER --normalise channel --device
emulator --batch 250` says 82.96 % (exact sums). A step of 64 images from there on `eta`, in RTL (`gradloom verify --config
eta --normalise channel --batch 64 --steps 1 --lr 0.001 --weight-decay 0.000244140625 --dram-bytes-per-cycle 149` with the same
network, weights and data), equals the golden model in 480 tensors of 67,123,181 bytes, in 4,629,972 simulated cycles."""
_VGG16 = """\
`... losses --network vgg16 --variants fp32,product --epochs 10 --lr 0.05 --weight-decay 0.00048828125 ...`, otherwise as above. The
lease of the GPU ended before three of the four runs did, and their states were not brought back: what is left is the loss up to
there, which says how far PINT8 is behind FP32 in one epoch, and no accuracy."""
_QUARTER = """\
`... losses --network vgg16-quarter --variants fp32,product --epochs 15 --lr 0.05 --weight-decay 0.00048828125 ...`: VGG16 with a
quarter of the channels of every layer but the last, which a processor core trains in half an hour; otherwise as above. Trained on a
CPU, one run at a time. Test images were looked at once, after the last epoch. FP32 has one seed so far; both seeds of PINT8 end
within 0.0061 of its loss. The state of PINT8's seed 1 after all epochs is kept: `gradloom eval --network
docs/results/trained/vgg16-quarter.toml --weights docs/results/trained/vgg16-quarter-15-epochs.npz --data FOLDER --normalise
channel --device emulator --batch 250` says 73.72 % (exact sums). A step of 16 images from there on `eta`, in RTL (`gradloom verify
--config eta --normalise channel --batch 16 --steps 1 --lr 0.001 --weight-decay 0.00048828125 --dram-bytes-per-cycle 149` with the
same network, weights and data), equals the golden model in 367 tensors of 16,521,585 bytes, in 1,089,424 simulated cycles."""
_LOSES = """\
`python -m gradloom.verif.experiments.losses --data FOLDER --variants VARIANT --seed SEED --epochs 22 --batch 256 --device cuda
--sums float32 --out FOLDER`: ResNet20 on all 50,000 training images with random crops and flips, 22 epochs, batch 256, rate 0.1
(cosine, 3 epochs of warm-up), momentum 0.9, weight decay 2^-12, on one H200; sums of convolutions in float32, where single low
bits differ from the machine's. Everything departs from PINT8 one thing at a time; FP32 has the same L1-FRN, TLU, initial weights,
images and order. The training loss of the last epoch tells more than test accuracy, which moves by 0.8 points between equal runs.

"mean": the mean of section 9 of [arithmetic](arithmetic.md) rounded to nearest instead of down. In an earlier run of the same
recipe with other crops, whose program was not kept, PINT8 as it was ended at 0.5477, "mean" at 0.4850 and FP32 at 0.4454. So more
than half of what 8 bits lose there is that one floor, a decay of all convolutions' weights that nobody commanded, and the rest is
the weights' own 8 bits: with wide masters that are never rounded stochastically ("master32", weights to nearest from them), or
weights of 16 bits, PINT8 trains as FP32 does, in loss (0.002 and 0.013 behind it in the two seeds) and in accuracy. Features with
16 bits change little, errors before a convolution with 16 bits nothing that two seeds would show; rounded stochastically they bring
a third of what is left. So the mean is rounded to nearest now, on the machine too, and weights have a rest of 8 bits that moves on
with them ([error feedback](decisions/0002-exact-integers.md)): a weight of 16 bits, of which everything but the update sees 8.
"PINT8" in this section is what was before; what is now is the variant "product" of the first section."""
SECTIONS = {
    "losses-resnet20-30": ("PINT8 beside FP32, ResNet20 on all of CIFAR-10", _BESIDE),
    "losses-vgg16-10": ("PINT8 beside FP32, VGG16 on all of CIFAR-10", _VGG16),
    "losses-vgg16-quarter-15": ("PINT8 beside FP32, VGG16 with a quarter of its channels on all of CIFAR-10", _QUARTER),
    "losses-resnet20-22": ("What PINT8 lost", _LOSES),
}
"""Title and text by the experiment's name, in their order."""
_LABEL = "training loss less FP32's in that epoch"
_WHAT = {
    "fp32": "FP32", "product": "PINT8, as the machine computes", "mean": "PINT8 as it was, mean rounded",
    "mean+dx16": "... and errors before a convolution with 16 bits", "mean+dxrandom": "... and these rounded stochastically",
    "mean+acts16": "... and features with 16 bits", "mean+weights16": "... and weights with 16 bits",
    "mean+master32": "... and wide masters, weights to nearest"}
_NOISY_EPOCHS = 4
"""First epochs that the figure leaves out."""


def losses_section(results: Mapping[str, Any], figures: Path) -> list[str]:
    """Lines of the page; writes its figure."""
    name, runs = results["experiment"], results["runs"]
    title, text = SECTIONS[name]
    lines = ["| variant | what | seed | training loss, last epoch | less FP32's | test accuracy, % |", "|---|---|---|---|---|---|"]
    behind = _behind(runs)
    series: dict[str, dict[int, list[float]]] = {}
    for run in runs:
        variant, seed, last = run["variant"], run["seed"], run["curve"][-1]
        cut = "" if last["epoch"] == run["epochs"] else f" (epoch {last['epoch']} of {run['epochs']})"
        away = "" if variant == "fp32" else f"{behind(run, last):+.4f}"
        accuracy = "" if run["test_accuracy"] is None else f"{100 * run['test_accuracy']:.2f}"
        lines.append(f"| `{variant}` | {_WHAT.get(variant, '')} | {seed} | {last['loss']:.4f}{cut} | {away} | {accuracy} |")
        for point in run["curve"][_NOISY_EPOCHS:]:
            series.setdefault(variant, {}).setdefault(point["epoch"], []).append(behind(run, point))
    figure = f"accuracy-{name}.svg"
    write_text(figures / figure, draw({name: list(points.items()) for name, points in series.items()}, "epoch", _LABEL))
    means = _means(runs)
    return [f"## {title}", "", text, "", *lines, "", *means, f"![{_LABEL}](figures/{figure})", ""]


def _behind(runs: Sequence[Run]) -> Callable[[Run, Mapping[str, Any]], float]:
    """How far an epoch of a run is behind FP32 of its seed, or behind the mean of all seeds where its own was not run so far."""
    exact: dict[int, dict[int, float]] = {}
    for run in runs:
        if run["variant"] == "fp32":
            for point in run["curve"]:
                exact.setdefault(point["epoch"], {})[run["seed"]] = point["loss"]

    def found(run: Run, point: Mapping[str, Any]) -> float:
        losses = exact[point["epoch"]]
        # FP32 itself beside the mean of its seeds, so that the figure shows their spread.
        own = losses.get(run["seed"]) if run["variant"] != "fp32" else None
        return float(point["loss"] - (statistics.mean(losses.values()) if own is None else own))

    return found


def _means(runs: Sequence[Run]) -> list[str]:
    """Mean test accuracy and its standard error, of variants with several finished seeds."""
    found: dict[str, list[float]] = {}
    for run in runs:
        if run["test_accuracy"] is not None:
            found.setdefault(run["variant"], []).append(100 * run["test_accuracy"])
    texts = [f"`{variant}` {statistics.mean(values):.2f} % (standard error {statistics.stdev(values) / len(values) ** 0.5:.2f}, "
             f"{len(values)} seeds)" for variant, values in found.items() if len(values) > 1]
    return [f"Mean test accuracy: {'; '.join(texts)}.", ""] if texts else []


def keep(files: Sequence[Path], folder: Path = RESULTS) -> None:
    """Keep the runs of these files; one of the same variant and seed takes the place of the one that was kept.

    Raises
    ------
    :exc:`UserError`
        If a file cannot be read or holds no runs.
    """
    found: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for file in files:
        try:
            table = json.loads(file.read_text())
            for run in table.get("runs", [table]):
                if run["curve"]:
                    found.setdefault(f"losses-{run['network']}-{run['epochs']}", {})[run["variant"], run["seed"]] = run
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = type(error).__name__
            raise UserError(f"{file} holds no runs of losses or campaign ({why}): give run-*.json or runs.json") from None
    for name, runs in found.items():
        kept = {(run["variant"], run["seed"]): run for run in (load_results(name, folder) or {"runs": []})["runs"]} | runs
        # FP32 first, which the others are set beside.
        ordered = [kept[key] for key in sorted(kept, key=lambda key: (key[0] != "fp32", *key))]
        write_json(folder / f"accuracy-{name}.json", {"experiment": name, "runs": ordered})


@told_in_a_sentence
def main(arguments: Sequence[str] | None = None) -> int:
    keep([Path(text) for text in (sys.argv[1:] if arguments is None else arguments)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
