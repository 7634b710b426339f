"""The page of a build: every figure of its report, each engine's share, drawings that can be read."""

import dataclasses
import re
from xml.etree import ElementTree

import pytest

from gradloom.host.boards.build_page import by_engine, engine_of, render_build
from gradloom.verif.board_reports import REPORT
from gradloom.verif.drawing_texts import text_faults


@pytest.mark.parametrize(("part", "engine"), [
    ("machine.core.acore", "A-Core"), ("machine.core.ccore", "C-Core"), ("machine.core.loader0", "Loader"),
    ("machine.core.storer1", "Storer"), ("machine.core.read_manager0", "AXI managers"), ("machine.core.sequencer", "Sequencer"),
    ("machine.core.queue_acore", "Sequencer"), ("machine.csr", "registers"), ("link.link.bridge", "link"),
    ("memory.controller", "board memory"), ("arbiter.readers", "board memory"), ("(top)", "board"), ("led0.buf", "board")])
def test_engine_of_a_part(part, engine):
    assert engine_of(part)[0] == engine


def test_cells_of_engines():
    """A CCU2C is two TRELLIS_COMB; nothing is lost on the way."""
    engines = by_engine(REPORT.modules)
    assert engines["C-Core"]["TRELLIS_COMB"] == 5000 + 2 * 700 and engines["A-Core"]["MULT18X18D"] == 29
    assert sum(totals["TRELLIS_FF"] for totals in engines.values()) == 20400


def test_page():
    page = render_build(REPORT)
    for text in ("41,820 of 83,640 = 50%", "31.25 MHz (routed)", f"CONFIG 0x{REPORT.machine.digest():08x}", "27,000", "32.00 ns",
                 "26.75", "sequencer.command &gt; csr.base",
                 "machine.core.acore.prepare", "nextpnr-ecp5 &lt;&amp;&gt;", "ab12", "nothing was tried on hardware"):
        assert text in page, text


def test_clock_that_is_not_reached():
    page = render_build(dataclasses.replace(REPORT, clock_mhz=50.0, slack=[(-12_000, -6_000, 3), (-6_000, 0, 9), (0, 6_000, 20)]))
    # End points that are late are red.
    assert "<b>not reached</b>" in page and page.count("#c0392b") == 2


def test_drawings_can_be_read():
    drawings = re.findall(r"<svg.*?</svg>", render_build(REPORT), re.DOTALL)
    assert len(drawings) == 2
    for drawing in drawings:
        root = ElementTree.fromstring(drawing.replace("<svg ", '<svg font-size="12" ', 1))
        assert text_faults(root) == []
