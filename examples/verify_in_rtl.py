"""Train a tiny network in simulated hardware and compare every byte with the golden model.

    python examples/verify_in_rtl.py        # seconds; the first run builds the simulator, a minute or two

It needs a C++ compiler and make: gradloom.api.devices() says whether they are here.
"""

from gradloom.api import Conv, FullyConnected, MaxPool, Network, devices, verify

for device in devices():
    print(f"{device.name:<16} {'ready' if device.ready else device.reason}")

network = Network(
    name="tiny",
    input_shape=(1, 6, 6),
    classes=3,
    layers=(
        Conv(name="conv", out=4, kernel=3, pad=1),
        MaxPool(name="pool", kernel=2, stride=2),
        FullyConnected(name="classes", out=3),
    ),
)

# "nano" is the smallest machine: nine multipliers. "random" stands for hashed images of the network's shape.
result = verify(network, "nano", device="rtl", data="random", steps=3, batch=2)

if result.equal:
    print(f"{result.steps} steps: {result.tensors} tensors, {result.bytes:,} bytes, not one differs")
    print(f"{result.cycles:,} cycles of the simulated machine, parameters {result.digest[:16]}")
else:
    print(f"DIFFERENT: {result.difference}")
