"""Arguments of Megatron-LM and Megatron-DeepSpeed, from a launch line or a file of arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..findings import Location
from ..spec.text import Text
from .launch_line import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronArguments:
    """Options by name (`--num-layers`), each typed as Megatron's parser types it; None where it can't be known."""

    path: str
    flavour: Literal["megatron-lm", "megatron-deepspeed"]
    values: Mapping[str, object]
    places: Mapping[str, Location] = field(default_factory=dict)  #: of each option
    launch: Launch | None = None

    def has(self, name: str) -> bool:
        """Whether the option is given."""
        return name in self.values

    def value(self, name: str, default: object = None) -> object:
        """What is given for an option; `default` where nothing is."""
        return self.values.get(name, default)

    def integer(self, name: str, default: int | None = None) -> int | None:
        """A whole number; `default` where nothing is given, None where it can't be known."""
        value = self.values.get(name, default)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def locate(self, name: str) -> Location:
        """The place of an option, else the file."""
        return self.places.get(name, Location(path=self.path))


def from_launches(launches: Iterable[Launch]) -> Iterator[MegatronArguments]:
    """The arguments on the launch lines of programs that take them."""
    return iter(())


def read_argument_file(text: Text) -> MegatronArguments:
    """A file of options, one or more a line, as dsgen writes `arguments.txt`."""
    return MegatronArguments(path=text.path, flavour="megatron-lm", values={})
