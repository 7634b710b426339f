"""PyTorch modules that the import's tests share: blocks as torchvision writes them, and random networks made of them."""

import random

import torch
from torch import nn
from torch.nn import functional


class BasicBlock(nn.Module):
    """torchvision's: one ReLU module for both places, in place, ``out += identity``."""

    def __init__(self, inplanes, planes, stride=1, downsample=None):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class SubsampleBlock(nn.Module):
    """The CIFAR ResNets' block without a projection."""

    def __init__(self, inplanes, planes):
        super().__init__()
        self.more = planes - inplanes
        self.conv1 = nn.Conv2d(inplanes, planes, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)

    def forward(self, x):
        out = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(torch.add(functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.more)), out))


def projection(inplanes, planes, stride):
    return nn.Sequential(nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))


class ResNet(nn.Module):
    """torchvision's ResNet with fewer, narrower stages."""

    def __init__(self, widths=(4, 8), classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=1, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(widths[0], widths[0]), BasicBlock(widths[0], widths[0]))
        self.layer2 = nn.Sequential(BasicBlock(widths[0], widths[1], 2, projection(widths[0], widths[1], 2)))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(widths[1], classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Plain(nn.Module):
    """Without norms, functions where there could be modules, ReLU behind the pool."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding="same")
        self.conv2 = nn.Conv2d(6, 5, 3, stride=2, padding=1)
        self.fc1 = nn.Linear(5 * 2 * 2, 7)
        self.drop = nn.Dropout(0.0)
        self.fc2 = nn.Linear(7, 3)

    def forward(self, x):
        x = functional.relu(functional.max_pool2d(self.conv1(x), 2))
        x = functional.avg_pool2d(x, 3, 1, 1)
        x = self.conv2(x).relu_()
        x = x.view(x.size(0), -1)
        return self.fc2(self.drop(functional.relu(self.fc1(x))))


def random_module(seed: int) -> tuple[nn.Module, tuple[int, int, int]]:
    """A network of random blocks for 12 x 12 images, with parameters that are not the initial ones."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    channels, size = choose.choice((1, 3)), 12
    shape = (channels, size, size)
    blocks: list[nn.Module] = []
    for _ in range(choose.randint(2, 5)):
        kind = choose.choice(("norm", "bias", "block", "project", "pool", "mean", "subsample"))
        width = choose.choice((3, 4, 6))
        if kind in ("block", "project", "subsample") and not blocks:
            kind = "norm"
        if kind == "norm":
            blocks += [nn.Conv2d(channels, width, 3, padding=1, bias=choose.random() < 0.5), nn.BatchNorm2d(width)]
            blocks += [nn.ReLU(inplace=True)] if choose.random() < 0.8 else []
            channels = width
        elif kind == "bias":
            kernel = choose.choice((1, 3, 5))
            blocks += [nn.Conv2d(channels, width, kernel, padding=kernel // 2), nn.ReLU()]
            channels = width
        elif kind == "block":
            blocks.append(BasicBlock(channels, channels))
        elif kind == "project" and size > 3:
            blocks.append(BasicBlock(channels, width, 2, projection(channels, width, 2)))
            channels, size = width, (size + 1) // 2
        elif kind == "subsample" and size > 3:
            blocks.append(SubsampleBlock(channels, channels + 2))
            channels, size = channels + 2, (size + 1) // 2
        elif kind == "pool" and size % 2 == 0 and size > 3:
            blocks.append(nn.MaxPool2d(2))
            size //= 2
        elif kind == "mean" and size % 2 == 0 and size > 3:
            blocks.append(nn.AvgPool2d(2))
            size //= 2
    head: list[nn.Module] = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5)]
    if choose.random() < 0.5:
        head = [nn.Flatten(), nn.Linear(channels * size * size, 6), nn.ReLU(), nn.Identity(), nn.Linear(6, 5)]
    module = nn.Sequential(*blocks, *head)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(-0.3, 0.3)
    return module, shape
