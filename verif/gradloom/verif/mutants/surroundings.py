"""What the rest of the machine keeps to at the ports of a module, so that :mod:`gradloom.verif.mutants.equivalence` may rely on it.

A module alone has inputs that are free in every cycle. Some of them never come: what a neighbour promises is said here, beside the
place where that is a contract. What nobody looks at need not be the same either. Both are expressions of the module's own signals,
and both forms of it, with the mutant and without, must agree on them, too: a mutant that changes what is promised or looked at is
not the same.
"""

import dataclasses
from collections.abc import Callable, Mapping

from amaranth.hdl import Cat, Module, ResetSignal, Signal, Value
from amaranth.lib.data import View

from gradloom.contracts.isa import Opcode, Source
from gradloom.rtl.acore.poolwalk import Tap
from gradloom.rtl.acore.stream_address import Beat
from gradloom.rtl.command import decode
from gradloom.rtl.delay import delayed

__all__ = ["SURROUNDINGS", "Surroundings"]

Expression = Callable[[Module, Callable[[str], Signal]], Value]
"""Makes a value of one bit; it may add registers to the module, and finds the signals of the one it is about by their names."""


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """Of one module.

    Parameters
    ----------
    why : :class:`str`
        The contracts in words.
    promised : callable, optional
        What holds in every cycle since the last reset. From a cycle in which it does not, nothing is compared.
    seen : mapping
        Of an output, by its name: when it is looked at. Others always are.
    """

    why: str
    promised: Expression | None = None
    seen: Mapping[str, Expression] = dataclasses.field(default_factory=dict)


def _answer_to_a_request(m: Module, signal: Callable[[str], Signal]) -> Value:
    jumped = Signal()
    with m.If(signal("jump")):
        m.d.sync += jumped.eq(1)
    return ~signal("response__valid") | (jumped & (signal("open_requests") != 0))


def _source_that_exists(channel: int) -> Expression:
    """A Storer asks for beats of memories that there are only: it refuses commands with another source."""
    def expression(m: Module, signal: Callable[[str], Signal]) -> Value:
        source = signal(f"store__{channel}__src")
        return ~signal(f"store__{channel}__en") | Cat(source == known for known in Source).any()

    return expression


def _cycles_behind(name: str, cycles: int) -> Expression:
    """That many cycles after a signal of the module was 1, without a reset since."""
    def expression(m: Module, signal: Callable[[str], Signal]) -> Value:
        return delayed(m, signal(name) & ~ResetSignal("sync"), f"behind_{name}", cycles, reset=True)

    return expression


def _first_lane(m: Module, signal: Callable[[str], Signal]) -> Value:
    """In a reset, too: what it delays has none."""
    always, now = Signal(init=1, reset_less=True), View(Beat, signal("beat")).v0
    m.d.sync += always.eq(always & now)
    return always & now


def _beat_to_add(m: Module, signal: Callable[[str], Signal]) -> Value:
    return Value.cast(View(Beat, signal("beat_6")).v)


def _with(name: str) -> Expression:
    """While a signal of the module is 1."""
    return lambda m, signal: signal(name)


def _behind(name: str) -> Expression:
    """In a cycle before this one, since the last reset, a signal of the module was 1."""
    def expression(m: Module, signal: Callable[[str], Signal]) -> Value:
        was = Signal()
        with m.If(signal(name)):
            m.d.sync += was.eq(1)
        return was

    return expression


_started = _behind("start")


def _since(name: str) -> Expression:
    """In this cycle or one before it, since the last reset, a signal of the module was 1."""
    return lambda m, signal: signal(name) | _behind(name)(m, signal)


def _error_of_a_class(m: Module, signal: Callable[[str], Signal]) -> Value:
    return signal("divided_10") | decode(Opcode.SOFTMAX, signal("port__cmd")).squared


def _behind_the_last_tap(cycles: int) -> Expression:
    """That many cycles after the last tap of a window was in stage 2; in a reset, too: nothing of it is reset."""
    def expression(m: Module, signal: Callable[[str], Signal]) -> Value:
        tap = View(Tap, signal("tap2_2"))
        return delayed(m, tap.v & tap.last, f"behind_last_{cycles}", cycles)

    return expression


def _steps_behind_a_start(m: Module, signal: Callable[[str], Signal]) -> Value:
    return ~signal("step") | _started(m, signal)


def _later_than_reset(cycles: int) -> Expression:
    """More than so many cycles after the last cycle of a reset."""
    def expression(m: Module, signal: Callable[[str], Signal]) -> Value:
        age = Signal(range(cycles + 1), reset_less=True)
        with m.If(ResetSignal("sync")):
            m.d.sync += age.eq(0)
        with m.Elif(age != cycles):
            m.d.sync += age.eq(age + 1)
        return age == cycles

    return expression


_WALKED = ("a walk steps behind a start only, and before it nobody looks where it stands (PlaneAddressGenerator, PoolWalk; states "
           "of Sweep)")
SURROUNDINGS: dict[str, tuple[Surroundings, ...]] = {
    "acore/buffers.py": (Surroundings(
        "a beat is taken exactly two cycles after it was asked for, from a memory that there is (StoreBus; Storer refuses others)",
        promised=_source_that_exists(0), seen={"store__0__data": _cycles_behind("store__0__en", 2)}),),
    "acore/first_pass.py": (Surroundings(
        "every beat has its first lane (StreamAddressGenerator), and where there is none nothing is added: the lanes are 0, and a "
        "sum that begins anew there does so again with the next beat, before it is looked at (ChannelSums; ready of FirstPass)",
        promised=_first_lane, seen={"add": _beat_to_add}),),
    "acore/stream_address.py": (Surroundings(_WALKED, promised=_steps_behind_a_start, seen={"idx": _started}),),
    "acore/pool.py": (Surroundings(
        "a window's value counts in the one cycle that follows its last tap by POOL_LATENCY, its index a cycle later (Pool)",
        seen={"value": _behind_the_last_tap(1), "index": _behind_the_last_tap(2)}),),
    "acore/poolwalk.py": (Surroundings(_WALKED, promised=_steps_behind_a_start, seen={"addr": _started}),),
    "acore/softmax.py": (Surroundings(
        "what the rounder takes counts with what says that it is valid, a quotient or a logit (error_valid of Softmax), an address "
        "of output A with its enable",
        seen={"g": _error_of_a_class, "oa__addr": _with("oa__we")}),),
    "acore/tail.py": (Surroundings(
        "words are read of a command that was taken (Tail)", seen={"at": _since("take")}),),
    "memory_path/loader.py": (Surroundings(
        "the load bus counts with valid (LoadBus)", seen={"bus__addr": _with("bus__valid")}),),
    "registers/counters.py": (Surroundings(
        "read.value is read two cycles after its index changed (Counters); an answer of the registers takes three from reset on "
        "(READ_WAIT)",
        seen={"read__value": _later_than_reset(1)}),),
    "sequencer/program_fetch.py": (Surroundings(
        "a response comes to a request only, and a request behind a jump; its ready counts with valid, as the data of a FIFO count "
        "with w_en (ProgramFetch, proof of the read manager's data)",
        promised=_answer_to_a_request, seen={"response__ready": _with("response__valid"), "w_data": _with("w_en")}),),
    "sequencer/tails.py": (Surroundings(
        "nobody looks at the slot of the command that started last before one has started (port of a queue)",
        seen={"slot": _behind("next")}),),
}
"""By file: of those of its modules that have all these signals."""
