"""Numbers that the program format shares with the golden model, which knows nothing of the machine and so has its own."""

from gradloom.contracts import isa
from gradloom.models import layers


def test_kinds_of_tensors_are_the_golden_models():
    assert {kind.name: kind.value for kind in isa.Kind} == {kind.name: kind.value for kind in layers.Kind}
