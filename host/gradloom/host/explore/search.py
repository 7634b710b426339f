"""The search for machines that train a network fastest within the limits of a device.

Every candidate's resources are predicted and its step reckoned quickly (:mod:`gradloom.host.explore.bounds`). Of each array shape
the best one that fits goes on; of these the ones that no other beats in both images a second and LUTs are compiled, and the cost
model says their cycles.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from gradloom.boards.fpgas import Fpga
from gradloom.contracts.config import Config
from gradloom.host.bench.bench_measure import estimate
from gradloom.host.bench.bench_record import figures
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.explore.bounds import Bound, bound, step_work
from gradloom.host.explore.candidates import candidates, named
from gradloom.host.explore.resource_model import predict
from gradloom.host.files import UserError, write_json
from gradloom.host.schedule import compile_network
from gradloom.models.network import Network
from gradloom.sim.verilate import cache_folder
from gradloom.systems.vocabulary import Resources

__all__ = ["Point", "explore", "front", "pareto"]

_LIMITS = {"ccore": "MACs", "acore": "A-Core", "load": "bandwidth", "store": "bandwidth"}
_WORDS = {"luts": "LUTs", "flip_flops": "flip-flops", "dsps": "multipliers", "brams": "block RAMs"}
_SLOWEST = 4
"""So many times the fastest machine's cycles a machine may take to be worth compiling."""
_ACORE_MARGIN = 2
"""The A-Core must be able to do so many times its least work beside the array, as results come in bursts."""


@dataclasses.dataclass(frozen=True)
class Point:
    """A machine with what it takes and what it does.

    Parameters
    ----------
    cycles : :class:`int`
        Of a steady step, *estimated* by the cost model.
    use : :class:`float`
        Share of the MACs' cycles that are useful multiplications, 0 to 1.
    limit : :class:`str`
        What most of the step waits for: MACs, bandwidth or A-Core.
    ends : :class:`str`
        The resource of the device that the next larger machine exceeds, or "" if there is no larger one.
    """

    config: Config
    resources: Resources
    cycles: int
    use: float
    images_per_second: float
    limit: str
    ends: str = ""


@dataclasses.dataclass(frozen=True)
class _Fitting:
    config: Config
    resources: Resources
    bound: Bound


def limits_of(device: Fpga) -> Resources:
    """What a design may take of a device."""
    return Resources(luts=device.filled * device.luts, flip_flops=device.flip_flops, dsps=device.dsps, brams=device.brams)


def explore(network: Network, batch: int, device: Fpga, dram: DramCost, *, points: int,
            listener: Callable[[int, int, str], None] = lambda done, total, name: None) -> tuple[list[Point], list[str]]:
    """The best machines for a network on a device, fastest first, and what was refused in the search.

    Parameters
    ----------
    dram : :class:`~gradloom.host.cost_model.cost.DramCost`
        The device's memory in cycles of its clock.
    points : :class:`int`
        Machines to compile at most.
    listener
        Called with the number of machines that are compiled, of all that will be, and the name of the next one.

    Raises
    ------
    :exc:`UserError`
        If no machine fits the device, or the network fits none that does.
    """
    rate = dram.bytes_per_cycle or float("inf")
    work, limits = step_work(network, batch), limits_of(device)
    fitting: list[_Fitting] = []
    ends: dict[int, set[str]] = {}
    smallest: Config | None = None
    for config in candidates(device.family, rate, network.classes):
        resources = predict(config, device.family, board=device.board is not None)
        over = resources.over(limits)
        if not over:
            fitting.append(_Fitting(named(config), resources, bound(work, config, rate)))
        ends.setdefault(config.macs, set()).update(over or {""})
        if smallest is None or (resources.luts or 0) < (predict(smallest, device.family, board=device.board is not None).luts or 0):
            smallest = config
    if not fitting:
        assert smallest is not None
        raise UserError(_nothing_fits(smallest, device, limits))
    chosen = _spread(_best_of_shapes(fitting), points)
    found, refused = [], []
    for number, one in enumerate(chosen):
        listener(number, len(chosen), one.config.name)
        try:
            cycles, use, images, limit = _evaluate(network, one.config, batch, dram, device.clock_hz)
        except ScheduleError as error:
            refused.append(f"{one.config.name}: {error}")
            continue
        found.append(Point(one.config, one.resources, cycles, use, images, limit, _ends(one.config, ends)))
    listener(len(chosen), len(chosen), "")
    if not found:
        raise UserError(f"network {network.name!r} fits none of the machines that fit {device.name}: {refused[0]}")
    return sorted(found, key=lambda point: -point.images_per_second), refused


