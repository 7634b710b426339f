"""Bad values are refused by gradloom.api in one sentence that names them as Python does; no other error comes out."""

from pathlib import Path

import numpy as np
import pytest

from gradloom import api
from gradloom.api._errors import in_python
from gradloom.host import cli
from gradloom.host.commands.cli_arguments import decay, momentum, positive, rate, seed

X, Y = np.zeros((20, 1, 6, 6)), np.arange(20) % 3

DATA = "data must be the name or file of images, or arrays (x, y) or (x, y, x_test, y_test)"

REFUSED = [
    ("train", {"network": "nosuch"}, "there is no network 'nosuch': give one of digits-cnn, "),
    ("train", {"network": 3}, "network must be a Network, a name or a TOML file, not 3"),
    ("train", {"network": None}, "network must be a Network, a name or a TOML file, not None"),
    ("train", {"data": "nosuch.npz"}, "there is no data 'nosuch.npz': give digits, an .npz file, or "),
    ("train", {"data": 3}, f"{DATA}, not 3"),
    ("train", {"data": (X,)}, f"{DATA}, not a tuple of 1"),
    ("train", {"data": X}, f"{DATA}, not an object of class ndarray"),
    ("train", {"data": (X[0], Y)}, "data: y must hold one class number for each of the 1 images, its shape is (20,)"),
    ("train", {"data": ([[1], [2, 3]], Y)}, "data: x cannot be made an array: "),
    ("train", {"data": (X, Y, X, Y - 1)}, "data: y_test must hold class numbers in 0..65535, it holds -1..1"),
    ("train", {"data": (X, Y + 1)}, "data arrays has 4 classes, network tiny only 3: give a network "),
    ("train", {"config": "nosuch"}, "there is no configuration 'nosuch': give one of "),
    ("train", {"config": 3}, "config must be a Config, a preset's name or a TOML file, not 3"),
    ("train", {"device": "board"}, "there is no device 'board': give one of rtl, golden, "),
    ("train", {"device": None}, "there is no device None: give one of rtl, golden, "),
    ("train", {"batch": 0}, "batch must lie in 1..10000000, not 0"),
    ("train", {"batch": "many"}, "batch must be a whole number, not 'many'"),
    ("train", {"batch": 2.0}, "batch must be a whole number, not 2.0"),
    ("train", {"batch": True}, "batch must be a whole number, not True"),
    ("train", {"batch": 10**400}, "batch must lie in 1..10000000, not 1000"),
    ("train", {"batch": 49}, "batch 49 is more than the 48 training images of data"),
    ("train", {"steps": 1, "epochs": 1}, "steps and epochs were both given: give one of the two"),
    ("train", {"epochs": 1.5}, "epochs must be a whole number, not 1.5"),
    ("train", {"lr": 0}, "lr must lie in 2^-30..64, not 0"),
    ("train", {"lr": float("nan")}, "lr must lie in 2^-30..64, not nan"),
    ("train", {"momentum": 1}, "momentum must lie in 0..255/256, not 1"),
    ("train", {"weight_decay": 0.9}, "weight_decay must lie in 0..0.5, not 0.9"),
    ("train", {"seed": -1}, "seed must lie in 0..2^32-1, not -1"),
    ("train", {"seed": None}, "seed must be a whole number, not None"),
    ("train", {"check": "some"}, "check must be 'all', 'last' or 'off', not 'some'"),
    ("train", {"integers": None}, "integers must be 'unit' or 'raw', not None"),
    ("train", {"normalise": "rows"}, "normalise must be 'none' or 'channel', not 'rows'"),
    ("train", {"augment": "turn"}, "augment: 'turn' is not known: give none, crop, "),
    ("train", {"augment": 4}, "augment must be a text such as 'crop,flip', not 4"),
    ("train", {"augment": "crop=9"}, "a crop by 9 rows and columns leaves nothing of images of 6: give augment a "),
    ("train", {"validation": 48}, "48 of the 48 training images of data cannot be held out for validation, none "
                                  "would be left: give a smaller validation"),
    ("train", {"format": "pint9"}, "format must be one of pint8, "),
    ("train", {"format": 8}, "format must be a format's name, not 8"),
    ("train", {"rounding": "errors=up"}, "rounding must be a dictionary by kinds of tensors, not 'errors=up'"),
    ("train", {"rounding": {"errors": "up"}}, "rounding: errors must be 'nearest' or 'stochastic', not 'up'"),
    ("train", {"out": 3}, "out must be a folder, not 3"),
    ("train", {"out": "taken"}, "taken exists already and is not empty: give another out, or resume('taken')"),
    ("train", {"schedule": "nosuch.json"}, "nosuch.json: No such file or directory"),
    ("train", {"schedule": 3}, "schedule must be a file of gradloom tune or 'rules', not 3"),
    ("train", {"memory": 3}, "memory must be a MemoryOptions, not 3"),
    ("train", {"memory": api.MemoryOptions(trace=Path("wave.fst"))},
     "trace records the simulated hardware: give device rtl with it"),
    ("train", {"progress": 3}, "progress must be True, False or a function that takes a Progress, not 3"),
    ("verify", {"steps": 0}, "steps must lie in 1..10000000, not 0"),
    ("verify", {"weights": "nosuch"}, "there is no nosuch: give a run's folder or a checkpoint.npz"),
    ("verify", {"weights": 3}, "weights must be a run's folder or a checkpoint.npz, not 3"),
    ("evaluate", {"weights": None}, "weights must be a run's folder or a checkpoint.npz, not None"),
    ("evaluate", {"weights": "data.npz"}, "data.npz has no array 'format': it is not a state of network 'tiny'"),
    ("compile", {"batch": 40000}, "a batch must have 1..32768 images, not 40000"),
    ("compile", {"steps": 9}, "steps must lie in 1..8, the most of one start, not 9"),
    ("compile", {"config": None}, "config must be a Config, a preset's name or a TOML file, not None"),
    ("verilog", {"family": "xc8"}, "family must be 'any' or 'xc7', not 'xc8'"),
    ("verilog", {"package": "yes"}, "package must be True or False, not 'yes'"),
    ("verilog", {"out": None}, "out must be a folder, not None"),
    ("verilog", {"out": "taken"}, "taken exists already: give a folder that does not, nothing is overwritten"),
    ("load_network", {"source": 3}, "network must be a name or a TOML file, not 3"),
    ("load_config", {"source": "nosuch"}, "there is no configuration 'nosuch': give one of "),
]
GOOD = {
    "train": {"network": "tiny.toml", "data": "data.npz"},
    "verify": {"network": "tiny.toml", "data": "data.npz", "device": "golden"},
    "evaluate": {"network": "tiny.toml", "data": "data.npz"},
    "compile": {"network": "tiny.toml", "config": "nano"},
    "verilog": {"config": "nano", "out": "v"},
    "load_network": {},
    "load_config": {},
}


