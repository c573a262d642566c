"""`Reader`: the four questions that the view of every document answers, whatever it was written in."""

from __future__ import annotations

from typing import Literal, Protocol

from ..findings import Location
from ..job.pointer import NOTHING

ValueKind = Literal["null", "bool", "int", "float", "str", "list", "object"]


class Reader(Protocol):
    """A document by name: a JSON pointer in a config, an argument of a program, an option of a launch line."""

    def value(self, name: str, default: object = None) -> object:
        """What is written for `name`; `default` where nothing is, or where it can't be known."""

    def has(self, name: str) -> bool:
        """Whether `name` is written, null included, its value known or not."""

    def locate(self, name: str) -> Location:
        """The place of the value of `name`, else of the nearest thing around it."""

    def kind(self, name: str) -> ValueKind | None:
        """The type of what is written for `name`; None where nothing is, or where it can't be known."""
        value = self.value(name, NOTHING)
        return None if value is NOTHING else kind_of_value(value)


def kind_of_value(value: object) -> ValueKind:
    """The type of a value of plain data. Dates and binaries of YAML 1.1 count as text."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case list():
            return "list"
        case dict():
            return "object"
    return "str"
