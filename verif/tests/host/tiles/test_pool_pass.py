"""Passes of pools: which tensors they read and write, and the exponent at which nothing is shifted."""

import pytest

from gradloom.host.tiles.pool_pass import backward_pass, forward_pass
from gradloom.models.arithmetic.pool import PoolWalk
from gradloom.models.layers import AvgPool, Kind, MaxPool, Upsample
from gradloom.verif.networks import conv, net


class Numbers:
    """The tensor numbers of a network, of which alone the exponents are made."""

    def __init__(self, network):
        self.tid = network.tid


@pytest.mark.parametrize(("pool", "fraction"), [
    (MaxPool(name="p", kernel=3, stride=2, pad=1), 0),
    (AvgPool(name="p", kernel=2, stride=2), 15 + 2),
    (AvgPool(name="p", kernel=3, stride=1), 15 + 4),
])
def test_both_ways(pool, fraction):
    network = net(conv("a"), pool)
    ahead, back = forward_pass(network, network.layer("p")), backward_pass(network, network.layer("p"))
    walk = PoolWalk((pool.kernel,) * 2, pool.stride, pool.pad, maximum=isinstance(pool, MaxPool))
    assert (ahead.walk, ahead.tensor, ahead.source, ahead.target) == (walk, "z", "a", "p")
    assert (back.walk, back.tensor, back.source, back.target) == (walk.adjoint, "dz", "p", "a")
    assert ahead.zero(Numbers(network)) == (-fraction, (network.tid("a", Kind.Z),), ())
    assert back.zero(Numbers(network)) == (-fraction, (network.tid("p", Kind.DZ),), ())


def test_upsampling_is_a_pool_the_other_way():
    network = net(conv("a"), Upsample(name="u", scale=3))
    ahead, back = forward_pass(network, network.layer("u")), backward_pass(network, network.layer("u"))
    assert ahead.walk == PoolWalk((3, 3), 3, spread=True, mean=False) and back.walk == PoolWalk((3, 3), 3, mean=False)
    assert (ahead.source, ahead.target, back.source, back.target) == ("a", "u", "u", "a")
    assert ahead.zero(Numbers(network)) == (-15, (network.tid("a", Kind.Z),), ())
