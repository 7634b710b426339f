"""On-chip rings: what has not been used is not overwritten, and a program that would do so is refused."""

import re

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Dest, Opcode
from gradloom.contracts.microprograms import TABLE
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.order.accesses import Access
from gradloom.host.order.liveness import OverwrittenBeforeRead
from gradloom.host.order.synchronize import Recorder
from gradloom.host.schedule import compile_network
from gradloom.models.network import load_network


def load(recorder: Recorder, addr: int, length: int) -> None:
    writes = [Access("AA", ((addr, addr + length),))]
    recorder.emit(Opcode.LOAD, {"dest": int(Dest.AA), "n0": length, "n1": 1, "n2": 1}, writes=writes)


def test_what_has_not_been_used_is_not_overwritten():
    recorder = Recorder(PRESETS["eta"])
    load(recorder, 0, 8)
    load(recorder, 8, 8)
    fields = {"uprog": TABLE["BP_OUT"], "planes": 1, "nb": 6, "pool": 0}
    recorder.emit(Opcode.RUN, fields, reads=[Access("AA", ((0, 6),))])
    load(recorder, 0, 6)
    with pytest.raises(ValueError, match=re.escape("addresses (6, 10) of AA would be overwritten before they are used")):
        load(recorder, 6, 4)


def test_what_is_read_again_is_not_overwritten():
    recorder = Recorder(PRESETS["eta"])
    load(recorder, 0, 8)
    fields, reads = {"uprog": TABLE["FRN_SUM"], "planes": 1, "nb": 8, "pool": 0}, [Access("AA", ((0, 8),))]
    recorder.emit(Opcode.RUN, fields, reads=reads, again=True)
    with pytest.raises(OverwrittenBeforeRead, match=re.escape("addresses (0, 8) of AA would be overwritten before they are used")):
        load(recorder, 0, 8)
    recorder.emit(Opcode.RUN, fields | {"uprog": TABLE["FRN_ERR"]}, reads=reads)
    load(recorder, 0, 8)


@pytest.mark.parametrize(("other", "refused"), [(4, False), (8, True)])
def test_gradients_that_lie_between_those_of_other_tiles_are_not_overwritten(other, refused):
    """Blocks of 4 beats of three tiles side by side (kernel 1): each has every third one."""
    recorder = Recorder(PRESETS["eta"])

    def drain(first: int) -> None:
        fields = {"units": 3, "cols": 2, "steps": 1, "preload": 0, "wg": 1, "drain": 1, "nr": 2, "nk": 1}
        fields |= {"dwbase": first, "dgap": 2}
        recorder.emit(Opcode.CONV, fields, writes=[Access("DW", ((first, first + 16),))])

    drain(0)
    drain(8)
    if refused:
        text = "addresses (8, 24) of DW would be overwritten before they are used"
        with pytest.raises(OverwrittenBeforeRead, match=re.escape(text)):
            drain(other)
    else:
        drain(other)


def test_a_program_that_would_overwrite_is_refused(monkeypatch):
    def refuse(*_):
        raise OverwrittenBeforeRead("addresses (6, 10) of AA would be overwritten before they are used")

    monkeypatch.setattr("gradloom.host.order.liveness.UnreadData.note", refuse)
    text = "network 'digits-cnn' on configuration 'small': addresses (6, 10) of AA would be overwritten before they are used: "
    with pytest.raises(ScheduleError, match=re.escape(text + "raise abuf_depth, mbuf_depth or dw_depth, or change the batch")):
        compile_network(load_network("digits-cnn"), PRESETS["small"], 2)
