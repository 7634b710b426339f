"""Which layers are worth the way to a device: Barista's choice layer by layer (section V), *estimated*."""

from collections.abc import Callable
from typing import TypeAlias

from gradloom.systems import barista
from gradloom.systems.barista import Gemm, Mesh

__all__ = ["Placement", "by_model", "everywhere"]

Placement: TypeAlias = Callable[[int, int, int], bool]
"""Whether a layer whose forward product is (M, K) x (K, N), given as M, N, K, goes to the device."""


def everywhere(m: int, n: int, k: int) -> bool:
    """All layers do."""
    return True


def by_model(mesh: Mesh, cpu_rate: float, *, clock_hz: float = barista.CLOCK_HZ, memory_rate: float = barista.DDR_RATE,
             host_rate: float = barista.HOST_RATE) -> Placement:
    """Those that a mesh is estimated to finish sooner than the CPU, the way there and back included (equations 1 to 5).

    Parameters
    ----------
    mesh : :class:`~gradloom.systems.barista.Mesh`
    cpu_rate : :class:`float`
        Operations a second of the CPU; a multiplication and its addition are two.
    clock_hz, memory_rate, host_rate : :class:`float`
        As of :func:`~gradloom.systems.barista.gemm_times`; rates in bits a second.
    """
    def sooner(m: int, n: int, k: int) -> bool:
        gemm = Gemm(m, k, n)
        times = barista.gemm_times(gemm, mesh, clock_hz=clock_hz, memory_rate=memory_rate, host_rate=host_rate)
        return times.overall < gemm.operations / cpu_rate

    return sooner
