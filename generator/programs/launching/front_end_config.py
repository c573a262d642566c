"""A front end's own YAML or JSON file, read as the words of a launch.

What the rules say of words `a.b=c` of a launch line they say of the keys of a file as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from ...dataclass import dataclass
from ...findings import Location
from ...places import Lines, holds_variable
from ...submission.launches import Launch
from ...text.document import Kind
from ...text.shell.records import ShellScript, Word
from ...text.source import Source, escape
from ...text.text import Text
from .front_ends import FrontEnd

_MOST_KEYS: Final = 2_000  # files by hand have a hundred
_DEEPEST: Final = 8  # mappings within mappings; files by hand have five


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndConfig:
    """The settings of a front end's file."""

    document_kind: ClassVar[Kind] = "front end config"
    path: str
    launch: Launch  #: without calls: its words are the file's keys with their values

    def locate(self, name: str) -> Location:
        """The place of a key, else the file."""
        words = (word for word in self.launch.arguments if word.prefix.startswith(f"{name}="))
        word = next(words, None)
        return Location(path=self.path) if word is None else self.launch.script.locate(word)


def config_of(front_end: FrontEnd, source: Source, text: Text) -> FrontEndConfig:
    """The settings of a file, at the places of its keys."""
    data = source.data if isinstance(source.data, dict) else {}
    places = [Location(path=source.path)]
    words = list[Word]()
    for name, pointer, value in _flat(data):
        if len(words) == _MOST_KEYS:
            break
        places.append(source.locate(pointer))
        written = f"{name}={value}"
        is_known = not holds_variable(value)
        word_value, parts = (written, (written,)) if is_known else (None, (f"{name}=", None))
        words.append(Word(raw=written, value=word_value, offset=len(places) - 1, parts=parts))
    script = ShellScript(text=text, lines=Lines(text), place=lambda index: places[index])
    launch = Launch(
        script=script,
        calls=(),
        program=Word(raw=front_end.name, value=front_end.name, offset=0, parts=(front_end.name,)),
        arguments=tuple(words),
        environment={},
        front_end=front_end.name,
    )
    return FrontEndConfig(path=source.path, launch=launch)


def _flat(
    data: Mapping[str, object], before: str = "", within: str = "", depth: int = _DEEPEST
) -> Iterator[tuple[str, str, object]]:
    """The values of a mapping and of mappings in it, with dotted names and pointers.

    A list is its first value: whether there is one is all that is asked. What is empty is not set.
    """
    for key, value in data.items():
        name, pointer = f"{before}{key}", f"{within}/{escape(str(key))}"
        if isinstance(value, dict) and depth:
            yield from _flat(value, f"{name}.", pointer, depth - 1)
        if isinstance(value, list | dict):
            if value:
                yield name, pointer, "[...]"
        elif value is not None and value != "":
            yield name, pointer, str(value).lower() if isinstance(value, bool) else value
