"""Which machine trains a network fastest on a device."""

import dataclasses

from gradloom.api._errors import plain_errors
from gradloom.api._given import Source, name_of
from gradloom.boards.fpgas import fpga_named
from gradloom.contracts.config import Config
from gradloom.host.explore.explore_command import memory_of
from gradloom.host.explore.search import explore as search
from gradloom.host.requests import COUNT, NETWORK, Types, check_fields, check_types, given_network
from gradloom.models.network import Network

__all__ = ["DesignPoint", "explore"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DesignPoint:
    """A machine that fits a device.

    Parameters
    ----------
    config : :class:`Config`
    cycles : :class:`int`
        Of a training step, estimated by the cost model.
    pe_use : :class:`float`
        Useful multiplications of the step, of those that the array could do in its cycles; estimated.
    images_per_second : :class:`float`
        At the device's clock.
    luts, flip_flops : :class:`int`
        Estimated by a fit to syntheses.
    multipliers : :class:`int`
        DSP slices or multiplier blocks.
    block_rams : :class:`float`
        Of the device's own size.
    limit : :class:`str`
        What most of the step waits for: "MACs", "bandwidth" or "A-Core".
    """

    config: Config
    cycles: int
    pe_use: float
    images_per_second: float
    luts: int
    flip_flops: int
    multipliers: int
    block_rams: float
    limit: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Request:
    network: Network | str
    device: str
    batch: int | None = None
    points: int

    def __post_init__(self) -> None:
        check_types(self, network=NETWORK, device=Types(str, "a device's name"))
        check_fields(self, batch=COUNT, points=COUNT)


@plain_errors()
def explore(network: Network | Source, device: str, *, batch: int | None = None, points: int = 5) -> tuple[DesignPoint, ...]:
    """The machines that train a network fastest on a device. Nothing is built.

    Parameters
    ----------
    network : :class:`Network`, or name or file
        A network, or what :func:`load_network` takes.
    device : :class:`str`
        A board or an FPGA by name, such as "ulx3s-85f" or "vc709"; ``gradloom explore --help`` lists them.
    batch : :class:`int`, optional
        Images of a step; default: the network's.
    points : :class:`int`
        Machines to compile at most, which takes seconds to a minute each.

    Returns
    -------
    tuple of :class:`DesignPoint`
        The fastest first.

    Raises
    ------
    :exc:`UserError`
        If there is no such device, no machine fits it, or the network fits none that does.
    """
    asked = _Request(network=name_of(network), device=device, batch=batch, points=points)
    found, fpga = given_network(asked.network), fpga_named(asked.device)
    images = found.train.batch if asked.batch is None else asked.batch
    machines, _ = search(found, images, fpga, memory_of(fpga), points=asked.points)
    return tuple(DesignPoint(
        config=one.config, cycles=one.cycles, pe_use=one.use, images_per_second=one.images_per_second,
        luts=int(one.resources.luts or 0), flip_flops=int(one.resources.flip_flops or 0),
        multipliers=int(one.resources.dsps or 0), block_rams=one.resources.brams or 0, limit=one.limit) for one in machines)
