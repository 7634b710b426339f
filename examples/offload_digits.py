"""Train a network in PyTorch, with Adam and batch normalisation, while a device's 8-bit products stand in for its own.

    pip install 'gradloom[data,torch]'
    python examples/offload_digits.py        # ten seconds
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from gradloom.api import pytorch

torch.manual_seed(0)
digits = load_digits()
images, kinds = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
x, y, test_x, test_y = images[360:], kinds[360:], images[:360], kinds[:360]
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(),
                      nn.Linear(16 * 4 * 4, 10))
adam = torch.optim.Adam(model.parameters(), lr=0.003)

with pytorch.offload(model, format="bfp8", device="twin", check=True) as offloaded:
    for batch in torch.randperm(len(x)).split(64) * 2:
        adam.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        adam.step()
    print(offloaded.table())
    print(f"{offloaded.checked} products, each equal to the CPU's")

right = (model.eval()(test_x).argmax(1) == test_y).sum().item()
print(f"in float again: {right} of {len(test_y)} test images")
