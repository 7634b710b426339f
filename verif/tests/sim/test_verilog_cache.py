"""machine_verilog keeps text only under a hash of its sources, and only when they cannot have changed since the import."""

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.rtl import verilog as rtl_verilog
from gradloom.sim import verilog

TEXT = "module gradloom_wpu_0(a);\nendmodule\nmodule gradloom(clk);\nendmodule\n"


@pytest.fixture
def emitted(tmp_path, monkeypatch):
    """Configurations that were elaborated, with a cache of their own."""
    calls = []

    def emit(config, *, events):
        calls.append(config.name)
        return {"gradloom.v": TEXT}

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(rtl_verilog, "emit_verilog", emit)
    verilog.machine_verilog.cache_clear()
    yield calls
    verilog.machine_verilog.cache_clear()


def fetch(name):
    verilog.machine_verilog.cache_clear()
    return verilog.machine_verilog(PRESETS[name])


def test_settled_sources_are_kept(emitted, monkeypatch):
    monkeypatch.setattr(verilog, "_IMPORTED", 1e12)
    assert fetch("nano") == fetch("nano") == ({"gradloom.v": TEXT}, frozenset())
    assert emitted == ["nano"]
    assert fetch("eta") == ({"gradloom.v": TEXT}, frozenset({"gradloom_wpu_0"}))
    assert emitted == ["nano", "eta"]


def test_sources_changed_since_the_import_are_not_kept(emitted, monkeypatch):
    monkeypatch.setattr(verilog, "_IMPORTED", 0.0)
    fetch("nano")
    fetch("nano")
    assert emitted == ["nano", "nano"]


def test_an_edited_source_is_emitted_anew(emitted, monkeypatch, tmp_path):
    monkeypatch.setattr(verilog, "_IMPORTED", 1e12)
    source = tmp_path / "unit.py"
    source.write_text("a = 1\n")
    monkeypatch.setattr(verilog, "_sources", lambda: [source])
    fetch("nano")
    source.write_text("a = 2\n")
    fetch("nano")
    fetch("nano")
    assert emitted == ["nano", "nano"]
