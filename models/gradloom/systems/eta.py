"""ETA (Lu, Ni and Wang, TNNLS 2022), as published: the array, and the rates of its table III beside each other.

The paper has no equations of cycles or resources; its latencies are simulated. What can be computed are its own ratios. For a
machine of this kind the cost model and the resource fit of gradloom stand (docs/explore.md).
"""

import dataclasses

__all__ = ["CLOCK_HZ", "MACS", "TABLE_III", "Published", "operations_per_image", "peak_gops", "use"]

CLOCK_HZ = 200e6
"""Section V-A."""
MACS = 8 * 3 * 3 * 8 * 3
"""Clusters, window processing units, and in each 3 x 8 processing elements of 3 multiply-accumulates (section IV-B3)."""


@dataclasses.dataclass(frozen=True)
class Published:
    """A column of table III.

    Parameters
    ----------
    gops, images, watts : :class:`float`
        Operations a second in billions, images a second, power.
    zeros : :class:`bool`
        Whether operations with the zeros that stride 2 would insert are counted.
    """

    gops: float
    images: float
    watts: float
    gops_per_watt: float
    zeros: bool


TABLE_III = {"vgg16": Published(610.98, 326.5, 8.44, 72.37, False), "resnet20": Published(658.64, 2352.9, 8.55, 77.04, True)}
"""CIFAR-10 networks."""


def peak_gops() -> float:
    """Operations a second of the array in billions."""
    return 2 * MACS * CLOCK_HZ / 1e9


def operations_per_image(row: Published) -> float:
    """Operations of a training step of an image that a row's rates imply."""
    return row.gops * 1e9 / row.images


def use(row: Published) -> float:
    """Share of the peak rate; above what the array does where inserted zeros are counted."""
    return row.gops / peak_gops()
