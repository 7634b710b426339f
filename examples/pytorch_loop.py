"""Train a torchvision-style ResNet of PyTorch in simulated hardware, from an ordinary training loop.

    pip install 'gradloom[torch]'
    python examples/pytorch_loop.py        # six seconds; the first run builds the simulator, a minute or two
"""

import torch
from torch import nn

from gradloom.api import pytorch


class BasicBlock(nn.Module):
    def __init__(self, planes_in, planes, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(planes_in, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False), nn.BatchNorm2d(planes)
        self.relu, self.downsample = nn.ReLU(inplace=True), None
        if stride > 1 or planes_in != planes:
            self.downsample = nn.Sequential(nn.Conv2d(planes_in, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


torch.manual_seed(0)
stem = [nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True)]
resnet = nn.Sequential(*stem, BasicBlock(4, 4), BasicBlock(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
data = torch.utils.data.TensorDataset(torch.randn(8, 3, 8, 8), torch.arange(8))
loader = torch.utils.data.DataLoader(data, batch_size=4)

model = pytorch.compile(resnet, config="small", device="rtl", lr=0.05)
for x, y in loader:
    out = model.step(x, y)
    print(f"step {out.number}: loss {out.loss:.4f}, accuracy {out.accuracy:.2f}, {out.cycles} cycles")
print("largest gradient of the first convolution:", model.tensors()["0"].dw.abs().max().item())
trained = pytorch.replace_norms(resnet, (3, 8, 8))
trained.load_state_dict(model.state_dict())
print("the trained network in float says", trained(x).argmax(1).tolist())
