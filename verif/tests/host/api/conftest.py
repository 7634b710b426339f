"""The folder that tests of the Python interface work in."""

import pytest

from gradloom.verif.cli_desk import lay


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with a small network and small data, as the working directory."""
    monkeypatch.chdir(tmp_path)
    return lay(tmp_path)
