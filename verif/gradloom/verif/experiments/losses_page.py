"""The section of docs/accuracy.md on what PINT8 loses, from the runs that :mod:`gradloom.verif.experiments.losses` made.

``python -m gradloom.verif.experiments.losses_page FILE...`` keeps finished runs (``run-*.json``, or a campaign's ``runs.json``) as
``docs/results/accuracy-losses-NETWORK.json``, beside those that are kept there already.
"""

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradloom.host.files import UserError, write_json, write_text
from gradloom.verif.experiments.curves import draw
from gradloom.verif.experiments.refusals import told_in_a_sentence
from gradloom.verif.experiments.results import RESULTS, load_results

__all__ = ["keep", "losses_section", "main"]

_TEXT = """\
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
with them ([error feedback](decisions/0043-error-feedback.md)): a weight of 16 bits, of which everything but the update sees 8.
"PINT8" in this section is what was before; what is now, the variant "product", has not been run over 22 epochs yet."""
_LABEL = "training loss less the mean of FP32's in that epoch"
_WHAT = {
    "fp32": "FP32", "mean": "PINT8, mean rounded", "mean+dx16": "... and errors before a convolution with 16 bits",
    "mean+dxrandom": "... and these rounded stochastically", "mean+acts16": "... and features with 16 bits",
    "mean+weights16": "... and weights with 16 bits", "mean+master32": "... and wide masters, weights to nearest"}


def losses_section(results: dict[str, Any], figures: Path) -> list[str]:
    """Lines of the page; writes its figure."""
    runs: list[dict[str, Any]] = results["runs"]
    lines = ["| variant | what | seed | training loss, last epoch | test accuracy, % |", "|---|---|---|---|---|"]
    exact: dict[int, list[float]] = {}
    for run in runs:
        if run["variant"] == "fp32":
            for point in run["curve"]:
                exact.setdefault(point["epoch"], []).append(point["loss"])
    series: dict[str, dict[int, list[float]]] = {}
    for run in runs:
        name = run["variant"]
        lines.append(f"| `{name}` | {_WHAT.get(name, '')} | {run['seed']} | {run['curve'][-1]['loss']:.4f} | "
                     f"{100 * run['test_accuracy']:.2f} |")
        points = series.setdefault(name, {})
        for point in run["curve"][4:]:
            behind = point["loss"] - statistics.mean(exact[point["epoch"]])
            points.setdefault(point["epoch"], []).append(behind)
    figure = f"accuracy-{results['experiment']}.svg"
    write_text(figures / figure, draw({name: list(points.items()) for name, points in series.items()}, "epoch", _LABEL))
    return ["## What PINT8 loses", "", _TEXT, "", *lines, "", f"![{_LABEL} by epoch](figures/{figure})", ""]


def keep(files: Sequence[Path], folder: Path = RESULTS) -> None:
    """Keep the finished runs of these files; a run of the same variant and seed takes the place of the one that was kept.

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
                if run["test_accuracy"] is not None:
                    found.setdefault(run["network"], {})[run["variant"], run["seed"]] = run
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = type(error).__name__
            raise UserError(f"{file} holds no runs of losses or campaign ({why}): give run-*.json or runs.json") from None
    for network, runs in found.items():
        name = f"losses-{network}"
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
