"""Results that an object keeps are those of its method, worked out once for each arguments."""

import dataclasses

import pytest

from gradloom.host.tiles.remembered import remembered


@dataclasses.dataclass(frozen=True)
class Sum:
    first: int

    @remembered
    def plus(self, more: int) -> list[int]:
        """A new list wherever it is worked out."""
        return [self.first + more]


def test_a_result_is_worked_out_once_for_each_object_and_arguments():
    one, other = Sum(1), Sum(10)
    assert one.plus(2) == [3] and one.plus(3) == [4] and other.plus(2) == [12]
    assert one.plus(2) is one.plus(2) and one.plus(2) is not Sum(1).plus(2)


def test_copies_with_other_fields_remember_nothing():
    one = Sum(1)
    one.plus(2)
    assert dataclasses.replace(one, first=5).plus(2) == [7] and Sum(1) == one, "what it keeps is no part of it"


def test_arguments_have_no_names():
    with pytest.raises(AssertionError, match="have no names"):
        Sum(1).plus(more=2)
