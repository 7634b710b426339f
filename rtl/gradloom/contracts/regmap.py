"""The register map and the error codes, declared once.

The CSR block, ``docs/registers.md``, the C header, the JSON and SystemRDL descriptions and the host driver all read these tables.
Every register is a 32-bit word at a multiple of 4 on the AXI4-Lite subordinate ``s_axil``.
"""

import dataclasses
import enum
from collections.abc import Callable

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import PROGRAM_MAGIC, PROGRAM_VERSION
from gradloom.contracts.matrix_config import MatrixConfig

__all__ = ["ERROR_DOCS", "PERF_MAC_USE", "REGISTERS", "TOTALS", "Access", "Bits", "Effect", "ErrorCode",
           "Register",
           "offset", "perf_entries", "perf_index", "register"]

HARDWARE_VERSION = 3


class ErrorCode(enum.IntEnum):
    """Low byte of the ERROR register; the first error of a start wins."""

    NONE = 0x00
    PROGRAM_HEADER = 0x01
    MALFORMED_COMMAND = 0x02
    WATCHDOG = 0x03
    ABORTED = 0x04
    PROGRAM_ADDRESS = 0x05
    PSUM_OVERFLOW = 0x10
    WG_OVERFLOW = 0x11
    GRADIENT_SUM_OVERFLOW = 0x12
    ILLEGAL_FIELD = 0x20
    LABEL_RANGE = 0x21
    READ_RESPONSE = 0x30
    READ_WINDOW = 0x31
    WRITE_RESPONSE = 0x32
    WRITE_WINDOW = 0x33


ERROR_DOCS: dict[ErrorCode, str] = {
    ErrorCode.NONE: "no error",
    ErrorCode.PROGRAM_HEADER: "the program's magic, version or configuration digest is not this machine's",
    ErrorCode.MALFORMED_COMMAND: "a command's opcode or length, the end of the program without END, or a semaphore"
                                 " signalled above 255",
    ErrorCode.WATCHDOG: "no engine finished, no AXI4 beat moved and no command was taken for WATCHDOG cycles",
    ErrorCode.ABORTED: "the host wrote CONTROL.abort",
    ErrorCode.PROGRAM_ADDRESS: "PROGRAM is no multiple of 64, or the program reaches beyond the window",
    ErrorCode.PSUM_OVERFLOW: "a partial sum overflowed",
    ErrorCode.WG_OVERFLOW: "a weight-gradient accumulator overflowed",
    ErrorCode.GRADIENT_SUM_OVERFLOW: "a gradient sum, or an addition in the A-Core, left 64 bits",
    ErrorCode.ILLEGAL_FIELD: "an illegal field in a command",
    ErrorCode.LABEL_RANGE: "a label is not below the number of classes",
    ErrorCode.READ_RESPONSE: "an AXI4 read was answered with SLVERR or DECERR",
    ErrorCode.READ_WINDOW: "a read address outside the window (not issued)",
    ErrorCode.WRITE_RESPONSE: "an AXI4 write was answered with SLVERR or DECERR",
    ErrorCode.WRITE_WINDOW: "a write address outside the window (not issued)",
}

_UNITS = [unit for unit in Unit if unit != Unit.SEQ]
_UNIT_NUMBERS = ", ".join(f"{unit.value} {unit.name}" for unit in _UNITS)


class Access(enum.Enum):
    """Who may access a register when; a refused access is answered with SLVERR and changes nothing."""

    RO = "read"
    RW = "read, write"
    RW_IDLE = "read, write while idle"
    IDLE = "read and write while idle"
    RO_IDLE = "read while idle"


class Effect(enum.Enum):
    """What a write does to bits of a register that may be written."""

    HELD = "takes what is written; the machine only reads it"
    SHARED = "takes what is written; the machine writes it, too"
    COMMAND = "1 is a command; reads 0"
    CLEARS_ONES = "1 clears; the machine sets it"
    CLEARS_ALL = "anything clears all bits; the machine writes it"
    IGNORED = "nothing; the machine writes it"


