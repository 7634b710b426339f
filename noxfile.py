"""Sessions beyond the README's two commands.

``nox -s lint types tests docs package coverage formal synth resources matrix boards emulator faults fuzz mutants eta bench``
"""

import re
import tempfile
import zipfile
from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "tests"]
nox.options.reuse_existing_virtualenvs = True


@nox.session
def lint(session: nox.Session) -> None:
    """ruff over everything."""
    session.install("ruff>=0.9")
    session.run("ruff", "check", "rtl", "sim", "verif", "models", "host", "boards", "docs", "examples", "noxfile.py")


@nox.session
def types(session: nox.Session) -> None:
    """mypy over the typed packages."""
    session.install("-e", ".[test,torch,onnx]", "mypy>=1.13")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """The whole test suite, as the README's second command."""
    session.install("-e", ".[data,test,formal]")
    session.run("pytest", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation's site, in build/docs; a warning is an error. Links to sources lead to the address GRADLOOM_REPOSITORY, or
    to copies without one."""
    session.install("-e", ".[docs]")
    session.run("sphinx-build", "-q", "-W", "--keep-going", "-d", "build/docs-trees", "-b", "html", "docs", "build/docs")
    session.log("open build/docs/index.html")


@nox.session
def package(session: nox.Session) -> None:
    """Wheel and sdist, each installed by itself where no checkout is in reach, and a user's first commands there; some minutes.

    From the wheel the machine trains in simulation, with nothing in the cache; from the sdist the golden model trains to the same
    parameters.
    """
    session.install("build>=1.2")
    with tempfile.TemporaryDirectory(prefix="gradloom-package-") as folder:
        place = Path(folder)
        session.run("python", "-m", "build", "--outdir", str(place / "dist"))
        (wheel,), (sdist,) = (place / "dist").glob("*.whl"), (place / "dist").glob("*.tar.gz")
        _check_files(session, wheel)
        digests = {device: _first_commands(session, built, place / device, device)
                   for built, device in ((wheel, "rtl"), (sdist, "golden"))}
    if len(set(digests.values())) != 1:
        session.error(f"the parameters differ: {digests}")


def _check_files(session: nox.Session, wheel: Path) -> None:
    """Every file of the packages is in the wheel: schedules, networks, C++ and Verilog beside the modules."""
    files = {path.relative_to(root) for root in ("rtl", "sim", "verif", "models", "host", "boards")
             for path in Path(root, "gradloom").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        missing = {path.as_posix() for path in files} - set(archive.namelist())
    if missing:
        session.error(f"the wheel lacks {', '.join(sorted(missing))}")


def _first_commands(session: nox.Session, built: Path, place: Path, device: str) -> str:
    """The start of the parameters' digest after three steps on the device."""
    place.mkdir()
    session.run("python", "-m", "venv", str(place / "venv"))
    environment = {"XDG_CACHE_HOME": str(place / "cache"), "PYTHONPATH": None}

    def run(program: str, *arguments: str) -> str:
        path = str(place / "venv" / "bin" / program)
        return str(session.run(path, *arguments, external=True, env=environment, silent=True, stderr=None))

    run("python", "-m", "pip", "install", "-q", f"{built}[data]")
    with session.chdir(place):
        run("python", "-c", "import sys, gradloom.host.cli as cli; assert cli.__file__.startswith(sys.prefix), cli.__file__")
        session.log(run("gradloom", "doctor"))
        session.log(run("gradloom", "verilog", "--config", "nano", "--package", "--out", "nano"))
        said = run("gradloom", "train", "--network", "digits-cnn", "--config", "small", "--device", device, "--steps", "3")
        session.log(said)
    found = re.search(r"parameters ([0-9a-f]+)", said)
    if found is None:
        session.error("gradloom train names no parameters")
    return found[1]


@nox.session
def formal(session: nox.Session) -> None:
    """Every proof and every planted bug of the formal specifications, the long ones too."""
    session.install("-e", ".[test,formal]")
    session.run("pytest", "--long", "verif/tests/formal", *session.posargs)


@nox.session
def synth(session: nox.Session) -> None:
    """Every component and the nano core for ECP5, the parts of eta and eta2x for the Xilinx 7 series, which writes
    docs/synthesis*.md; then the netlists of parts under the benches of their RTL."""
    session.install("-e", ".[test,fpga]")
    if session.posargs:
        session.run("python", "-m", "gradloom.verif.synth", *session.posargs)
        return
    session.run("python", "-m", "gradloom.verif.synth")
    for machine in ("eta", "eta2x", "docs/results/eta2x-double-pumped.toml"):
        session.run("python", "-m", "gradloom.verif.synth_xc7", "--config", machine)
    session.run("python", "-m", "gradloom.verif.netlists")


@nox.session
def matrix(session: nox.Session) -> None:
    """PyTorch models with their products on matrix machines in RTL, resources of these machines, and the fair bench: what
    docs/systems.md and docs/matrix.md show."""
    session.install("-e", ".[test,fpga,torch]", "torchvision")
    for task in ("regression", "radio", "mlp", "resnet18"):
        session.run("python", "-m", "gradloom.verif.experiments.offload_runs", task)
    session.run("python", "-m", "gradloom.verif.fair_bench")
    session.run("python", "-m", "gradloom.verif.matrix.synthesis")


@nox.session
def resources(session: nox.Session) -> None:
    """The resource fit of ``gradloom explore`` from the committed syntheses, and docs/resource-fit.md; with arguments one more
    machine first (``nox -s resources -- NAME xc7 clusters=2 cols=2``, minutes)."""
    session.install("-e", ".[test,fpga]")
    if session.posargs:
        session.run("python", "-m", "gradloom.verif.resource_fit", "measure", *session.posargs)
    session.run("python", "-m", "gradloom.verif.resource_fit", "fit")


@nox.session
def boards(session: nox.Session) -> None:
    """A machine in ECP5 cells against golden; bitstreams of the boards, each for several seeds, what was routed against golden,
    and docs/boards.md; hours (name cases to build only these)."""
    session.install("-e", ".[boards,data,test]")
    session.run("pytest", "--long", "verif/tests/verif/ecp5")
    session.run("python", "-m", "gradloom.verif.board_builds", "run", *session.posargs)


@nox.session
def eta(session: nox.Session) -> None:
    """The 1728-MAC machine: elaboration, build, a training step against golden; the latter on 3456 MACs; and whatever else
    takes minutes and has a smaller representative in the suite (an hour)."""
    session.install("-e", ".[data,test]")
    session.run("pytest", "-s", "--long", "-m", "long", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Which lines of the packages the suite runs (HTML in ``build/coverage``); RTL is counted by what is elaborated."""
    session.install("-e", ".[data,test,formal,torch,onnx]", "pytest-cov>=5")
    session.run("pytest", "-n", "2", "--cov=gradloom", "--cov-report=term:skip-covered", "--cov-report=html:build/coverage",
                *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Mutants of every RTL module against the suite's tests, from where the last run stopped; hours (``-- --first 300``)."""
    session.install("-e", ".[data,test,formal]")
    session.run("python", "-m", "gradloom.verif.mutants", "--jobs", "2", *session.posargs)
    session.run("python", "-m", "gradloom.verif.mutants", "--equivalent")
    session.run("python", "-m", "gradloom.verif.mutants", "--page")


@nox.session
def fuzz(session: nox.Session) -> None:
    """Disturb the machine in 30,000 ways (goes on where it was; half an hour of a quiet core), then publish the counts."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "gradloom.verif.fuzz", "run", *session.posargs)
    session.run("python", "-m", "gradloom.verif.fuzz", "page")


@nox.session
def emulator(session: nox.Session) -> None:
    """What needs PyTorch: the emulator against the golden model, PyTorch modules; then the emulator's throughput."""
    session.install("-e", ".[data,test,torch]")
    tests = ("verif/tests/models/emulator/test_emulator.py",
             "verif/tests/models/emulator/test_emulator_parts.py",
             "verif/tests/models/emulator/test_emulator_far.py",
             "verif/tests/models/emulator/test_formats_emulator.py",
             "verif/tests/models/test_float_network.py",
             "verif/tests/verif/experiments/test_experiments.py",
             "verif/tests/host/devices/test_emulator_device.py",
             "verif/tests/host/frontends/test_torch_import.py",
             "verif/tests/host/frontends/test_torch_checks.py",
             "verif/tests/host/frontends/test_torch_given.py",
             "verif/tests/host/frontends/test_torch_pools.py",
             "verif/tests/host/frontends/test_torch_writer.py")
    session.run("pytest", *tests, *session.posargs)
    session.run("python", "-m", "gradloom.verif.throughput")


@nox.session
def faults(session: nox.Session) -> None:
    """Plant every fault of gradloom.verif.planted.faults; each must be noticed by its test."""
    session.install("-e", ".[data,test,formal]")
    session.run("python", "-m", "gradloom.verif.planted", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Training steps at the size of the paper in RTL, checked; writes docs/results/paper-scale/ and docs/paper-scale.md.

    About six hours on 2 cores (ResNet18 at batch 16 alone takes two); name cases to run only these:
    ``nox -s bench -- resnet20-eta-16`` takes a quarter of an hour.
    """
    session.install("-e", ".[data]")
    session.run("python", "-m", "gradloom.verif.paper_scale", "run", *session.posargs)
