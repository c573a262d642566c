"""Frozen classes with slots behave as those that the standard library makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from dsgen.dataclass import dataclass


def made(decorate: Callable[..., Any], **options: bool) -> Any:
    """A class with every kind of field."""

    @decorate(frozen=True, slots=True, **options)
    class Record:
        """A record."""

        first: int
        second: tuple[int, ...] = ()
        names: list[str] = field(default_factory=list, compare=False)
        hidden: int = field(default=3, repr=False)
        held: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    return Record


@dataclass(frozen=True, slots=True)
class Point:
    """A record that a pickle can name."""

    x: int
    y: int = 2


@pytest.mark.parametrize("options", [{}, {"kw_only": True}])
def test_same_as_standard_library(options: dict[str, bool]) -> None:
    """Text, equality, hash, replacing, plain data and the names of parameters are the same."""
    own, standard = (made(decorate, **options) for decorate in (dataclass, dataclasses.dataclass))
    for given in ({"first": 1}, {"first": 2, "second": (1,), "names": ["a"], "hidden": 4}):
        ours, theirs = own(**given), standard(**given)
        assert repr(ours) == repr(theirs) and hash(ours) == hash(theirs)
        assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
        assert repr(dataclasses.replace(ours, first=5)) == repr(
            dataclasses.replace(theirs, first=5)
        )
        assert (
            ours == own(**given | {"names": ["b"]})
            and ours != own(**given | {"hidden": 9})
            and ours != theirs
        )
    parameters = [inspect.signature(each).parameters for each in (own, standard)]
    assert [(each.name, each.kind) for each in parameters[0].values()] == [
        (each.name, each.kind) for each in parameters[1].values()
    ]
    assert own(first=1).names is not own(first=1).names


@pytest.mark.parametrize("wrong", [(), (1, 2, 3)])
def test_wrong_arguments(wrong: tuple[int, ...]) -> None:
    """Arguments that are missing or too many are refused, with the class's name."""
    with pytest.raises(TypeError, match=r"Point\.__init__\(\)"):
        Point(*wrong)


def test_first_and_later_objects_are_alike() -> None:
    """Objects are the same whether `__init__` fills them or was compiled, and so is a refusal."""
    record = made(dataclass)
    objects = [record(1, (2,), hidden=number) for number in range(50)]
    assert [each.hidden for each in objects] == [*range(50)]
    assert {repr(dataclasses.replace(each, hidden=0)) for each in objects} == {
        "made.<locals>.Record(first=1, second=(2,), names=[])"
    }
    for wrong in ({"first": 1}, {"other": 1}):
        for kind in (record, made(dataclass)):
            with pytest.raises(TypeError, match=r"Record\.__init__\(\)"):
                kind(1, **wrong)


def test_is_frozen_and_can_be_copied() -> None:
    """Nothing is assigned or deleted; copies and pickles are equal."""
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.y
    assert copy.deepcopy(point) == point == pickle.loads(pickle.dumps(point)) == copy.copy(point)
