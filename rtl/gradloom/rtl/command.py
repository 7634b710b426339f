"""How an engine sees its command: the words of :mod:`gradloom.contracts.isa` as named fields, and the list behind them."""

from types import SimpleNamespace

from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.contracts.config import Config
from gradloom.contracts.isa import COMMANDS, HEADER_FIELDS, MAX_WORDS, Command, Engine, Opcode, pairs
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.contracts.matrix_isa import commands_of

__all__ = ["HEAD_BITS", "HEAD_WORDS", "TAIL_SLOTS", "CommandPort", "TailPlace", "decode", "decode_command", "has_tail",
           "head_words"]


def head_words(engine: Engine, config: Config | MatrixConfig | None = None) -> int:
    """Words with fields of the commands of ``engine``, at most, on this machine; by default on one that trains."""
    commands = COMMANDS if config is None else commands_of(config)
    return max(command.words for opcode, command in commands.items() if opcode >> 4 == engine)


def has_tail(engine: Engine) -> bool:
    """Some commands of ``engine`` end with a list of words."""
    return any(command.tail is not None for opcode, command in COMMANDS.items() if opcode >> 4 == engine)


HEAD_WORDS = max(head_words(engine) for engine in Engine if engine != Engine.SEQ)
"""Words of a command that an engine sees all at once."""
HEAD_BITS = 32 * HEAD_WORDS
TAIL_SLOTS = 4
"""Commands whose words are kept at once: one that is collected, one behind each of an engine's first two stages, one to spare."""

TailPlace = StructLayout({"pair": ceil_log2(pairs(MAX_WORDS)), "slot": ceil_log2(TAIL_SLOTS)})
"""Where a pair of words lies: words 2 n and 2 n + 1 of a command are pair n of its slot."""


class CommandPort(wiring.Signature):
    """Between the Sequencer's queue and one engine (as seen by the queue; the engine takes it flipped).

    Parameters
    ----------
    tail : :class:`bool`
        Commands may be longer than the head: all their words can be read, in pairs, from the queue
        (:class:`gradloom.rtl.sequencer.tails.Tails`).

    Members
    -------
    start : ``Out(1)``
        One cycle; ``cmd`` holds the head of a whole validated command from here until the next ``start`` may come: ``done`` of
        the command where none overlap, ``free`` behind the cycle of ``start`` otherwise. Between them it is undefined.
    cmd : ``Out(32 * HEAD_WORDS)``
        The first words of the command, word 0 lowest. Words beyond its length are undefined.
    done : ``In(1)``
        One cycle for every command, in order: all that it had to do is done. Not before the cycle after ``start``, and
        not in two successive cycles.
    free : ``In(1)``
        Looked at by queues that let commands overlap: the engine takes another command although earlier ones are not
        done. It may rise while ``cmd`` is not needed any more; the cycle after ``start`` never starts a command.
    fault : ``In(8)``
        Non-zero in one cycle: an error code of :mod:`gradloom.contracts.regmap`, of the oldest command that is not done. The
        machine stops.
    slot : ``Out(2)``, with ``tail``
        Where the words of the command in ``cmd`` lie, from ``start`` until the next one. They stay there until the third ``start``
        behind theirs.
    tail_at : ``In(TailPlace)`` -> tail ``Out(64)`` in the next cycle, with ``tail``
        A pair of words of a command, the even one lowest.
    """

    def __init__(self, *, tail: bool = False) -> None:
        super().__init__({"start": Out(1), "cmd": Out(HEAD_BITS), "done": In(1), "free": In(1), "fault": In(8)} | (
            {"slot": Out(TailPlace["slot"].width), "tail_at": In(TailPlace), "tail": Out(64)} if tail else {}))


def decode(opcode: Opcode, cmd: Value) -> SimpleNamespace:
    """Every field of ``opcode``, header included, as a value of its own width and sign."""
    return decode_command(COMMANDS[opcode], cmd)


def decode_command(command: Command, cmd: Value) -> SimpleNamespace:
    """The same of a command by its encoding."""
    fields = {}
    for field in (*HEADER_FIELDS, *command.fields):
        bits = Value.cast(cmd)[32 * field.word + field.lsb:][:field.width]
        fields[field.name] = bits.as_signed() if field.signed else bits
    return SimpleNamespace(**fields)
