"""``gradloom.api.explore``."""

import pytest

from gradloom import api
from gradloom.verif.cli_desk import lay


def test_the_machine_of_a_board(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    network = api.load_network(str(lay(tmp_path) / "tiny.toml"))
    [point] = api.explore(network, "ulx3s-85f", batch=4, points=2)
    assert point.config == api.load_config("ecp5-9")
    assert (point.luts, point.multipliers, point.block_rams) == (34_827, 18, 67)
    assert point.images_per_second == 4 * 50e6 / point.cycles
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("values", "message"), [
    ({"device": "ulx3s"}, "there is no device 'ulx3s': give one of ulx3s-85f, "),
    ({"device": "vc709", "batch": 0}, "batch must lie in 1..10000000, not 0"),
    ({"device": "vc709", "points": 1.5}, "points must be a whole number, not 1.5"),
    ({"device": 85}, "device must be a device's name, not 85"),
])
def test_what_cannot_be_explored(values, message):
    with pytest.raises(api.UserError) as caught:
        api.explore("digits-cnn", **values)
    assert str(caught.value).startswith(message)
