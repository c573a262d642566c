"""DeepSpeed configs that a script makes of templates: `sed "s/STAGE/$STAGE/" ds_TEMPLATE.json | sed ... > ds.json`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Final

from ..facts.hjson.text import read_json
from ..job.text import Text, UnreadableText, read_path
from ..programs.document import DsConfig
from ..programs.lookup import place_of
from ..programs.shell.records import Command, Word
from ..programs.shell.script import ShellScript

#: `s/NAME/value/`, by any delimiter; names and values with a meaning for sed are left alone.
_SUBSTITUTION: Final = re.compile(r"s([/|#,:])([\w@{}<>$-]+)\1((?:(?!\1)[^\\&\n])*)\1(g?)")
_GAP: Final = r"(?:[ \t]|\\\r?\n)*"
_PIPE: Final = re.compile(rf"{_GAP}\|(?:\s|\\\r?\n)*")
_INTO: Final = re.compile(rf"{_GAP}>{_GAP}([\"']?)([^\s\"'>;|&]+)\1{_GAP}(?:\r?\n|$|;|\))")
_VARIABLE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_MOST_BYTES: Final = 100_000  # of a template; a config has a few thousand
_MOST_ABOVE: Final = 4  # folders above the script in which a template is looked for


@dataclass(slots=True)
class _Chain:
    """A line of `sed` commands, each with what the one before it writes."""

    template: str
    index: int  #: of the last command
    end: int  #: the offset behind it
    values: dict[str, tuple[str, bool]] = field(default_factory=dict)  #: by name: the value, and whether everywhere
    known: bool = True  #: whether every substitution is


def filled_templates(shell: ShellScript) -> Iterator[DsConfig]:
    """The configs of which every value is known, each with the template's lines."""
    content = shell.text.content
    for chain in _chains(shell):
        into = _INTO.match(content, chain.end) if chain.known else None
        target = _expanded(shell, into[2], chain.index + 1) if into else None
        text = _text_of(chain.template, shell.text.path) if target else None
        if text is not None and text.content.lstrip().startswith("{"):
            filled = "\n".join(_filled(line, chain.values) for line in text.content.split("\n"))
            json = read_json(Text(path=text.path, content=filled, lines=filled.split("\n"), folder=text.folder))
            yield DsConfig(json=json, target=target)


def _chains(shell: ShellScript) -> Iterator[_Chain]:
    chain: _Chain | None = None
    for command in shell.commands:
        if not command.words or PurePath(command.words[0].value or "").name != "sed" or command.inside is not None:
            continue
        begin = command.words[0].offset
        if chain is not None and _PIPE.fullmatch(shell.text.content, chain.end, max(begin, chain.end)):
            _add(chain, command, command.words[1:])
            continue
        if chain is not None:
            yield chain
        *substitutions, operand = command.words
        chain = None
        if operand.value is not None and operand.value.endswith((".json", ".hjson")):
            chain = _Chain(template=operand.value, index=command.index, end=0)
            _add(chain, command, tuple(substitutions[1:]))
    if chain is not None:
        yield chain


def _add(chain: _Chain, command: Command, words: tuple[Word, ...]) -> None:
    """What one more command of a chain substitutes."""
    last = command.words[-1]
    chain.index, chain.end = command.index, last.offset + len(last.raw)
    for word in words:
        if word.value in ("-e", "-E", "-r"):
            continue
        match = _SUBSTITUTION.fullmatch(word.value) if word.value is not None else None
        if match is None:
            chain.known = False
        else:
            chain.values.setdefault(match[2], (match[3], bool(match[4])))


def _filled(line: str, values: Mapping[str, tuple[str, bool]]) -> str:
    for name, (value, everywhere) in values.items():
        line = line.replace(name, value, -1 if everywhere else 1)
    return line


def _expanded(shell: ShellScript, text: str, before: int) -> str | None:
    """A word with the values that its variables have there; None where one isn't known."""
    values = {name or braced: shell.value_of(name or braced, before) for name, braced in _VARIABLE.findall(text)}
    if None in values.values():
        return None
    path = _VARIABLE.sub(lambda found: values[found[1] or found[2]] or "", text)
    return path if "$" not in path and path.endswith((".json", ".hjson")) else None


def _text_of(template: str, script: str) -> Text | None:
    """The template, where the script would find it: beside it, above it, or in the working directory."""
    folder = Path(script).parent
    for base in dict.fromkeys((folder, *list(folder.parents)[:_MOST_ABOVE], Path())):
        try:
            if (base / template).is_file():
                return read_path(place_of(str(base / template)), limit=_MOST_BYTES)
        except (OSError, ValueError, UnreadableText):  # a name too long, or no text
            return None
    return None
