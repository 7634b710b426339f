"""``gradloom verilog``: a self-contained folder with the Verilog, the register map and the resolved configuration."""

import argparse
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path

from gradloom.contracts.config import load_config
from gradloom.host.environment import check_output_folder, check_yosys
from gradloom.host.files import UserError

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    from gradloom.contracts.regmap_export import to_c_header, to_json, to_markdown
    from gradloom.rtl.emission import EmissionError, emit_verilog
    from gradloom.rtl.xc7 import with_dsp48

    config = load_config(options.config)
    if options.family == "xc7" and config.mac == "post_shift":
        raise UserError(f"--family xc7 needs mac = 'decode_once' or 'double_pumped', and {config.name} has {config.mac!r}: "
                        "leave --family out")
    if options.family != "any" and config.family not in ("any", options.family):
        raise UserError(f"--family {options.family} does not fit {config.name}, which is made for {config.family!r}: "
                        "leave --family out")
    target: Path = options.out
    if target.exists():
        raise UserError(f"{target} exists already: give a folder that does not, nothing is overwritten")
    check_output_folder(target)
    check_yosys()
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for name, text in emit_verilog(config).items():
            (staging / name).write_text(with_dsp48(text) if options.family == "xc7" else text)
        (staging / "registers.md").write_text(to_markdown(config))
        (staging / "gradloom_registers.h").write_text(to_c_header(config))
        (staging / "registers.json").write_text(to_json(config))
        resolved = dataclasses.asdict(config) | {"macs": config.macs, "digest": f"0x{config.digest():08x}"}
        (staging / "config.json").write_text(json.dumps(resolved, indent=1) + "\n")
        staging.chmod(0o755)
        staging.rename(target)
    except EmissionError as error:
        raise UserError(f"{error}: run gradloom doctor") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    for file in sorted(target.iterdir()):
        print(f"{file}  {file.stat().st_size:,} bytes")
    return 0
