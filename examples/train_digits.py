"""Train a small convolutional network on handwritten digits, in the exact arithmetic of the hardware.

    pip install 'gradloom[data]'
    python examples/train_digits.py        # about 20 seconds; give a number of steps to stop earlier
"""

import sys

from gradloom.api import evaluate, train

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 267

# "golden" is the golden model in numpy. With device="rtl" the same run goes through the simulated hardware: it takes
# minutes, and ends with the same bytes. progress=True prints as the command line does; without it train prints nothing.
result = train("digits-cnn", "digits", device="golden", steps=steps, progress=True)

print(f"loss {result.losses[0]:.2f} before, {result.loss:.2f} in step {result.steps}")
print(f"SHA-256 of the parameters: {result.digest[:16]}, the same on every device")
print(f"report: {result.run / 'report.html'}")

# The weights are real numbers, ready for any other program ...
for name, array in result.weights().items():
    print(f"  {name}: {array.shape}")
# ... and the folder of the run can be evaluated again, here or on another device.
again = evaluate("digits-cnn", result.run, "digits")
print(f"evaluated again: {again.correct} of {again.images} images")
