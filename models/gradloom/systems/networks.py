"""The networks of the papers as workloads, and those of this project seen with the papers' eyes."""

from gradloom.models.layers import AvgPool, GlobalAvgPool, MaxPool
from gradloom.models.network import Network
from gradloom.systems.vocabulary import ConvShape, Workload

__all__ = ["ALEXNET", "ALEXNET_CIFAR", "LENET10", "NETWORKS", "ONE_X_CNN", "RESNET20", "VGG16_CIFAR", "VGG16_IMAGENET", "VGG_LIKE",
           "workload"]


def _conv(name: str, outputs: int, inputs: int, size: int, kernel: int = 3, stride: int = 1) -> ConvShape:
    return ConvShape(name=name, outputs=outputs, inputs=inputs, rows=size, columns=size, kernel=kernel, stride=stride)


def _dense(name: str, outputs: int, inputs: int) -> ConvShape:
    return ConvShape(name=name, outputs=outputs, inputs=inputs)


VGG_LIKE = Workload(name="vgg-like", layers=(
    _conv("conv1", 128, 3, 32), _conv("conv2", 128, 128, 32), _conv("conv3", 256, 128, 16), _conv("conv4", 256, 256, 16),
    _conv("conv5", 512, 256, 8), _conv("conv6", 512, 512, 8), _dense("fc1", 1024, 8192), _dense("fc2", 10, 1024),
), pools=(128 * 32 * 32, 256 * 16 * 16, 512 * 8 * 8))
"""DarkFPGA's table 2. Its first fully connected layer reads 512 x 4 x 4 = 8192 channels; 8096 is printed."""

ALEXNET = Workload(name="alexnet", layers=(
    _conv("conv1", 96, 3, 55, 11, 4), _conv("conv2", 256, 96, 27, 5), _conv("conv3", 384, 256, 13), _conv("conv4", 384, 384, 13),
    _conv("conv5", 256, 384, 13)))
"""Convolutions of AlexNet for ImageNet without groups (EF-Train's table 6)."""

ONE_X_CNN = Workload(name="1x-cnn", layers=(
    _conv("conv1", 16, 3, 32), _conv("conv2", 16, 16, 32), _conv("conv3", 32, 16, 16), _conv("conv4", 32, 32, 16),
    _conv("conv5", 64, 32, 8), _conv("conv6", 64, 64, 8)), pools=(16 * 32 * 32, 32 * 16 * 16, 64 * 8 * 8))
"""Convolutions of EF-Train's "1X" CNN for CIFAR-10 (section 6.3)."""

LENET10 = Workload(name="lenet10", layers=(
    _conv("conv1", 32, 3, 32), _conv("conv2", 32, 32, 16), _conv("conv3", 64, 32, 8), _dense("fc1", 64, 1024),
    _dense("fc2", 10, 64)), pools=(32 * 32 * 32, 32 * 16 * 16, 64 * 8 * 8))
"""EF-Train's LeNet-10 (section 6.4)."""


def _vgg16(name: str, size: int, dense: tuple[ConvShape, ...]) -> Workload:
    layers, inputs, pools = [], 3, []
    for stage, (outputs, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for number in range(1, count + 1):
            layers.append(_conv(f"conv{stage}_{number}", outputs, inputs, size))
            inputs = outputs
        pools.append(outputs * size * size)
        size //= 2
    return Workload(name=name, layers=(*layers, *dense), pools=tuple(pools))


VGG16_CIFAR = _vgg16("vgg16-cifar", 32, (_dense("fc1", 512, 512), _dense("fc2", 512, 512), _dense("fc3", 10, 512)))
"""Fox's table I, and the classifier: two layers of 512 (its row 10) and the logits."""

VGG16_IMAGENET = _vgg16("vgg16-imagenet", 224, (_dense("fc", 1000, 512),))
"""EF-Train's VGG16: the code that its authors published has one fully connected layer, 512 to 1000."""

ALEXNET_CIFAR = Workload(name="alexnet-cifar", layers=(
    _conv("conv1", 64, 3, 8, 11, 4), _conv("conv2", 192, 64, 4, 5), _conv("conv3", 384, 192, 2), _conv("conv4", 256, 384, 2),
    _conv("conv5", 256, 256, 2)))
"""Convolutions of Barista's AlexNet. The paper gives no shapes: these are of the AlexNet for CIFAR-10 with an 11 x 11 kernel of
stride 4, with which its table I comes out (:mod:`gradloom.systems.barista`)."""


def _resnet20() -> Workload:
    layers, inputs = [_conv("stem", 16, 3, 32)], 16
    for stage, (outputs, size) in enumerate(((16, 32), (32, 16), (64, 8)), 1):
        for number in range(1, 7):
            layers.append(_conv(f"s{stage}c{number}", outputs, inputs, size, stride=2 if inputs != outputs else 1))
            inputs = outputs
    return Workload(name="resnet20-convolutions", layers=tuple(layers))


RESNET20 = _resnet20()
"""Convolutions of ResNet20 for CIFAR-10, shortcuts without weights (He et al., option A)."""

NETWORKS = {found.name: found for found in (VGG_LIKE, ALEXNET, ONE_X_CNN, LENET10, VGG16_CIFAR, VGG16_IMAGENET, ALEXNET_CIFAR,
                                            RESNET20)}
"""By name."""


def workload(network: Network) -> Workload:
    """A network of this project as the papers' equations see it: layers with weights, and what pools read.

    A fully connected layer on a plane reads its flattened channels.
    """
    layers, pools = [], []
    for layer in network.layers:
        geometry = network.geometry(layer.name)
        (channels, in_rows, in_columns), (outputs, rows, columns) = geometry.in_shape, geometry.out_shape
        if isinstance(layer, AvgPool | MaxPool | GlobalAvgPool):
            pools.append(channels * in_rows * in_columns)
        if layer not in network.weighted:
            continue
        if rows * columns == 1:
            layers.append(_dense(layer.name, outputs, channels * geometry.kernel[0] * geometry.kernel[1]))
        else:
            layers.append(ConvShape(name=layer.name, outputs=outputs, inputs=channels, rows=rows, columns=columns,
                                    kernel=geometry.kernel[0], stride=geometry.stride, in_rows=in_rows, in_columns=in_columns))
    return Workload(name=network.name, layers=tuple(layers), pools=tuple(pools))
