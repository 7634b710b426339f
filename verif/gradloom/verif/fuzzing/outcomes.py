"""What may come of a disturbed run, and what counts as a new kind of outcome."""

import dataclasses

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, engine_of, units
from gradloom.contracts.isa import Engine
from gradloom.contracts.regmap import ErrorCode

__all__ = ["BUS", "HEADER", "PROGRAM", "Outcome", "possible"]

_CODES: dict[Engine, frozenset[ErrorCode]] = {
    Engine.SEQ: frozenset({
        ErrorCode.PROGRAM_HEADER, ErrorCode.MALFORMED_COMMAND, ErrorCode.WATCHDOG, ErrorCode.ABORTED,
        ErrorCode.PROGRAM_ADDRESS, ErrorCode.ILLEGAL_FIELD, ErrorCode.READ_RESPONSE, ErrorCode.READ_WINDOW}),
    Engine.LOAD: frozenset({ErrorCode.ILLEGAL_FIELD, ErrorCode.READ_RESPONSE, ErrorCode.READ_WINDOW}),
    Engine.CCORE: frozenset({ErrorCode.PSUM_OVERFLOW, ErrorCode.WG_OVERFLOW, ErrorCode.ILLEGAL_FIELD}),
    Engine.ACORE: frozenset({ErrorCode.GRADIENT_SUM_OVERFLOW, ErrorCode.ILLEGAL_FIELD, ErrorCode.LABEL_RANGE}),
    Engine.STORE: frozenset({ErrorCode.ILLEGAL_FIELD, ErrorCode.WRITE_RESPONSE, ErrorCode.WRITE_WINDOW}),
}
"""Error codes by kind of engine (docs/registers.md, docs/machine.md sections 4 to 7): every other pair is impossible."""

BUS = frozenset({ErrorCode.READ_RESPONSE, ErrorCode.WRITE_RESPONSE})
"""Only where an answer of the memory was an error."""
HEADER = frozenset({ErrorCode.PROGRAM_HEADER, ErrorCode.PROGRAM_ADDRESS})
"""Only where the header, its address or the window was changed."""
PROGRAM = frozenset(ErrorCode) - BUS - HEADER - {ErrorCode.ABORTED}
"""What a changed command, or changed data, may come to."""


def possible(config: Config) -> list[tuple[Unit, ErrorCode]]:
    """Every (engine, code) that a machine can report, in the order of their numbers."""
    return [(unit, code) for unit in sorted((Unit.SEQ, *units(config))) for code in sorted(_CODES[engine_of(unit)])]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Parameters
    ----------
    ended : :class:`str`
        ``good`` (every byte as the step leaves it), ``other`` (a good end with other bytes), ``error``, or ``stopped`` (still at
        work after its time, then stopped by the host).
    code, engine : :class:`int`
        Of ERROR.
    cycles : :class:`int`
        Of both runs.
    heeded : :class:`int`
        Cycles from the host's abort to the end, 0 without one.
    problems : tuple of :class:`str`
        What should not be; none in a sound machine.
    """

    ended: str
    code: ErrorCode
    engine: Unit
    cycles: int
    heeded: int
    problems: tuple[str, ...]

    @property
    def reported(self) -> str:
        """``ENGINE code``; empty at a good end."""
        return f"{self.engine.name} {self.code.name.lower()}" if self.code else ""

    @property
    def name(self) -> str:
        """How it ended, in a word or two: ``good``, ``other``, ``stopped`` or ``ENGINE code``."""
        return self.reported if self.ended == "error" else self.ended
