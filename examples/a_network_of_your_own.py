"""Define a network in Python, compile it for a machine, and see what a training step costs, layer by layer.

    python examples/a_network_of_your_own.py        # a few seconds; nothing is simulated
"""

from gradloom.api import Conv, FullyConnected, GlobalAvgPool, Network, Training, compile

# Layers read the one before unless they say otherwise. "residual" adds an earlier layer's output, as a ResNet does.
network = Network(
    name="small-resnet",
    input_shape=(3, 16, 16),                    # channels, rows, columns
    classes=10,
    layers=(
        Conv(name="stem", out=8, kernel=3, pad=1),
        Conv(name="block1", out=8, kernel=3, pad=1),
        Conv(name="block2", out=8, kernel=3, pad=1, residual="stem"),
        Conv(name="down", out=16, kernel=3, stride=2, pad=1),
        GlobalAvgPool(name="pool"),
        FullyConnected(name="classes", out=10),
    ),
    train=Training(batch=8, epochs=10, lr=0.05),
)
# A network that cannot be trained is refused here already, in one sentence.

# "small" has 36 multipliers. Other presets: nano (9), ulx3s (144), eta (1728).
program = compile(network, "small")

print(f"{network.name}: {program.commands} commands, {program.memory_bytes:,} bytes of memory")
print(f"a step of {program.batch} images takes {program.cycles:,} cycles (estimated), "
      f"{100 * program.pe_use:.1f} % of the multipliers' time is useful work")
for layer, cycles in program.cycles_by_layer.items():
    print(f"  {layer:<8} {cycles:>9,} cycles")

# The same by phase: FP is forward, BP the error, WG + WU the weight gradient and the update.
slowest = max(program.layers, key=lambda cost: cost.cycles)
print(f"slowest: {slowest.phase} of {slowest.layer}")

# network.to_toml() is the same network as text, for a file that the command line takes with --network.
