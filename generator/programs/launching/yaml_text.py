"""YAML that every parser reads alike: Go's takes `1e-5` for a number and `y` for true, PyYAML takes both for text."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

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
