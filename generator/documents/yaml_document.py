"""What a YAML document of another program says, asked by its keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..findings import Location
from ..job.source import Source, escape
from .reader import ValueKind, kind_in


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlDocument:
    """A YAML document of another program. A name is a key, or the keys on the way to it: `resources/shm_size`."""

    source: Source

    @property
    def path(self) -> str:
        """As the user named it."""
        return self.source.path

    @property
    def readable(self) -> bool:
        """Whether it could be read to its end, and is a mapping."""
        return self.source.complete and isinstance(self.source.data, dict)

    def value(self, name: str, default: object = None) -> object:
        """What is written there; `default` where nothing is."""
        return self.source.value(_pointer(name), default)

    def has(self, name: str) -> bool:
        """Whether anything is written there, null included."""
        return self.source.has(_pointer(name))

    def locate(self, name: str) -> Location:
        """The place of a value, else of the nearest thing around it."""
        return self.source.locate(_pointer(name))

    def locate_key(self, name: str) -> Location:
        """The place of a key."""
        return replace(self.source.locate_key(_pointer(name)), pointer=_pointer(name))

    def kind(self, name: str) -> ValueKind | None:
        """The type of what is written there; None where nothing is."""
        return kind_in(self, name)

    def integer(self, name: str) -> int | None:
        """The integer there; None where there is none, or something else."""
        return self.source.integer(_pointer(name))

    def text(self, name: str) -> str | None:
        """The text there; None where there is none, or something else."""
        value = self.value(name)
        return value if isinstance(value, str) else None

    def block(self, name: str) -> Mapping[str, object]:
        """The mapping there, of the whole document with an empty name; empty where it is none."""
        value = self.value(name)
        return value if isinstance(value, dict) else {}

    def entries(self, name: str) -> Iterator[tuple[str, str, object]]:
        """Each key of the mapping there, with its name from the top and its value."""
        for key, value in self.block(name).items():
            yield key, f"{name}/{escape(key)}" if name else escape(key), value


def _pointer(name: str) -> str:
    return f"/{name}" if name else ""