@pytest.mark.parametrize(("name", "given", "message"), REFUSED,
                         ids=[f"{name} {list(given)[-1]}" for name, given, _ in REFUSED])
def test_bad_values(desk, name, given, message):
    (desk / "taken").mkdir()
    (desk / "taken" / "mine").write_text("keep")
    before = sorted(desk.rglob("*"))
    with pytest.raises(api.UserError) as caught:
        getattr(api, name)(**(GOOD[name] | given))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value) and "--" not in str(caught.value)
    assert sorted(desk.rglob("*")) == before


@pytest.mark.parametrize(("given", "message"), [
    ({"latency": -1}, "latency must lie in 0..10000 cycles, not -1"),
    ({"bytes_per_cycle": 0}, "bytes_per_cycle must lie in 0.01..10000, not 0"),
    ({"stalls": 1.0}, "stalls must lie in 0..1 (1 excluded), not 1.0"),
    ({"trace": 3}, "trace must be a file, not 3"),
    ({"trace_cycles": (9, 3)}, "trace_cycles must be FROM:TO with 0 <= FROM < TO, not '9:3'"),
    ({"trace_cycles": 9}, "trace_cycles must be a pair of cycles, FROM and TO, not 9"),
])
def test_memory(given, message):
    with pytest.raises(api.UserError) as caught:
        api.MemoryOptions(**given)
    assert str(caught.value) == message


def test_a_network_that_does_not_fit_is_a_user_error():
    layers = (api.Conv(name="conv", out=4, kernel=3, pad=1), api.FullyConnected(name="fc", out=3))
    wide = api.Network("wide", (1, 6, 4000), 3, layers)
    with pytest.raises(api.UserError, match=r"layer 'conv'"):
        api.compile(wide, "nano", 2)


def test_constructors_raise_their_own_errors():
    with pytest.raises(api.NetworkError, match="at least one layer"):
        api.Network("none", (1, 6, 6), 3, ())
    with pytest.raises(api.ConfigError, match="clusters must equal cols"):
        api.Config(name="odd", clusters=8, wpus=1, cols=2)


@pytest.mark.parametrize(("field", "read", "texts"), [
    ("batch", positive, ("0", "x", "10000001")), ("seed", seed, ("-1", "x", "0x1ffffffff")),
    ("lr", rate, ("0", "x", "65")), ("momentum", momentum, ("1", "x")), ("weight_decay", decay, ("0.75", "x")),
])
def test_a_rule_is_the_command_lines_rule(desk, field, read, texts):
    """The same sentence behind either name."""
    for text in texts:
        try:
            value = int(text, 0) if field in ("batch", "seed") else float(text) if "." in text else int(text)
        except ValueError:
            value = text
        with pytest.raises(api.UserError) as caught:
            api.train("tiny.toml", "data.npz", **{field: value})
        with pytest.raises(Exception, match="must") as told:
            read(text)
        assert str(caught.value) == f"{field} {told.value}"


def test_messages_in_python():
    assert in_python("give another --out, or --resume runs/a-1") == "give another out, or resume('runs/a-1')"
    assert in_python("it stopped; go on with --resume a/b: now") == "it stopped; go on with resume('a/b'): now"
    assert in_python("--weight-decay and --trace-fst") == "weight_decay and trace"
    other = "pip install --upgrade numpy; gradloom doctor --board NAME"
    assert in_python(other) == other


def test_every_option_has_a_name_in_python():
    """So that no message of a command that Python has shows an option."""
    for command in ("train", "verify", "eval --weights x", "verilog --out x"):
        for name in vars(cli.parse(command.split())):
            option = "--" + name.replace("_", "-")
            if name != "command":
                assert in_python(f"{option} here") != f"{option} here", option
