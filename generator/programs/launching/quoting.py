"""Text that a shell, sbatch, a comment or any YAML parser takes as data: nothing in a job may come out as code."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final

import yaml

from ...dataclass import dataclass
from ..program import ConfigPath

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_PLAIN_WITH_COMMA = re.compile(r"[A-Za-z0-9_@%+=:./-]*,[A-Za-z0-9_@%+=:./,-]*")
_NEGATIVE_NUMBER = re.compile(r"-\.?[0-9]")


@dataclass(frozen=True, slots=True)
class Raw:
    """Text that is already shell code or a comment; the templates don't quote it again."""

    text: str


def shell_word(value: object) -> str:
    """One shell word for a value: quoted, except `Raw`; a `ConfigPath` is looked up in `$CONFIG_DIR` at run time."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, ConfigPath):
        return f'"$CONFIG_DIR"/{shlex.quote(value.name)}'
    text = str(value)
    # A comma needs no quotes, but in a bash array it looks like a mistake, to readers and to shellcheck.
    return f"'{text}'" if _PLAIN_WITH_COMMA.fullmatch(text) else shlex.quote(text)


def option_lines(arguments: Iterable[str | ConfigPath]) -> Iterator[tuple[str | ConfigPath, ...]]:
    """An option together with the values after it, one tuple a line."""
    line: list[str | ConfigPath] = []
    for argument in arguments:
        if line and _is_option(argument):
            yield tuple(line)
            line = []
        line.append(argument)
    if line:
        yield tuple(line)


def _is_option(argument: str | ConfigPath) -> bool:
    return isinstance(argument, str) and argument.startswith("-") and not _NEGATIVE_NUMBER.match(argument)


def comment(text: str, *, indent: str = "", width: int = 110) -> Raw:
    """`text` as comment lines of at most `width` characters; line breaks in it can't end the comment."""
    plain = _UNPRINTABLE.sub(" ", text)
    lines = textwrap.wrap(plain, width=width, break_long_words=False, break_on_hyphens=False) or [""]
    return Raw("\n".join(f"{indent}# {line}".rstrip() for line in lines))


def plain_name(text: str) -> str:
    """`text` with every run of characters outside `A-Za-z0-9._-` as one dash; `job` when nothing is left."""
    return _NOT_IN_NAMES.sub("-", text).strip("-.") or "job"


def sbatch_word(value: object) -> Raw:
    """A value of an #SBATCH line. sbatch takes backslash and double quotes as a shell does, and expands nothing."""
    text = _UNPRINTABLE.sub(" ", str(value))
    if re.fullmatch(r"[A-Za-z0-9._,:/@%+=\[\]&|*()-]+", text):
        return Raw(text)
    return Raw('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')


#: Go's parser takes `1e-5` for a number and `y` for true, PyYAML takes both for text.
#: What is text to every parser without quotes: a word that begins with a letter, a slash, or an option's dashes.
_PLAIN: Final = re.compile(r"(?:--?)?[A-Za-z_/][\w./-]*", re.ASCII)
_OTHER: Final = frozenset({"y", "yes", "n", "no", "on", "off", "true", "false", "null", "nan", "inf"})


class _Dumper(yaml.SafeDumper):
    """The safe dumper with text in quotes or as lines, and lists below their keys."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def generate_anchor(self, node: yaml.Node) -> str:
        number = super().generate_anchor(node)
        return f"same{number.removeprefix('id').lstrip('0')}"


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(value) and value.lower() not in _OTHER
    style = None if plain else "|" if "\n" in value else '"' if not value.isprintable() else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(document: Any) -> str:
    """The YAML of plain data, keys in their order."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
