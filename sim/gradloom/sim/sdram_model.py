"""The pin-level SDRAM model (``sdram_model.h``) for benches in Python, a cycle at a time."""

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from gradloom.contracts.sdram_timing import SdramPart, SdramTiming
from gradloom.sim.verilate import BuildError, alone, cache_folder, compiler

__all__ = ["Counts", "ModelSettings", "Pins", "SdramModel", "model_settings"]

_SOURCES = ("sdram_model.h", "sdram_model.cpp")
_FLAGS = ("-std=gnu++17", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")


class ModelSettings(ctypes.Structure):
    """``SdramSettings`` of the model's header (:func:`model_settings`)."""

    _fields_ = [(name, ctypes.c_uint32) for name in (
        "word_bytes", "column_bits", "row_bits", "bank_bits", "rp", "rcd", "ras", "rc", "rfc", "rrd", "wr", "mrd", "power_up",
        "init_refreshes", "retention", "refresh_gap", "least_cas", "capture", "ignores_columns", "forgets")]


def model_settings(part: SdramPart, timing: SdramTiming, *, capture: int = 0, ignores_columns: bool = False,
                   forgets: bool = False) -> dict[str, int]:
    """The fields of ``SdramSettings`` for a part and its cycles at a clock.

    A REFRESH must come within the average interval of the part and what open rows may still need then.
    """
    late = timing.ras + timing.wr + timing.rcd + timing.mrd + timing.rp + 1
    shared = {name: getattr(timing, name) for name in ("rp", "rcd", "ras", "rc", "rfc", "rrd", "wr", "mrd", "power_up",
                                                       "init_refreshes", "retention")}
    return shared | {
        "word_bytes": part.word_bytes, "column_bits": part.columns.bit_length() - 1, "row_bits": part.rows.bit_length() - 1,
        "bank_bits": part.banks.bit_length() - 1, "refresh_gap": timing.retention // part.rows + late, "least_cas": timing.cas,
        "capture": capture, "ignores_columns": int(ignores_columns), "forgets": int(forgets)}


@dataclasses.dataclass(frozen=True)
class Pins:
    """What a controller's pins show in a cycle; by default, no command."""

    cke: int = 1
    cs_n: int = 1
    ras_n: int = 1
    cas_n: int = 1
    we_n: int = 1
    ba: int = 0
    a: int = 0
    dqm: int = 0
    dq_o: int = 0
    dq_oe: int = 0


@dataclasses.dataclass(frozen=True)
class Counts:
    """Commands so far; ``precharges`` counts PRECHARGE ALL once."""

    reads: int
    writes: int
    activates: int
    precharges: int
    refreshes: int


@functools.cache
def _library() -> ctypes.CDLL:
    """The model's library, from the cache if it holds it."""
    folder = Path(__file__).parent
    name = compiler()
    if name is None:
        raise BuildError("the SDRAM model needs a C++ compiler: install g++ or clang++")
    version = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
    texts = [(folder / source).read_text() for source in _SOURCES]
    digest = hashlib.sha256(repr((texts, _FLAGS, version)).encode()).hexdigest()
    path = cache_folder() / "sdram" / f"{digest[:32]}.so"
    with alone(path):
        if not path.is_file():
            with tempfile.TemporaryDirectory(dir=path.parent) as work:
                made = Path(work) / path.name
                done = subprocess.run([name, *_FLAGS, str(folder / "sdram_model.cpp"), "-o", str(made)], capture_output=True,
                                      text=True)
                if done.returncode:
                    raise BuildError(f"the SDRAM model does not compile: {done.stderr.strip()}")
                os.replace(made, path)
    library = ctypes.CDLL(str(path))
    handle, u32 = ctypes.c_void_p, ctypes.c_uint32
    for function, result, arguments in (
            ("new", handle, [ctypes.POINTER(ModelSettings)]), ("delete", None, [handle]),
            ("cycle", u32, [handle, u32, u32, u32, u32, u32, ctypes.c_int]), ("violations", ctypes.c_char_p, [handle]),
            ("size", ctypes.c_uint64, [handle]), ("bytes", ctypes.POINTER(ctypes.c_uint8), [handle]),
            ("counts", None, [handle, ctypes.POINTER(ctypes.c_uint64)])):
        getattr(library, f"sdram_{function}").restype = result
        getattr(library, f"sdram_{function}").argtypes = arguments
    return library


class SdramModel:
    """An SDRAM that checks its controller. Close it, or use it as a context manager.

    Parameters
    ----------
    settings : mapping of :class:`str` to :class:`int`
        From :func:`model_settings`.
    """

    def __init__(self, settings: dict[str, int]) -> None:
        self._library = _library()
        self._cycle = self._library.sdram_cycle
        self._handle: int | None = self._library.sdram_new(ctypes.byref(ModelSettings(**settings)))
        if not self._handle:
            raise MemoryError("no memory for the SDRAM model")
        self.size: int = self._library.sdram_size(self._handle)

    def __enter__(self) -> "SdramModel":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            self.close()

    def close(self) -> None:
        """Frees the memory."""
        if self._handle:
            self._library.sdram_delete(self._handle)
            self._handle = None

    def cycle(self, control: int, ba: int, a: int, dqm: int, dq_o: int, *, reset: bool = False) -> int:
        """One cycle; returns ``dq_i`` in it. ``control``: dq_oe, we_n, cas_n, ras_n, cs_n, cke from its low end."""
        return int(self._cycle(self._handle, control, ba, a, dqm, dq_o, reset))

    def step(self, pins: Pins, *, reset: bool = False) -> int:
        """One cycle with these pins; returns ``dq_i`` in it."""
        control = (pins.dq_oe | pins.we_n << 1 | pins.cas_n << 2 | pins.ras_n << 3 | pins.cs_n << 4 | pins.cke << 5)
        return self.cycle(control, pins.ba, pins.a, pins.dqm, pins.dq_o, reset=reset)

    @property
    def violations(self) -> list[str]:
        """``in cycle N: RULE: [bank B:] what``, at most 32, the first first."""
        text = self._library.sdram_violations(self._handle).decode()
        return text.split("\n") if text else []

    @property
    def counts(self) -> Counts:
        values = (ctypes.c_uint64 * 5)()
        self._library.sdram_counts(self._handle, values)
        return Counts(*values)

    @property
    def data(self) -> memoryview:
        """The bytes in the order of the controller's addresses; to be written, too."""
        pointer = self._library.sdram_bytes(self._handle)
        return memoryview(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint8 * self.size)).contents).cast("B")
