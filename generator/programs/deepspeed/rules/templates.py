"""Rules on what a template leaves in a DeepSpeed config: a placeholder as a value, or text that can't be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from ...submission import Submission, references
from ..config import Config

FILL: Final = "fill the template in before the job starts; DeepSpeed expands no variables"

#: `${STAGE}`, `{{ stage }}`, `<STAGE>`, `%(stage)s`, `@STAGE@`, `ZERO_STAGE`.
_PLACEHOLDER: Final = re.compile(
    r"\$\{?[A-Za-z_]\w*\}?|\{\{.*\}\}|\{%.*%\}|<[A-Za-z_][\w -]*>|%\(\w+\)s|@\w+@|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+",
    re.ASCII,
)
#: Quoted text and comments, which may contain anything; else what a template writes for a value.
_TOKENS: Final = re.compile(
    r'"(?:[^"\\\n]|\\.){0,300}"|(?:\#|//)[^\n]*|(?P<left>'
    r"\$\{[^}\n]{0,200}\}|\$[A-Za-z_]\w*|\$\([^)\n]{0,200}\)+"
    r"|\{\{-?\s{0,9}[A-Za-z_][^{}\n]{0,200}\}\}|\{%[^%\n]{0,200}%\}"
    r"|<[A-Za-z_][\w -]{0,60}>|%\(\w{1,60}\)s|@[A-Za-z_]\w{0,60}@"
    r"|(?<![\w.])[A-Z][A-Z0-9_]+\b(?!\s*:))",
    re.ASCII,
)
_MOST: Final = 20_000  #: characters that are searched; a config has a few thousand


def is_placeholder(value: object) -> bool:
    """Ask whether a value looks like a template's variable; hjson reads one without quotes up to its line's end."""
    return isinstance(value, str) and _PLACEHOLDER.fullmatch(value.strip().rstrip(",")) is not None


def is_variable(value: object) -> bool:
    """Return whether the text in place of a number is the name of a template's variable, such as GBSIZE."""
    capitals = isinstance(value, str) and value.rstrip(",").isalpha() and value.isupper()
    return capitals or is_placeholder(value)


def leftover(config: Config) -> tuple[int, str] | None:
    """The offset and text of the first placeholder in a text that its reader can't read, if there is one."""
    broken = config.json.hjson_broken if config.consumer == "deepspeed" else config.json.broken
    if broken is None:
        return None
    found = (token for token in _TOKENS.finditer(config.json.text.content[:_MOST]) if token["left"])
    first = next(found, None)
    return None if first is None else (first.start(), first["left"])


def placeholders(config: Config) -> tuple[str, ...]:
    """Return what somebody or something is to fill in, each once."""
    quoted = filter(is_placeholder, _texts(config.json.data))
    return tuple(dict.fromkeys((*bare_placeholders(config), *quoted)))


def bare_placeholders(config: Config) -> Iterator[str]:
    """Placeholders without quotes, which hjson reads as texts up to the ends of their lines."""
    return (token["left"] for token in _TOKENS.finditer(config.json.text.content[:_MOST]) if token["left"])


def is_used_as_it_is(submission: Submission, config: Config) -> bool:
    """Return whether a launch line or a file names a template as its config, and no script fills it in."""
    named = any(link.kind == "DeepSpeed config" and link.name == config.name for link in references(submission))
    return config.embedded or (named and not is_filled_in(submission, config))


def is_filled_in(submission: Submission, config: Config) -> bool:
    """Return whether a script hands a config to a command that starts no training, which may write it anew."""
    words = (word for script in submission.commands for word in script.beside_launches)
    return any(PurePath(word.value or word.raw).name == config.name for word in words)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip().rstrip(",")
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
