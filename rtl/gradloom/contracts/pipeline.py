"""Depths of the machine's pipelines, queues and buffers on the way to memory: the RTL is built with them or asserts them, and the
cost model counts with them.

Sizes and latencies of single parts come first; the RTL takes them from here. *Paths* lead through several parts: what they add up
to is counted on the RTL, command by command, in ``verif/tests/rtl/acore/test_acore.py``, ``.../ccore/test_ccore.py`` and
``verif/tests/system/test_pipeline.py``. All are cycles unless a line says otherwise.
"""

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, engine_of
from gradloom.contracts.isa import Engine, Opcode

__all__ = [
    "ACORE_ACCEPT", "ACORE_TO_PASS", "BURST_BEATS", "CONVOLUTIONS_IN_FLIGHT", "CONVOLUTION_END", "CONVOLUTION_START",
    "DRAIN_END", "EPSILON_APART", "FETCH_AHEAD", "FETCH_BEATS", "FETCH_CHUNK", "FETCH_LATENCY", "LOADS_IN_FLIGHT", "LOAD_ISSUE",
    "LOAD_REQUEST", "LONG_SWEEP", "OUTSTANDING_READS", "PARAMETER_READ", "PARAMETER_WRITE", "PASS_END", "POOL_START",
    "POOL_WALK", "PREPARE_SETUP", "PREPARE_START", "QUEUE_ROOM", "QUEUE_START", "READ_END", "READ_LATENCY", "RUNS_IN_FLIGHT",
    "SCALAR_LATENCY", "SEQUENCER_CYCLES", "SEQUENCER_HANDOUT", "SOFTMAX_START", "STORES_IN_FLIGHT", "STORE_FIFO", "STORE_ISSUE",
    "SWEEPS_APART", "SWEEP_END", "SWEEP_LEAST", "SWEEP_START", "UCODE_END", "WRITE_END", "WRITE_LATENCY", "divider_latency",
    "dividers", "in_flight", "softmax_cycles", "squared_cycles",
]

# Engines

LOADS_IN_FLIGHT = STORES_IN_FLIGHT = RUNS_IN_FLIGHT = 4
CONVOLUTIONS_IN_FLIGHT = 3
"""Commands of an engine that may have started and not ended."""


def in_flight(unit: Unit) -> int:
    """Commands that an engine may have under way."""
    return {Engine.LOAD: LOADS_IN_FLIGHT, Engine.CCORE: CONVOLUTIONS_IN_FLIGHT, Engine.ACORE: RUNS_IN_FLIGHT,
            Engine.STORE: STORES_IN_FLIGHT}[engine_of(unit)]


QUEUE_START = 1
"""From the last condition of a command (engine free, semaphores, words in the queue) to its start."""
QUEUE_ROOM = 1
"""From a command's end until its engine has room for one more."""

# Sequencer

SEQUENCER_HANDOUT = 2
"""Of the Sequencer for a command of an engine, beside one for each pair of its words."""
SEQUENCER_CYCLES = {Opcode.SCALE: 14, Opcode.EXPSET: 14, Opcode.SEED: 30, Opcode.SETBASE: 3, Opcode.ADDBASE: 3, Opcode.BARRIER: 4,
                    Opcode.LOOP: 6, Opcode.LDHYP: 70}
"""Of its own commands, after their last word."""

# Memory path

BURST_BEATS = 64
"""Longest burst in beats. 64 beats of at most 16 bytes divide 4 KiB, so bursts that do not cross a multiple of 64 beats do not
cross a 4 KiB boundary either (AXI4, section A3.4.1)."""
OUTSTANDING_READS = 32
"""Bursts that may be under way. Loads with runs of a few beats need many to cover the memory's latency."""
FETCH_BEATS = 2 * BURST_BEATS
"""Beats of the program fetch's response buffer."""
FETCH_CHUNK = 64
"""Bytes of one request of the program fetch; requests end at multiples of it, so none crosses 4 KiB."""
FETCH_AHEAD = 512
"""Words of the program fetch's FIFO: how far the program is read ahead. It has to last while the next chunk's data wait for those
of the Loader's bursts on the same port."""
STORE_FIFO = 16
"""Beats that a Storer has read and not written."""
LOAD_ISSUE, STORE_ISSUE = 4, 4
"""From a LOAD's or STORE's start until the engine could take the next one, beside a cycle a burst, resp. a beat."""
READ_LATENCY, READ_END = 8, 3
"""From a LOAD's start to its address at the memory and back, without the memory's latency; from the last beat to done."""
WRITE_LATENCY, WRITE_END = 6, 3
"""The same of a STORE, whose answer takes the memory's latency."""
LOAD_REQUEST = 6
"""From a LOAD's start until its first request is at the memory."""
FETCH_LATENCY = 12
"""Of a read of the program, beside the memory's latency."""
PARAMETER_READ, PARAMETER_WRITE = 3, 2
"""From a STORE's start until it reads the parameter buffer, and from a beat's arrival at the port to that buffer."""

# C-Core

CONVOLUTION_START, CONVOLUTION_END = 3, 13
"""From a CONV's start to its first window in the array; from its last one to done, beside a cycle a column."""
DRAIN_END = 11
"""The same of one whose gradients leave the array, beside their beats and a cycle a column."""

# A-Core: first pass, preparation, sweep

ACORE_ACCEPT = 1
"""From a command's leaving of the first stage until that can take the next one."""
ACORE_TO_PASS = 3
"""From a RUN's start to the first beat of its first pass, or without one to its preparation."""
PASS_END = 9
"""From the last beat of a first pass to its sums."""
PREPARE_SETUP, PREPARE_START = 2, 3
"""From a command's acceptance in the second stage to the set-up's first step, and to the first microinstruction."""
SCALAR_LATENCY = 14
"""From a scalar's issue to its result."""
EPSILON_APART = 3
"""From a SCALAR that gives epsilon to one that waits for it."""
SWEEP_START, SWEEP_LEAST = 2, 18
"""Before a sweep's first beat; from there to its last one, at least."""
POOL_WALK = 19
"""From the acceptance of a pool to its first tap, and from its last one to its last beat."""
POOL_START = 17
"""Of these: before the first tap."""
SWEEP_END, LONG_SWEEP = 28, 7
"""From a sweep's last beat to done on the short path through the lanes; more on the long one, by way of encoder 1."""
SWEEPS_APART = 35
"""From a sweep's first beat to the next one's, at least."""
UCODE_END = 3
"""Of a UCODE, beside a cycle a word."""
SOFTMAX_START = 1
"""Of a SOFTMAX, beside those of :func:`softmax_cycles` or :func:`squared_cycles`."""


def dividers(config: Config) -> int:
    """Division blocks: one for four channels, so that a plane is divided within 52 cycles, or one for two channels where there are
    several WPUs, which finish planes that much sooner."""
    return max(1, config.group // (2 if config.wpus > 1 else 4))


def divider_latency(config: Config) -> int:
    """Of a division block from its start to the quotient."""
    return 12 if config.divider_bits == 2 else 33


def squared_cycles(config: Config) -> tuple[int, int]:
    """Of the gradient of the squared loss: a class, and an image beside its classes."""
    return (1, 6) if config.divider_bits == 2 else (1, 7)


def softmax_cycles(config: Config) -> tuple[int, int]:
    """The same of softmax; a quotient that is made a bit a cycle takes 18, two bits a cycle come one after the other in 10."""
    return (3, 21) if config.divider_bits == 2 else (20, 13)
