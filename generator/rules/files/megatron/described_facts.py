"""Facts of a run as its Megatron arguments say them, each with its place."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....documents.megatron_arguments import MegatronArguments
from ....documents.submission import Submission
from ....findings import Location
from .rule import LARGEST, LM


@dataclass(slots=True, kw_only=True)
class Facts:
    """What is known so far: names of facts, and the places of those that are written."""

    arguments: MegatronArguments
    submission: Submission
    known: set[str] = field(default_factory=set)
    places: dict[str, Location] = field(default_factory=dict)

    @property
    def is_lm(self) -> bool:
        """Whether the arguments are Megatron-LM's."""
        return self.arguments.flavour == LM

    def number(self, fact: str, option: str, default: int | None = None) -> int | None:
        """A size of at least 1 that is given, or is surely `default`."""
        arguments = self.arguments
        value = arguments.integer(option) if arguments.has(option) else default if arguments.sure(option) else None
        if value is None or not 0 < value <= LARGEST:
            return None
        self.known.add(fact)
        if arguments.has(option):
            self.places[fact] = arguments.locate(option)
        return value

    def flag(self, fact: str, *options: str) -> bool:
        """Whether one of the flags is given, where that can be known."""
        given = next((option for option in options if self.arguments.has(option)), None)
        if given is not None:
            self.places[fact] = self.arguments.locate(given)
        if given is not None or self.arguments.sure(*options):
            self.known.add(fact)
        return given is not None
