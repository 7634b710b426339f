"""The modules' old names work for one release, and name the new ones."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(("old", "new", "extra", "title"), [
    ("gradloom.host.torch", "gradloom.api.pytorch", "torch", "PyTorch"),
    ("gradloom.host.onnx", "gradloom.api.onnx_models", "onnx", "onnx"),
])
def test_old_names(old, new, extra, title, monkeypatch):
    pytest.importorskip(extra, reason=f"{title} is not installed (pip install 'gradloom[{extra}]')")
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning) as caught:
        module = importlib.import_module(old)
    assert [str(warning.message) for warning in caught] == [f"{old} is now {new}: import that"]
    public = importlib.import_module(new)
    assert module.__all__ == public.__all__
    assert all(getattr(module, name) is getattr(public, name) for name in public.__all__)