@dataclasses.dataclass(frozen=True)
class Bits:
    """``width`` bits at ``lsb`` of a register.

    Parameters
    ----------
    effect : :class:`Effect`
        Of a write, if the register may be written.
    codes : type of :class:`enum.IntEnum` or :class:`None`
        What the values are called.
    """

    name: str
    lsb: int
    width: int
    doc: str
    effect: Effect = Effect.HELD
    codes: type[enum.IntEnum] | None = None

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.lsb


@dataclasses.dataclass(frozen=True)
class Register:
    """One 32-bit register.

    Parameters
    ----------
    stored : :class:`bool`
        A plain register that the host writes and the machine reads; all others are served by the machine.
    constant : callable or :class:`None`
        A read-only value that the configuration alone fixes.
    effect : :class:`Effect`
        Of a write, if it may be written and has no fields.
    read_acts : :class:`bool`
        A read changes something; ``doc`` says what.
    """

    name: str
    offset: int
    access: Access
    doc: str
    fields: tuple[Bits, ...] = ()
    reset: int = 0
    stored: bool = False
    constant: Callable[[Config], int] | None = None
    effect: Effect = Effect.HELD
    read_acts: bool = False

    def field(self, name: str) -> Bits:
        for bits in self.fields:
            if bits.name == name:
                return bits
        raise KeyError(f"register {self.name} has no field {name!r}")


PERF_MAC_USE = len(Unit)
"""PERF_INDEX.table of the cycles in which the array issued multiply-accumulates; the tables below it are the busy cycles
of the :class:`gradloom.contracts.engines.Unit` of that number."""

TOTALS = ("READ_BEATS", "WRITE_BEATS", "MAC_USE",
          *(f"BUSY_{unit.name}" for unit in _UNITS), *(f"WAIT_{unit.name}" for unit in _UNITS))
"""48-bit counters with a ``_LOW`` and a ``_HIGH`` register each, in order from TOTALS_OFFSET."""
TOTALS_OFFSET = 0x200

_TOTAL_DOCS = {"READ_BEATS": "AXI4 read beats of all ports", "WRITE_BEATS": "AXI4 write beats of all ports",
               "MAC_USE": "cycles in which the array took a window (all its MACs work at once)"}


def _total(name: str) -> str:
    kind, _, engine = name.partition("_")
    if name in _TOTAL_DOCS:
        return _TOTAL_DOCS[name]
    what = "ran a command" if kind == "BUSY" else "held a command that waited for a semaphore"
    return f"cycles in which {engine} {what}"


def _shape(name: str, place: int, doc: str) -> Register:
    return Register(name.upper(), 0x010 + 4 * place, Access.RO, doc, constant=lambda config: getattr(config, name, 0))


def _array(config: Config | MatrixConfig) -> int:
    """SHAPE."""
    if isinstance(config, MatrixConfig):
        sizes, kind = (config.lanes, config.rows, config.columns), 1 << 25
    else:
        sizes, kind = (config.clusters, config.wpus, config.cols), (config.mac == "post_shift") << 24
    first, second, third = sizes
    return first | second << 8 | third << 16 | kind | config.load_channels << 26 | config.store_channels << 29


