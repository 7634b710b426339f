"""Every example runs as its first lines say, in its own process, with warnings as errors; it prints what is expected."""

import ast
import importlib.util
import re
import subprocess
import sys

import pytest

from gradloom.verif.checkout import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SMALL = {"train_digits": ["12"]}
"""Arguments for less work."""
PRINTS = {
    "a_network_of_your_own": (
        r"small-resnet: \d+ commands, [\d,]+ bytes of memory\n"
        r"a step of 8 images takes [\d,]+ cycles \(estimated\), \d\d\.\d % of the multipliers' time is useful work\n"
        r"(  (stem|block1|block2|down|classes) +[\d,]+ cycles\n){5}slowest: [A-Z+ ]+ of \w+\n"
    ),
    "offload_digits": (
        r"layer  stage  place .*\n(\d      (FP|BP|WG)     device .*\n){5}all .*\n230 products, each equal to the CPU's\n"
        r"in float again: 3[1-6]\d of 360 test images\n"
    ),
    "pytorch_loop": (
        r"step 0: loss \d\.\d{4}, accuracy \d\.\d\d, \d+ cycles\n"
        r"step 1: loss \d\.\d{4}, accuracy \d\.\d\d, \d+ cycles\n"
        r"largest gradient of the first convolution: 0\.\d+\nthe trained network in float says \[\d, \d, \d, \d\]\n"
    ),
    "train_digits": (
        r"(gradloom: .*\n)+loss \d\.\d\d before, \d\.\d\d in step 12\n"
        r"SHA-256 of the parameters: [0-9a-f]{16}, the same on every device\n"
        r"report: runs/digits-cnn-small-1/report\.html\n"
        r"(  \w+\.\w+: \([\d, ]+\)\n){14}evaluated again: \d+ of 360 images\n"
    ),
    "verify_in_rtl": (
        r"golden +ready\n(.*\n)+3 steps: \d+ tensors, [\d,]+ bytes, not one differs\n"
        r"[\d,]+ cycles of the simulated machine, parameters [0-9a-f]{16}\n"
    ),
    "write_verilog": (
        r"my-machine: 9 multipliers, digest 0x[0-9a-f]{8}\nrefused: cols must be 1, 2, 4 or 8, not 3\n"
        r"(my-machine/[\w.]+: [\d,]+ bytes\n){5}"
    ),
}
EXTRAS = {"data": ("sklearn", "scikit-learn"), "torch": ("torch", "PyTorch")}
"""The module that an extra brings, and the module's own name in plain text."""


def extras(text: str) -> list[str]:
    """What an example says that it needs, in the line that installs it."""
    named = re.search(r"pip install 'gradloom\[([\w,]+)\]'", text)
    return named[1].split(",") if named else []


def test_every_example_is_known():
    assert [path.stem for path in EXAMPLES] == sorted(PRINTS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_it_runs(path):
    text = path.read_text()
    first, blank, *rest = text.splitlines()
    assert re.fullmatch(r'"""[A-Z].*\.', first) and blank == ""
    assert f"    python examples/{path.name}" in "\n".join(rest[:3])
    assert len([line for line in text.splitlines() if line.strip()]) < 50


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_names_the_extra_of_each_import(path):
    text = path.read_text()
    imported = {node.module if isinstance(node, ast.ImportFrom) else name.name
                for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom) for name in node.names}
    foreign = {name.split(".")[0] for name in imported} - sys.stdlib_module_names - {"gradloom"}
    assert foreign <= {EXTRAS[extra][0] for extra in extras(text)}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path):
    for extra in extras(path.read_text()):
        module, title = EXTRAS[extra]
        if importlib.util.find_spec(module) is None:
            # Skipped where an extra is missing, which the README's test command does without; CI runs it with the extra.
            pytest.skip(f"{title} is not installed (pip install 'gradloom[{extra}]')")
    command = [sys.executable, "-W", "error", str(path), *SMALL.get(path.stem, [])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(PRINTS[path.stem], done.stdout), done.stdout
