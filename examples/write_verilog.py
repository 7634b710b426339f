"""Write the Verilog of a machine of your own, with its register map for the driver that you write.

    python examples/write_verilog.py        # about 15 seconds; leaves the folder "my-machine"
"""

import dataclasses

from gradloom.api import ConfigError, load_config, verilog

# A machine is a frozen dataclass of sizes. Begin with a preset and change what you want changed.
config = dataclasses.replace(load_config("nano"), name="my-machine", queue_words=512)
print(f"{config.name}: {config.macs} multipliers, digest {config.digest():#010x}")

# Sizes that do not fit together are refused, with the rule and the fix.
try:
    dataclasses.replace(config, cols=3)
except ConfigError as error:
    print(f"refused: {error}")

for file in verilog(config, "my-machine"):
    print(f"{file}: {file.stat().st_size:,} bytes")
