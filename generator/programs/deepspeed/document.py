"""DeepSpeed's configuration as text, before it is known which program reads it: JSON, HJSON, or YAML handed on."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import PurePath
from typing import ClassVar, Final

from ...dataclass import dataclass
from ...facts.document import FileText, Kind
from ...facts.hjson.text import JsonText, Span
from ...facts.places import Lines, Reader
from ...findings import Location
from ...job.source import Source
from ...job.text import Text
from ...job.wording import value_at, walk


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


_TRIED: Final = re.compile(r"/zero_optimization/(?:offload_\w+/)?\w+|/train_(?:micro_)?batch_size\w*")


def read_file(file: FileText) -> Iterator[DsConfig]:
    """The config that a file is; of YAML that isn't JSON too, what a program hands on that reads it as YAML."""
    source = file.yaml() if file.is_yaml and file.json().deviations else None
    if source is not None and source.complete and isinstance(source.data, dict):
        yield config_from_yaml(source.data, source, file.text, {})
    else:
        yield DsConfig(json=tuning_space(file.json()))


def config_from_yaml(data: Mapping[str, object], source: Source, text: Text, at: Mapping[str, str]) -> DsConfig:
    """A DeepSpeed config that a program hands on as a mapping; `at`: where its keys are in the file, by pointer."""
    lines = Lines(text)

    def offset(where: Location) -> int:
        return lines.starts[(where.line or 1) - 1] + (where.column or 1) - 1

    data, spans = dict(data), {"": Span(0, 0)}
    for pointer, _ in islice(walk("", data), 1, None):
        top, slash, rest = pointer[1:].partition("/")
        old = f"{at.get(f'/{top}', f'/{top}')}{slash}{rest}"
        start, key = offset(source.locate(old)), offset(source.locate_key(old))
        spans[pointer] = Span(start, start, key, key)
    json_text = JsonText(
        text=text, data=data, json_data=data, spans=spans, duplicates=(), deviations=(), broken=None, lines=lines
    )
    return DsConfig(json=tuning_space(json_text), target=text.path)


def tuning_space(json_text: JsonText) -> JsonText:
    """A config as DeepSpeed's autotuner reads it: a list in place of a number is what it tries, as "auto" is.

    Source: deepspeed/autotuning/autotuner.py:305-322 and :544, utils.py:285 @ 0.19.8.
    """
    if json_text.value("/autotuning/enabled") is not True or not isinstance(json_text.data, dict):
        return json_text
    lists = (pointer for pointer in json_text.spans if isinstance(json_text.value(pointer), list))
    tried = list(filter(_TRIED.fullmatch, lists))
    if not tried:
        return json_text
    data = copy.deepcopy(json_text.data)
    for pointer in tried:
        around = value_at(data, pointer.rpartition("/")[0], None)
        if isinstance(around, dict):
            around[pointer.rpartition("/")[2]] = "auto"
    spans = {p: span for p, span in json_text.spans.items() if not any(p.startswith(f"{t}/") for t in tried)}
    return replace(json_text, data=data, json_data=data, spans=spans)
