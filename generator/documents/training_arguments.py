"""Hugging Face TrainingArguments: from YAML, from JSON, or from a launch line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..findings import Location
from ..spec.source import Source, escape
from .json_text import JsonText
from .launch_line import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingArguments:
    """Arguments by their Python name (`per_device_train_batch_size`), typed as TrainingArguments types them."""

    path: str
    values: Mapping[str, object]
    places: Mapping[str, Location] = field(default_factory=dict)  #: of each value

    def value(self, name: str, default: object = None) -> object:
        """What is given for an argument; `default` where nothing is."""
        return self.values.get(name, default)

    def locate(self, name: str) -> Location:
        """The place of an argument, else the file."""
        return self.places.get(name, Location(path=self.path))


def from_json(json: JsonText) -> TrainingArguments:
    """The arguments of a JSON file."""
    values = json.data if isinstance(json.data, dict) else {}
    places = {name: json.locate(f"/{escape(name)}") for name in values}
    return TrainingArguments(path=json.text.path, values=values, places=places)


def from_yaml(source: Source) -> TrainingArguments:
    """The arguments of a YAML file."""
    values = source.data if isinstance(source.data, dict) else {}
    places = {name: source.locate(f"/{escape(name)}") for name in values}
    return TrainingArguments(path=source.path, values=values, places=places)


def from_launches(launches: Iterable[Launch]) -> Iterator[TrainingArguments]:
    """The arguments on the launch lines of programs that take them."""
    return iter(())
