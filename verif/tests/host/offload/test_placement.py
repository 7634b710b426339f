"""The choice of a device by the model: larger products are worth the way sooner."""

import pytest

from gradloom.host.offload.placement import by_model, everywhere
from gradloom.systems.barista import Gemm, Mesh, gemm_times

MESH = Mesh(16, 16, 64)


def test_everywhere():
    assert everywhere(1, 1, 1)


@pytest.mark.parametrize("size", [(10, 10, 10), (64, 100, 300), (1000, 64, 576)])
def test_a_layer_goes_where_the_equations_say(size):
    m, n, k = size
    seconds = gemm_times(Gemm(m, k, n), MESH).overall
    rate = 2 * m * n * k / seconds
    assert by_model(MESH, 0.99 * rate)(m, n, k) and not by_model(MESH, 1.01 * rate)(m, n, k)


def test_a_faster_way_takes_more_layers():
    sizes = [(m, n, k) for m in (1, 32, 1024) for n in (8, 128) for k in (27, 576)]
    taken = [{size for size in sizes if by_model(MESH, 5e9, host_rate=rate)(*size)} for rate in (1e9, 1e10, 1e12)]
    assert taken[0] <= taken[1] <= taken[2] and taken[0] < taken[2]
