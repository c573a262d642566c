"""What all documents that `dsgen validate` reads have in common, and documents in YAML.

Other programs (AzureML, accelerate, Hugging Face) read YAML with PyYAML's `safe_load`, as YAML 1.1.
So their files are read like that here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any, ClassVar, Final, Protocol

import yaml

from ..dataclass import dataclass
from ..findings import Location
from ..places import Values
from .hjson.text import JsonText
from .source import Source, escape, parse
from .text import Text
from .yaml_core import MAX_DIGITS, Dialect, resolve_scalar, short_tag

#: The name of a kind of document, as in `programs/kinds.json`; also "job spec" and "launch script".
Kind = str


class Document(Protocol):
    """A document with its places. Each kind is a class, in the folder of the program for it."""

    document_kind: ClassVar[Kind]

    @property
    def path(self) -> str:
        """As the user named it."""


class FileText(Protocol):
    """A file whose kind is known, as the reader of that kind gets it."""

    is_json: bool
    is_yaml: bool

    @property
    def text(self) -> Text:
        """The text, its secrets masked."""

    def json(self) -> JsonText:
        """The data as JSON, or HJSON."""

    def yaml(self) -> Source:
        """The data as YAML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job spec of dsgen's own; the spec's reader and the rules of jobs check it."""

    document_kind: ClassVar[Kind] = "job spec"

    path: str
    name: str  #: of the file as the user gave it; `path` may have escapes
    is_named: bool = False  #: by the user: it may name files anywhere, other than one in a folder


_RESOLVER: Final[Any] = yaml.resolver.Resolver()
_CONSTRUCTOR: Final = yaml.constructor.SafeConstructor()
_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = frozenset(
    f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "timestamp", "binary", "str")
)


def legacy_scalar(text: str, *, plain: bool, tag: str | None) -> object:
    """A scalar as PyYAML reads it: `no` is false, `12:30` 750, `1e-5` text, `2026-01-31` a date.

    Raises `ValueError` for a tag that `safe_load` doesn't know, and for what doesn't fit its tag.
    """
    if tag in (None, "!"):
        # PyYAML's pair: whether a plain scalar, and whether a quoted one, needs no tag.
        implicit = (plain or tag == "!", True)
        tag = _RESOLVER.resolve(yaml.ScalarNode, text, implicit)
    if tag == f"{_TAG}str":
        return text
    if tag not in _SCALARS:
        raise ValueError(f"this has the tag {short_tag(tag)}, which safe_load doesn't read")
    if tag in (f"{_TAG}int", f"{_TAG}float") and len(text) > MAX_DIGITS:
        raise ValueError(f"this is a number of {len(text)} digits; at most {MAX_DIGITS} are read")
    construct: Any = _CONSTRUCTOR.yaml_constructors[tag]
    try:
        value: object = construct(_CONSTRUCTOR, yaml.ScalarNode(tag, text))
    except (yaml.YAMLError, ValueError, OverflowError, LookupError, TypeError, AttributeError):
        raise ValueError(f"this has the tag {short_tag(tag)}, but {text[:40]!r} is none") from None
    return value


LEGACY: Final = Dialect(
    scalar=legacy_scalar,
    merges=True,
    typed_keys=True,
    last_wins=True,
    own_parser=True,
    empty_hint="write the keys that the program needs",
    deep_hint="such a file needs a few levels",
    many_hint="write values out instead of aliases",
    single="keep one document in a file",
)
_JSON: Final = replace(
    LEGACY, scalar=resolve_scalar, merges=False, typed_keys=False, own_parser=False
)


def read_yaml(text: Text) -> Source:
    """`text` as data with places. Bad text doesn't raise: `findings` has all that is wrong.

    If a key is there twice, the last one counts, as for PyYAML; it is an error all the same. Dates
    stay dates.
    """
    is_json = PurePath(text.path).suffix.lower() in (".json", ".hjson")
    return parse(text, _JSON if is_json else LEGACY)


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlDocument(Values):
    """A YAML document of another program.

    A name is a key, or the keys on the way to it: `resources/shm_size`.
    """

    source: Source
    root: str = ""  #: where the document is in the file, for one within another: names begin there

    @property
    def path(self) -> str:
        """As the user named it."""
        return self.source.path

    @property
    def readable(self) -> bool:
        """Return whether it could be read to its end, and is a mapping."""
        return self.source.complete and isinstance(self.source.data, dict)

    def value(self, name: str, default: object = None) -> object:
        """Return the value that is written there; `default` where there is none."""
        return self.source.value(self.pointer(name), default)

    def has(self, name: str) -> bool:
        """Return whether anything is written there, null included."""
        return self.source.has(self.pointer(name))

    def locate(self, name: str) -> Location:
        """The place of a value, else of the nearest thing around it."""
        return self.source.locate(self.pointer(name))

    def locate_key(self, name: str) -> Location:
        """The place of a key."""
        return replace(
            self.source.locate_key(self.pointer(name)), pointer=self.locate(name).pointer
        )

    def integer(self, name: str) -> int | None:
        """The integer there; None where there is none, or something else."""
        return self.source.integer(self.pointer(name))

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

    def items(self, name: str) -> Iterator[tuple[str, Any]]:
        """Each item of the list there, with its place; none where it is no list."""
        value = self.value(name)
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield f"{name}/{index}", item

    def mappings(self, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each item of the list there that is a mapping, with its place."""
        yield from ((place, item) for place, item in self.items(name) if isinstance(item, dict))

    def pointer(self, name: str) -> str:
        """The JSON pointer of a name in the whole text."""
        return "".join(f"/{part}" for part in (self.root, name) if part)
