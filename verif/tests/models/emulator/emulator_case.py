"""What the emulator's tests share: the networks, a thread each, random batches."""



from gradloom.models.arithmetic import pint
from gradloom.verif.checkout import NETWORKS

SOURCES = ["digits-cnn", *(str(file) for file in sorted(NETWORKS.glob("*.toml")))]
KINDS = ("activations", "normalised", "errors", "weights", "velocities")
INPUT_EXPONENT = -11


def batch(network, rng, images):
    """Random codes (B, C, Y, X) and class numbers (B,)."""
    codes = pint.encode(rng.integers(-4096, 4096, (images, *network.input_shape)), 0).code
    return codes, rng.integers(0, network.classes, images)
