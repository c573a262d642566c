"""DeepSpeed's configuration as text, before it is known which program reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import ClassVar

from ...dataclass import dataclass
from ...facts.document import Kind
from ...facts.hjson.text import JsonText
from ...facts.places import Reader
from ...findings import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class DsConfig(Reader):
    """A DeepSpeed configuration: JSON or HJSON, a file of its own or a here-document of a launch script."""

    document_kind: ClassVar[Kind] = "DeepSpeed config"

    json: JsonText
    target: str | None = None  #: the file that a script writes it to; None: it is a file already

    @property
    def embedded(self) -> bool:
        """Return whether it is a part of a script: it can be checked, but not fixed by edits."""
        return self.target is not None

    @property
    def name(self) -> str:
        """The name of the file, without folders, as launch lines call it."""
        return PurePath(self.target or self.path).name

    @property
    def path(self) -> str:
        """As the user named it; of an embedded one, the script's."""
        return self.json.text.path

    def value(self, pointer: str, default: object = None) -> object:
        """Return the value at a JSON pointer, such as `/zero_optimization/stage`; `default` where there is none."""
        return self.json.value(pointer, default)

    def has(self, pointer: str) -> bool:
        """Return whether anything is written there, null included."""
        return self.json.has(pointer)

    def block(self, pointer: str) -> Mapping[str, object]:
        """The object that is written there; empty where there is none, or something else."""
        value = self.json.value(pointer)
        return value if isinstance(value, dict) else {}

    def locate(self, pointer: str) -> Location:
        """The place of a value, else of the nearest thing around it."""
        return self.json.locate(pointer)

    def locate_key(self, pointer: str) -> Location:
        """The place of the key whose value is at `pointer`."""
        return self.json.locate_key(pointer)
