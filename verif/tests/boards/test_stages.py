"""Stages of a build: done once for the same inputs, again for others; two builds do not share a folder."""

import pytest

from gradloom.boards.stages import Stages, locked
from gradloom.boards.tools import BuildError


class Shop:
    """A folder in which one stage makes ``out`` of ``in``."""

    def __init__(self, folder):
        self.folder, self.done = folder, 0
        (folder / "in").write_text("wood")

    def work(self):
        self.done += 1
        (self.folder / "out").write_text(f"table of {(self.folder / 'in').read_text()}")

    def run(self, given="saw 1", **options):
        stages = Stages(self.folder, **options)
        return stages.run("make", [given], ["in"], ["out"], self.work), stages


def test_done_once(tmp_path):
    shop = Shop(tmp_path)
    assert shop.run()[0] and not shop.run()[0] and shop.done == 1
    # What it took is known of a stage that was done before, too.
    assert "make" in shop.run()[1].seconds


@pytest.mark.parametrize("change", [
    lambda folder: (folder / "in").write_text("oak"),
    lambda folder: (folder / "out").write_text("broken table"),
    lambda folder: (folder / "out").unlink(),
    lambda folder: (folder / "stages.json").write_text('{"make": '),
    lambda folder: (folder / "stages.json").write_text("[]"),
    lambda folder: (folder / "stages.json").write_text('{"make": 3}')])
def test_done_again(tmp_path, change):
    """Another input, a result that is not what was made, or a record that was cut off."""
    shop = Shop(tmp_path)
    shop.run()
    change(tmp_path)
    assert shop.run()[0] and shop.done == 2 and (tmp_path / "out").read_text() == f"table of {(tmp_path / 'in').read_text()}"


def test_other_tool_and_fresh(tmp_path):
    shop = Shop(tmp_path)
    shop.run()
    assert shop.run(given="saw 2")[0] and shop.run(given="saw 2", fresh=True)[0]


def test_interrupted(tmp_path):
    """A stage that did not end counts as not done, even if its files are there."""
    shop = Shop(tmp_path)

    def work():
        shop.work()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Stages(tmp_path).run("make", ["saw 1"], ["in"], ["out"], work)
    assert shop.run()[0] and shop.done == 2


def test_one_build_at_a_time(tmp_path):
    with locked(tmp_path / "new"), \
            pytest.raises(BuildError, match=r"another build works in .*new: wait for it, or give another --out"), \
            locked(tmp_path / "new"):
        pass
    with locked(tmp_path / "new"):
        pass
