"""Turns of the A-Core's APUs: how fewer APUs than a group has channels, or fewer lanes than a beat has columns, take a beat.

A beat stays for ``turns`` cycles of a walk, and in each of them its memories are read anew at the same address: nothing is held.
A multiplexer between the memories and an APU takes the channel of the turn, with one lane also the column; what follows is a
pipeline that sees a value a cycle as ever. So a beat's turn travels beside it, and each stage takes by it what belongs to a
channel: its settings, plane registers, element offsets, the state of its pools and of its sums. Outputs are written a turn at a
time, as parts of a beat, so results are not gathered either (bitmaps are, a bit at a time). Control counts beats in the last turn
alone: the walks go on, a command ends.

    memories -> [16 G bits] -> channel, column of the turn -> APU -> value -> its part of the output's beat

Turn t of an APU of N channels: channel t mod N, and with one lane column t div N. APU a serves channels a N to a N + N - 1.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Value
from amaranth.utils import ceil_log2

from gradloom.contracts.config import Config
from gradloom.rtl.acore.align import chosen

__all__ = ["COLUMNS", "Turns"]

COLUMNS = 2
"""Columns of a beat."""


class Turns:
    """Turns of one machine.

    Parameters
    ----------
    config : :class:`Config`
        ``clusters`` (G), ``apu_channels`` and ``apu_lanes`` count.

    Attributes
    ----------
    count : :class:`int`
        Turns of a beat; 1: all of it at once.
    bits : :class:`int`
        Of a turn.
    channels : :class:`int`
        Of an APU.
    lanes : :class:`int`
        Of an APU: ``COLUMNS``, or 1 for a column a turn.
    """

    def __init__(self, config: Config) -> None:
        self.count, self.channels, self.lanes = config.turns, config.apu_channels, config.apu_lanes
        self.bits = ceil_log2(self.count)
        self.group = config.group

    def channel(self, turn: Value) -> Value:
        """Channel of an APU whose turn it is, of its own ones."""
        return turn[:ceil_log2(self.channels)]

    def column(self, turn: Value) -> Value:
        """Column whose turn it is, with one lane."""
        return turn[ceil_log2(self.channels)]

    def last(self, turn: Value) -> Value | int:
        """Whether it is the last one of a beat."""
        return 1 if self.count == 1 else turn == self.count - 1

    def of_channel(self, apu: int, turn: Value, values: Sequence[Value]) -> Value:
        """The one of ``values``, one of each channel of the group, that APU ``apu`` takes."""
        return chosen(turn, values[apu * self.channels:(apu + 1) * self.channels])

    def of_columns(self, turn: Value, values: Sequence[Value]) -> Sequence[Value]:
        """Those of ``values``, one of each column, that the lanes take."""
        return values if self.lanes == COLUMNS else [chosen(self.column(turn), values)]

    def picked(self, data: Value, bits: int, turn: Value, *, whole: bool = False) -> Value:
        """What the APUs take of a beat's values [column][channel] of so many bits: [lane][APU], ``whole``: [column][APU]."""
        if self.count == 1:
            return data
        values = [[data[bits * (column * self.group + c):][:bits] for c in range(self.group)] for column in range(COLUMNS)]
        taken = [[self.of_channel(apu, turn, of_column) for of_column in values] for apu in range(self.group // self.channels)]
        return Cat(Cat(*one) for one in zip(*(one if whole else self.of_columns(turn, one) for one in taken), strict=True))

    def of_every_channel(self, data: Value, bits: int) -> Value:
        """``data``, so many bits of each APU, for each channel."""
        if self.channels == 1:
            return data
        return Cat(data[bits * apu:bits * (apu + 1)] for apu in range(self.group // self.channels) for _ in range(self.channels))

    def part(self, column: int, channel: int) -> int:
        """The turn of a value."""
        return channel % self.channels + (0 if self.lanes == COLUMNS else column * self.channels)

    def parts(self) -> list[int]:
        """The turn of each value of a beat in the order [column][channel]."""
        return [self.part(column, channel) for column in range(COLUMNS) for channel in range(self.group)]
