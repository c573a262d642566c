"""One file: its text, what kind of file it is and by what evidence, and its data.

The data is parsed only where something asks for it.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Final

from ..patterns import lazy_pattern
from ..text.document import Kind, read_yaml
from ..text.hjson.text import JsonText, read_json
from ..text.source import Source
from ..text.text import Text, text_of
from .kinds import MAPPINGS, YAML, deepspeed_keys, is_script, kind_of, may_be_hjson, resembles
from .other_programs import program_by_keys

# Imports within functions save start-up time.

_MOST_CHARACTERS: Final = 100_000  # of YAML and of damaged JSON; whatever has more is data
#: Blank lines, comments, document starts and directives before the first key of YAML.
_LEADING: Final = lazy_pattern(r"(?:[ \t]*(?:#[^\n]*)?\n|(?:---|%)[^\n]*\n)*")
#: A word before a colon, where a key of HJSON may stand.
_LOOSE: Final = lazy_pattern(
    r"(?:^|[{,])[ \t]*[\"']?([A-Za-z_$][\w$-]*)[\"']?[ \t]*:", re.MULTILINE
)
#: A key of YAML: in double quotes, in single quotes, or plain.
_KEY: Final = r"(?:\"([^\"\n]+)\"|'([^'\n]+)'|([A-Za-z_$<][\w$<.-]*(?: [\w.-]+)*))"
_SCHEMA: Final = lazy_pattern(r"^[\"']?\$schema[\"']?[ \t]*:[ \t]*[\"']?([^\s\"']+)", re.MULTILINE)


def json_keys(content: str) -> frozenset[str] | None:
    """The keys of a strict JSON object at its top level.

    None where Python's `json` can't read the text. A list counts as an object with the single key
    `[]`, which no kind of file has.
    """
    if content.lstrip()[:1] == "[":
        return frozenset({"[]"})
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return frozenset()

    # Editors put `$schema` into any file; of the kinds that are read, AzureML's alone have it.
    if "$schema" in data and not _is_azureml(data["$schema"]):
        return frozenset(data) - {"$schema"}
    return frozenset(data)


def loose_keys(content: str) -> frozenset[str]:
    """Everything that looks like a key, at any depth: for HJSON and damaged JSON."""
    return frozenset(_LOOSE.findall(content[:_MOST_CHARACTERS]))


def yaml_keys(content: str) -> frozenset[str]:
    """The keys of a block mapping at its top level, also where the YAML is broken.

    A key is a word before a colon, indented as far as the first line.
    """
    content = content[:_MOST_CHARACTERS]
    start = _start(content)
    indent = len(content) - start - len(content[start:].lstrip(" "))
    pattern = re.compile(rf"^ {{{indent}}}{_KEY}[ \t]*:(?=[ \t\r\n]|\Z)", re.MULTILINE)

    spellings = pattern.findall(content, start)
    keys = frozenset(double or single or plain for double, single, plain in spellings)
    schema = _SCHEMA.search(content)
    return keys if schema and _is_azureml(schema[1]) else keys - {"$schema"}


def _is_azureml(schema: object) -> bool:
    from ..programs.azureml.job import is_of_azureml

    return is_of_azureml(schema)


def _start(content: str) -> int:
    """Return the offset of the first line that is neither blank nor a comment."""
    return _LEADING.match(content).end()  # type: ignore[union-attr]  # it always matches


class File:
    """A file's text, and what kind of file it is.

    Parsing with places is slow, so it is done only where the kind or the keys need it.
    """

    def __init__(self, name: str, content: str, folder: Path | None, *, named: bool) -> None:
        self.name = name
        self.content = content
        self.folder = folder
        self.named = named  #: by the user
        self.path = Path(name)

        suffix = self.path.suffix.lower()
        self.is_yaml = suffix in YAML
        # A file of any other name is JSON where it begins with a brace; but so may a script.
        may_begin_with_brace = not self.is_yaml and not is_script(self.path)
        begins_with_brace = content.lstrip()[:1] == "{"
        self.is_json = suffix in (".json", ".hjson") or (may_begin_with_brace and begins_with_brace)
        self._json: JsonText | None = None
        self._yaml: Source | None = None

    @cached_property
    def text(self) -> Text:
        """The text with its lines, its secrets masked. Raises `UnreadableText` when it is none."""
        return text_of(self.content, self.name, self.folder)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Its keys at the top level, as far as they can be read.

        For damaged JSON, DeepSpeed's keys at any level are added.
        """
        if self.is_json:
            return self._keys_of_json()

        content = self.content
        if not self.is_yaml:
            # A spec that the user names may lack a suffix.
            may_be_spec = self.named and not self.path.suffix
            return yaml_keys(content) if may_be_spec else frozenset()

        keys = yaml_keys(content)
        is_flow_mapping = content.startswith("{", _start(content))  # which YAML takes from JSON
        return keys | _keys_of(self.yaml().data) if is_flow_mapping else keys

    def _keys_of_json(self) -> frozenset[str]:
        content = self.content
        keys = json_keys(content)
        if keys is not None:
            return keys

        # It isn't strict JSON. Reading it as HJSON takes long, so there has to be a reason.
        words = loose_keys(content)
        if not self.named and not may_be_hjson(self.path, words):
            return frozenset()

        json = self.json()
        keys = _keys_of(json.data)
        # Where a bracket is missing, keys of the top level end up in a block.
        return keys if json.broken is None else keys | deepspeed_keys(words)

    @property
    def program(self) -> str | None:
        """The program that reads the file, where dsgen doesn't check that program's files."""
        return None if self._on_clusters else self.program_by_keys

    @cached_property
    def program_by_keys(self) -> str | None:
        """The program whose file it is by its keys."""
        if self.path.suffix.lower() not in MAPPINGS:
            return None
        return program_by_keys(self.keys, self.content, is_json=self.is_json)

    @cached_property
    def other_job(self) -> str | None:
        """What an AzureML file describes, where that isn't a command job; else None."""
        if self.path.name.lower() in ("flow.dag.yaml", "flow.dag.yml"):
            return "prompt flow"
        if self._kind != "AzureML job":
            return None
        from ..programs.azureml.job import other_than_command

        return other_than_command(self.yaml())

    @cached_property
    def _on_clusters(self) -> Kind | None:
        """The kind of a file of Kubernetes or SkyPilot; None for kinds that aren't read."""
        if self.program_by_keys == "Kubernetes" and self.is_yaml:
            from ..programs.kubernetes.job import is_training_job

            return "Kubernetes job" if is_training_job(self.content) else None
        if self.program_by_keys == "SkyPilot" and self.is_yaml:
            from ..programs.skypilot.read import is_task

            return "SkyPilot task" if is_task(self.content) else None
        return None

    @property
    def belongs_to(self) -> str | None:
        """The program or the kind of job that a file is of which dsgen doesn't check; else None."""
        return self.program or self.other_job

    @property
    def kind(self) -> Kind | None:
        """The kind that name and keys show; None where it isn't checked."""
        return self._on_clusters or (None if self.belongs_to else self._kind)

    @cached_property
    def _kind(self) -> Kind | None:
        return kind_of(self.path, self.content, self.keys, named=self.named)

    @property
    def is_certain(self) -> bool:
        """Whether name or keys alone show the kind, so that the file may be edited.

        Where the user names a file, less evidence is enough for its kind, but not for editing it.
        """
        if self._on_clusters is not None:
            return True
        if self._kind is None:
            return False
        return kind_of(self.path, self.content, self.keys, named=False) is not None

    def kind_as_named(self, consumer: str | None) -> Kind | None:
        """The kind that a file named by the user is meant to be.

        JSON that a `consumer` reads is a DeepSpeed config. Any other file has to have keys like
        those of its kind.
        """
        if self.is_json and consumer:
            return "DeepSpeed config"
        if self.path.suffix.lower() not in ("", *MAPPINGS):
            return None
        kind: Kind = "job spec" if self.is_yaml else "DeepSpeed config"
        return kind if resembles(self.keys, kind) else None

    def json(self) -> JsonText:
        """Its data, read as JSON or HJSON."""
        if self._json is None:
            self._json = read_json(self.text)
        return self._json

    def yaml(self) -> Source:
        """Its data, read as YAML."""
        if self._yaml is None:
            self._yaml = read_yaml(self.text)
        return self._yaml


def _keys_of(data: object) -> frozenset[str]:
    return frozenset(data) if isinstance(data, dict) else frozenset()
