"""Placeholders of templates in a config, and the config with numbers in their place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, NamedTuple

from ....patterns import lazy_pattern
from ....submission.submission import Submission
from ....text.hjson.text import JsonText, read_json
from ....text.text import text_of
from ..config import Config

#: Quoted text and comments, which may contain anything; else a placeholder, which is in `left`.
_TOKENS: Final = lazy_pattern(
    r'"(?:[^"\\\n]|\\.){0,300}"|(?:\#|//)[^\n]*|(?P<left>'
    r"\$\{[^}\n]{0,200}\}|\$[A-Za-z_]\w*|\$\([^)\n]{0,200}\)+"
    r"|\{\{-?\s{0,9}[A-Za-z_][^{}\n]{0,200}\}\}|\{%[^%\n]{0,200}%\}"
    r"|<[A-Za-z_][\w -]{0,60}>|%\(\w{1,60}\)s|@[A-Za-z_]\w{0,60}@"
    # a name in capitals; beside a quote it is a text that lacks the other quote
    r"|(?<![\w.\"])[A-Z][A-Z0-9]*(?:[A-Z0-9]|_\w*)\b(?!\"|\s*:))",
    re.ASCII,
)
_SEARCHED: Final = 20_000  #: characters that are searched; a config has a few thousand


class Placeholder(NamedTuple):
    """A placeholder without quotes."""

    offset: int
    text: str


def leftover(config: Config) -> Placeholder | None:
    """The first placeholder that the config's reader can't read, or None."""
    broken = config.json.hjson_broken if config.consumer == "deepspeed" else config.json.broken
    return None if broken is None else next(bare_placeholders(config), None)


def bare_placeholders(config: Config) -> Iterator[Placeholder]:
    """Unquoted placeholders; hjson would read such a text up to its line's end."""
    tokens = _TOKENS.finditer(config.json.text.content[:_SEARCHED])
    return (Placeholder(token.start(), token["left"]) for token in tokens if token["left"])


def filled_in(config: Config) -> JsonText | None:
    """The text with a number for each unquoted placeholder; None if one isn't a key's value.

    Offsets in it are those of the config: a number has as many digits as the placeholder letters.
    """
    content = config.json.text.content
    offsets = [offset for offset, _ in bare_placeholders(config)]
    if not offsets:
        return config.json
    if not all(re.search(r":\s*$", content[max(0, offset - 80) : offset]) for offset in offsets):
        return None
    filled = _TOKENS.sub(
        lambda token: "1" * len(token[0]) if token["left"] else token[0], content[:_SEARCHED]
    )
    return read_json(text_of(filled + content[_SEARCHED:], config.path))


def is_filled_in(submission: Submission, config: Config) -> bool:
    """Whether a script hands the config to a command that starts no training: it may rewrite it."""
    words = (word for script in submission.shell_texts for word in script.beside_launches)
    return any(PurePath(word.value or word.raw).name == config.name for word in words)
