"""``gradloom verilog``: a self-contained folder with the Verilog, the register map and the resolved configuration; as a package
also what other tools take it by."""

import argparse
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from typing import cast

from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import CORE, MatrixConfig, load_machine
from gradloom.host.environment import check_output_folder, check_yosys
from gradloom.host.files import UserError
from gradloom.host.requests import FOLDER, MACHINE, Types, check_choice, check_types, option_values

__all__ = ["TARGETS", "VerilogRequest", "run", "write_verilog"]

TARGETS = ("any", "xc7")
"""Families whose own blocks may take the place of plain Verilog: none, or DSP48E1 slices of the Xilinx 7 series."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerilogRequest:
    """Verilog of a machine.

    Parameters
    ----------
    config : :class:`~gradloom.contracts.config.Config`, :class:`~gradloom.contracts.matrix_config.MatrixConfig` or :class:`str`
        The machine, a preset's name or a TOML file.
    out : path
        Folder to write, which must not exist.
    family : :class:`str`
        "any", or "xc7" for MACs of DSP48E1 slices.
    package : :class:`bool`
        Also a FuseSoC core file, the registers in SystemRDL and, of a machine with narrower beats, a top module with AXI4 data of
        32 bits.

    Raises
    ------
    :exc:`~gradloom.host.requests.FieldError`
        If a value is none of these.
    """

    config: Config | MatrixConfig | str = "small"
    out: Path
    family: str = "any"
    package: bool = False

    def __post_init__(self) -> None:
        check_types(self, config=MACHINE, out=FOLDER, package=Types(bool, "True or False"))
        check_choice(self, "family", TARGETS)


def run(options: argparse.Namespace) -> int:
    """Write the folder and print its files. Returns 0."""
    for file in write_verilog(VerilogRequest(**option_values(VerilogRequest, options))):
        print(f"{file}  {file.stat().st_size:,} bytes")
    return 0


def write_verilog(request: VerilogRequest) -> tuple[Path, ...]:
    """Write Verilog, register map (Markdown, C header, JSON) and the resolved configuration; of a package also what
    :class:`VerilogRequest` says.

    Returns
    -------
    tuple of :class:`~pathlib.Path`
        The files, by name.

    Raises
    ------
    :exc:`UserError`
        If the folder exists or cannot be written, the family does not fit the machine, or Yosys is missing.
    """
    from gradloom.contracts.regmap_export import to_c_header, to_json, to_markdown
    from gradloom.rtl.verilog import EmissionError, emit_verilog
    from gradloom.rtl.xc7 import with_dsp48

    machine = load_machine(request.config) if isinstance(request.config, str) else request.config
    # Of a configuration only what both kinds of machines have is read from here on, but for the array's MAC.
    config = cast(Config, machine)
    family, target = request.family, request.out
    if family == "xc7" and isinstance(machine, Config) and config.mac == "post_shift":
        raise UserError(f"--family xc7 needs mac = 'decode_once' or 'double_pumped', and {config.name} has "
                        f"{config.mac!r}: leave --family out")
    if family != "any" and config.family not in ("any", family):
        raise UserError(f"--family {family} does not fit {config.name}, which is made for {config.family!r}: "
                        "leave --family out")
    if target.exists():
        raise UserError(f"{target} exists already: give a folder that does not, nothing is overwritten")
    check_output_folder(target)
    check_yosys()
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for name, text in emit_verilog(config).items():
            (staging / name).write_text(with_dsp48(text) if family == "xc7" else text)
        (staging / "registers.md").write_text(to_markdown(config))
        (staging / "gradloom_registers.h").write_text(to_c_header(config))
        (staging / "registers.json").write_text(to_json(config))
        kind = {"core": CORE} if isinstance(machine, MatrixConfig) else {}
        resolved = kind | dataclasses.asdict(config) | {"macs": config.macs, "digest": f"0x{config.digest():08x}"}
        (staging / "config.json").write_text(json.dumps(resolved, indent=1) + "\n")
        if request.package:
            _write_package(staging, config, family)
        staging.chmod(0o755)
        staging.rename(target)
    except EmissionError as error:
        raise UserError(f"{error}: run gradloom doctor") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return tuple(sorted(target.iterdir()))


def _write_package(folder: Path, config: Config, family: str) -> None:
    """What a package has beyond the Verilog, which is in the folder already."""
    from gradloom.contracts.regmap_systemrdl import to_systemrdl
    from gradloom.host.fusesoc import fusesoc_core
    from gradloom.rtl.axi32 import PORT_BYTES, TOP32, emit_axi32, is_narrow
    from gradloom.rtl.verilog import TOP

    top, verilog = TOP, sorted(path.name for path in folder.glob("*.v"))
    if is_narrow(config):
        top = TOP32
        for name, text in emit_axi32(config).items():
            (folder / name).write_text(text)
            verilog.append(name)
    (folder / "registers.rdl").write_text(to_systemrdl(config))
    (folder / "gradloom.core").write_text(fusesoc_core(
        config, family=family, top=top, verilog=verilog, width=8 * max(PORT_BYTES, config.beat_bytes)))
