"""How an engine sees its command: the words of :mod:`gradloom.rtl.isa` as named fields."""

from types import SimpleNamespace

from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.isa import COMMANDS, HEADER_FIELDS, MAX_WORDS, Opcode

__all__ = ["CommandPort", "decode"]

COMMAND_BITS = 32 * MAX_WORDS


class CommandPort(wiring.Signature):
    """Between the Sequencer's queue and one engine (as seen by the queue; the engine takes it flipped).

    Members
    -------
    start : ``Out(1)``
        One cycle; ``cmd`` holds a whole validated command from here until the next ``start``.
    cmd : ``Out(32 * MAX_WORDS)``
        The words of the command, word 0 lowest. Words beyond its length are undefined.
    done : ``In(1)``
        One cycle for every command, in order: all that it had to do is done. Not before the cycle after ``start``, and
        not in two successive cycles.
    free : ``In(1)``
        Looked at by queues that let commands overlap: the engine takes another command although earlier ones are not
        done. It may rise while ``cmd`` is not needed any more; the cycle after ``start`` never starts a command.
    fault : ``In(8)``
        Non-zero in one cycle: an error code of :mod:`gradloom.rtl.regmap`, of the oldest command that is not done. The
        machine stops.
    """

    def __init__(self) -> None:
        super().__init__({"start": Out(1), "cmd": Out(COMMAND_BITS), "done": In(1), "free": In(1), "fault": In(8)})


def decode(opcode: Opcode, cmd: Value) -> SimpleNamespace:
    """Every field of ``opcode``, header included, as a value of its own width and sign."""
    fields = {}
    for field in (*HEADER_FIELDS, *COMMANDS[opcode].fields):
        bits = Value.cast(cmd)[32 * field.word + field.lsb:][:field.width]
        fields[field.name] = bits.as_signed() if field.signed else bits
    return SimpleNamespace(**fields)