REGISTERS: tuple[Register, ...] = (
    Register("ID", 0x000, Access.RO, "0x4D4C5247, the bytes `GRLM`", constant=lambda config: PROGRAM_MAGIC),
    Register("VERSION", 0x004, Access.RO, "versions", (
        Bits("program", 0, 16, "version of the program encoding"),
        Bits("hardware", 16, 16, "version of this register map")),
        constant=lambda config: HARDWARE_VERSION << 16 | PROGRAM_VERSION),
    Register("CONFIG", 0x008, Access.RO, "digest of the configuration; a program's header must hold the same",
             constant=lambda config: config.digest()),
    Register("SHAPE", 0x00C, Access.RO, "the array", (
        Bits("clusters", 0, 8, "output channels; of a matrix core the lanes"),
        Bits("wpus", 8, 8, "output rows; of a matrix core the rows"),
        Bits("cols", 16, 8, "input channels; G, the channel group of the memory formats; of a matrix core the columns"),
        Bits("mac", 24, 1, "0 decode_once or double_pumped, 1 post_shift"),
        Bits("matrix", 25, 1, "1 a matrix core; the registers of other sizes then read 0"),
        Bits("load_channels", 26, 3, "Loaders"), Bits("store_channels", 29, 3, "Storers")),
        constant=_array),
    _shape("psum_width", 0, "bits of a partial sum"),
    _shape("wg_width", 1, "bits of a weight-gradient accumulator"),
    _shape("ibuf_depth", 2, "entries of an input bank"),
    _shape("ebuf_depth", 3, "entries of an error bank"),
    _shape("wbuf_depth", 4, "blocks of a weight bank"),
    _shape("psum_depth", 5, "words of a partial-sum bank"),
    _shape("abuf_depth", 6, "beats of an auxiliary buffer"),
    _shape("mbuf_depth", 7, "beats of a bitmap buffer"),
    _shape("pbuf_depth", 8, "entries of the parameter buffer"),
    _shape("dw_depth", 9, "beats of the weight-gradient buffer"),
    _shape("max_planes", 10, "planes of one A-Core command"),
    _shape("max_classes", 11, "logits of the softmax unit"),
    _shape("tensors", 12, "entries of the exponent file"),
    _shape("queue_words", 13, "words of an engine's command queue"),
    _shape("microcode_depth", 14, "microinstructions of the A-Core's program memory"),
    _shape("export_depth", 15, "beats of the import and export buffers of weight gradients"),
    Register("CONTROL", 0x080, Access.RW, "commands to the machine", (
        Bits("start", 0, 1, "1 starts the program at PROGRAM; ignored while running; reads 0", Effect.COMMAND),
        Bits("abort", 1, 1, "1 stops a running program with error 0x04; reads 0", Effect.COMMAND),
        Bits("clear", 2, 1, "with start: clear every counter first; reads 0", Effect.COMMAND),
        Bits("irq_enable", 8, 1, "let STATUS.irq drive the interrupt line"))),
    Register("STATUS", 0x084, Access.RW, "state; write 1 to irq to acknowledge it", (
        Bits("idle", 0, 1, "no program runs", Effect.IGNORED),
        Bits("running", 1, 1, "a program runs or is being stopped", Effect.IGNORED),
        Bits("done", 2, 1, "the last program reached END; sticky until the next start", Effect.IGNORED),
        Bits("error", 3, 1, "the last program was stopped by an error; sticky until the next start", Effect.IGNORED),
        Bits("stopping", 4, 1, "outstanding AXI4 bursts are being finished; ends with STATUS.idle", Effect.IGNORED),
        Bits("irq", 5, 1, "a program ended, well or not; the next start clears it as well", Effect.CLEARS_ONES)), reset=1),
    Register("ERROR", 0x088, Access.RO, "the first error of the last start", (
        Bits("code", 0, 8, "error code", codes=ErrorCode),
        Bits("engine", 8, 4, f"engine: 0 the Sequencer and the machine as a whole, {_UNIT_NUMBERS}"),
        Bits("tag", 16, 16, "tag of that engine's command"))),
    Register("ERROR_OFFSET", 0x08C, Access.RO, "byte offset of that command from the first command of the program"),
    Register("ERROR_STATE", 0x090, Access.RO, "engines at the time of the error", (
        Bits("busy", 0, 16, "a command ran (bit = number of the engine)"),
        Bits("waiting", 16, 16, "a command waited for a semaphore"))),
    Register("OFFSET", 0x094, Access.RO, "byte offset of the command that the Sequencer is at"),
    Register("PROGRAM", 0x0A0, Access.RW_IDLE, "DRAM byte address of the program header, a multiple of 64",
             stored=True),
    Register("STEPS", 0x0A4, Access.RW_IDLE, "steps of the next start: LOOP goes back STEPS - 1 times (0 as 1)",
             reset=1, stored=True),
    Register("STEP", 0x0A8, Access.RW_IDLE,
             "number of the current step; every LOOP counts it up, so a later start goes on", effect=Effect.SHARED),
    Register("SEED", 0x0AC, Access.RW_IDLE, "run seed of the stochastic rounding", stored=True),
    Register("WINDOW_BASE", 0x0B0, Access.RW_IDLE, "first DRAM byte address that the machine may touch", stored=True),
    Register("WINDOW_LIMIT", 0x0B4, Access.RW_IDLE, "first DRAM byte address behind the window", stored=True),
    Register("WATCHDOG", 0x0B8, Access.RW_IDLE, "cycles without progress after which a program is stopped; 0 = never",
             reset=1 << 24, stored=True),
    Register("CYCLES_LOW", 0x0C0, Access.RO,
             "cycles in which a program ran since CONTROL.clear, low half; reading it latches the high half",
             read_acts=True),
    Register("CYCLES_HIGH", 0x0C4, Access.RO, "latched high half"),
    Register("EXP_INDEX", 0x0C8, Access.RW_IDLE, "tensor that EXP_VALUE and STAT access", (
        Bits("tid", 0, 11, "tensor number", Effect.SHARED),)),
    Register("EXP_VALUE", 0x0CC, Access.IDLE, "exponent e[EXP_INDEX]; an access counts EXP_INDEX up", (
        Bits("exponent", 0, 16, "two's complement; reads sign-extended", Effect.SHARED),), read_acts=True),
    Register("STAT_LOW", 0x0D0, Access.IDLE, "stat[EXP_INDEX], bits 31:0; writing anything clears all 64 bits",
             effect=Effect.CLEARS_ALL),
    Register("STAT_HIGH", 0x0D4, Access.RO_IDLE, "stat[EXP_INDEX], bits 63:32"),
    Register("PERF_INDEX", 0x0D8, Access.RW, "counter that PERF_LOW and PERF_HIGH show", (
        Bits("tag", 0, 16, "tag, modulo the number of entries (512, or `tensors` rounded up to a power of 2 if more)",
             Effect.SHARED),
        Bits("table", 16, 4, f"{_UNIT_NUMBERS}: busy cycles; {PERF_MAC_USE}: cycles in which the array took a window"))),
    Register("PERF_LOW", 0x0DC, Access.RO_IDLE, "counter, bits 31:0"),
    Register("PERF_HIGH", 0x0E0, Access.RO_IDLE, "counter, bits 35:32; reading it counts PERF_INDEX.tag up", read_acts=True),
    Register("HYPER", 0x0E4, Access.RO, "hyperparameters of the last LDHYP", (
        Bits("lm", 0, 8, "learning rate's mantissa"), Bits("momentum", 8, 8, "momentum of 256"),
        Bits("decay_off", 16, 1, "no weight decay"))),
    *(Register(f"BASE{n}", 0x100 + 4 * n, Access.RW_IDLE, f"base register {n}, as SETBASE and ADDBASE leave it",
               effect=Effect.SHARED) for n in range(8)),
    *(Register(f"{name}_{half}", TOTALS_OFFSET + 8 * place + 4 * high, Access.RO, f"{_total(name)}, {note}",
               read_acts=not high)
      for place, name in enumerate(TOTALS)
      for high, (half, note) in enumerate((("LOW", "bits 31:0; reading it latches the high half"),
                                           ("HIGH", "latched high half")))),
)
"""Every register in the order of its offset."""

_BY_NAME = {register.name: register for register in REGISTERS}


def register(name: str) -> Register:
    """The register of that name."""
    return _BY_NAME[name]


def offset(name: str) -> int:
    """Byte offset of a register on ``s_axil``."""
    return _BY_NAME[name].offset


def perf_entries(config: Config) -> int:
    """Tags that the performance counters tell apart: the low bits of the tag count."""
    return max(512, 1 << (config.tensors - 1).bit_length())


def perf_index(table: int, tag: int) -> int:
    """PERF_INDEX value of a table (a :class:`gradloom.contracts.engines.Unit` or PERF_MAC_USE) and a tag."""
    return table << 16 | tag & 0xFFFF
