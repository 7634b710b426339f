"""``gradloom explore`` as a user meets it."""

import json
import re

import pytest

from gradloom.contracts.config import load_config
from gradloom.host import cli
from gradloom.verif.cli_desk import lay, refused


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with a small network, as the working directory; results are kept in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lay(tmp_path)


def test_table_record_picture_and_machines(desk, capsys):
    assert cli.main(["explore", "--network", "tiny.toml", "--device", "ulx3s-85f", "--batch", "4"]) == 0
    said = capsys.readouterr().out
    assert "* ecp5-9     9  " in said and "34,827 (42 %)" in said
    assert "a machine with more MACs than ecp5-9 exceeds the LUTs of ulx3s-85f" in said
    folder = desk / "runs/explore-tiny-ulx3s-85f-1"
    record = json.loads((folder / "explore.json").read_text())
    assert record["points"][0]["config"] == "ecp5-9.toml" and record["points"][0]["pareto"] is True
    assert (folder / "explore.svg").read_text().startswith("<svg ")
    assert load_config(str(folder / "ecp5-9.toml")).digest() == load_config("ecp5-9").digest()


def test_json_alone(desk, capsys):
    assert cli.main(["explore", "--network", "tiny.toml", "--device", "ulx3s-85f", "--json", "--out", "out"]) == 0
    said = capsys.readouterr().out
    assert json.loads(said) == json.loads((desk / "out/explore.json").read_text())


def test_sizes_in_place_of_a_name(desk, capsys):
    assert cli.main(["explore", "--network", "tiny.toml", "--luts", "60000", "--dsps", "240", "--brams", "135",
                     "--bandwidth", "1.6", "--points", "2", "--fill", "0.9", "--out", "out"]) == 0
    record = json.loads((desk / "out/explore.json").read_text())
    assert record["device"]["clock_hz"] == 200e6 and record["device"]["filled"] == 0.9
    assert len(record["points"]) == 2
    for point in record["points"]:
        assert point["resources"]["luts"] <= 54_000
        assert load_config(str(desk / "out" / point["config"])).macs == point["macs"]


def test_darkfpga(desk, capsys):
    assert cli.main(["explore", "--network", "vgg-like", "--system", "darkfpga", "--device", "vu9p", "--out", "out"]) == 0
    said = capsys.readouterr().out
    assert "* (128, 32)  4,096   66,456,586  86.7 %     385.2" in said
    assert "exceeds the bandwidth" in said and "the best that keeps the bandwidth is (64, 16)" in said


def test_a_network_of_ours_on_a_papers_system(desk, capsys):
    assert cli.main(["explore", "--network", "resnet20", "--system", "eftrain", "--device", "zcu102", "--out", "out"]) == 0
    assert "16 x 16" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "message"), [
    ("--network tiny.toml", "a device needs a name or sizes: give --device with one of ulx3s-85f, "),
    ("--network tiny.toml --luts 1000 --dsps 10", "give --device with one of .*, or --brams and --bandwidth too$"),
    ("--network tiny.toml --device ulx3s-85f --luts 1000", "--device ulx3s-85f has sizes of its own: leave --luts out"),
    ("--network tiny.toml --device ulx3", "there is no device 'ulx3': give one of ulx3s-85f, .*, or its sizes with --luts, "),
    ("--network vgg-like --device vc709", "network 'vgg-like' is known by its shapes alone, as a paper gives them: give --system "),
    ("--network nosuch --device vc709", "there is no network 'nosuch'"),
    ("--network tiny.toml --luts 1000 --dsps 9 --brams 9 --bandwidth 1", "no machine fits your device: the smallest, .* takes "),
    ("--network tiny.toml --device vc709 --bandwidth 0", "argument --bandwidth: must lie in 0.001..10000 GB/s, not 0: "),
    ("--network tiny.toml --device vc709 --fill 2", "argument --fill: must lie in 0.01..1, not 2: see gradloom explore --help"),
    ("--network tiny.toml --device vc709 --points 0", "argument --points: must lie in 1..10000000, not 0"),
    ("--network vgg-like --system nosuch --device vu9p", "argument --system: invalid choice: 'nosuch'"),
    ("--device vc709", "the following arguments are required: --network"),
    ("--network tiny.toml --device vc709 --out .", "exists already and is not empty: give another --out"),
])
def test_bad_input_is_one_sentence(desk, capsys, arguments, message):
    said = refused(capsys, ["explore", *arguments.split()], begun="smallest" in message)
    assert re.search(message, said), said
    assert not (desk / "runs").exists()