def _nothing_fits(smallest: Config, device: Fpga, limits: Resources) -> str:
    need = predict(smallest, device.family, board=device.board is not None)
    short = need.over(limits)
    told = " and ".join(f"{getattr(need, name):,.0f} {_WORDS[name]} of {_there(name, device, limits)}" for name in short)
    fix = "fill more of it" if need.over(dataclasses.replace(limits, luts=device.luts)) == [] else "give a larger device"
    return f"no machine fits {device.name}: the smallest, {smallest.name} with {smallest.macs} MACs, takes {told}; {fix}"


def _there(name: str, device: Fpga, limits: Resources) -> str:
    """How much of a resource a design may take."""
    limit = f"{getattr(limits, name):,.0f}"
    return f"{limit} ({device.filled:.0%} of {device.luts:,})" if name == "luts" else limit


def _best_of_shapes(fitting: Iterable[_Fitting]) -> list[_Fitting]:
    """Of each array shape the machine of the best reckoning, then of the fewest LUTs, then of the largest buffers."""
    best: dict[tuple[int, int, int], tuple[tuple[float, float, float], _Fitting]] = {}
    for one in fitting:
        config = one.config
        reckoned = max(one.bound.array, one.bound.memory, _ACORE_MARGIN * one.bound.acore)
        # Reckonings within 2 % are alike: the fewer LUTs count then.
        merit = (round(reckoned / one.bound.array, 2), one.resources.luts or 0, -(one.resources.brams or 0))
        shape = (config.clusters, config.wpus, config.cols)
        if shape not in best or merit < best[shape][0]:
            best[shape] = merit, one
    return [one for _, one in best.values()]


def front(values: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the pairs (gain, cost) that no other pair beats in both, in the order of falling gain."""
    order = sorted(range(len(values)), key=lambda place: (-values[place][0], values[place][1]))
    found: list[int] = []
    for place in order:
        if not found or values[place][1] < values[found[-1]][1]:
            found.append(place)
    return found


def pareto(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats in images a second and in LUTs, fastest first."""
    places = front([(point.images_per_second, point.resources.luts or 0) for point in points])
    return [points[place] for place in places]


def _spread(fitting: Sequence[_Fitting], count: int) -> list[_Fitting]:
    """At most so many of the front by reckoning: the fastest, then evenly down to a quarter of its speed."""
    on_front = [fitting[place] for place in front([(-one.bound.cycles, one.resources.luts or 0) for one in fitting])]
    on_front = [one for one in on_front if one.bound.cycles <= _SLOWEST * on_front[0].bound.cycles]
    if len(on_front) <= count:
        return on_front
    if count == 1:
        return on_front[:1]
    return [on_front[round(number * (len(on_front) - 1) / (count - 1))] for number in range(count)]


def _ends(config: Config, ends: dict[int, set[str]]) -> str:
    """The resource that machines with more MACs exceed."""
    larger = [macs for macs in sorted(ends) if macs > config.macs]
    for macs in larger:
        if "" not in ends[macs]:
            return _WORDS[next(name for name in _WORDS if name in ends[macs])]
    return ""


def _evaluate(network: Network, config: Config, batch: int, dram: DramCost, clock_hz: float) -> tuple[int, float, float, str]:
    """Cycles, use of the MACs, images a second and limit by the cost model; kept by what they depend on."""
    path = cache_folder() / "explore" / f"{_key(network, config, batch, dram)}.json"
    if path.is_file():
        kept = json.loads(path.read_text())
    else:
        kept = _measured(network, config, batch, dram)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, kept)
    return kept["cycles"], kept["use"], batch * clock_hz / kept["cycles"], kept["limit"]


def _measured(network: Network, config: Config, batch: int, dram: DramCost) -> dict[str, Any]:
    plan = compile_network(network, config, batch, slots=2, table=2)
    found = figures(estimate(plan, dram), network, config, batch, clock_mhz=1.0, peak_bytes=dram.bytes_per_cycle or 0.0)
    shares: dict[str, float] = {}
    for engine, cycles in found["critical_path"].items():
        limit = next((name for prefix, name in _LIMITS.items() if engine.startswith(prefix)), "order of commands")
        shares[limit] = shares.get(limit, 0) + cycles
    limit = max(shares, key=lambda name: shares[name])
    return {"cycles": found["total"]["cycles"], "use": found["total"]["pe_use"], "limit": limit}


def _key(network: Network, config: Config, batch: int, dram: DramCost) -> str:
    """Hash of network, machine, batch, memory, and of the sources that compile and estimate."""
    asked = json.dumps([network.to_toml(), config.digest(), batch, dataclasses.asdict(dram), _sources()])
    return hashlib.sha256(asked.encode()).hexdigest()[:32]


def _sources() -> str:
    import gradloom.contracts.config
    import gradloom.host.schedule

    found = hashlib.sha256()
    for module in (gradloom.contracts.config, gradloom.host.schedule):
        for file in sorted(Path(str(module.__file__)).parent.rglob("*.py")):
            found.update(file.read_bytes())
    return found.hexdigest()
