"""Values that are left to the reader, and names that say what a file is for."""

from __future__ import annotations

import re
from typing import Final

#: `<name>`, `{{ name }}`, `{name}`, `[a name]`, `@NAME@`, `__NAME__`, `XXX`, `your_name`: marks that templates have.
_PLACEHOLDER: Final = re.compile(
    r"<\s*[A-Za-z][^<>]*>|\{\{|\{%|(?<![${])\{\s*[A-Za-z_]\w*\s*\}|@[A-Z][A-Z0-9_]+@|\b__[A-Z][A-Z0-9_]*__\b|"
    r"\byour[_-]|\bXXX+\b|(?<![\w\]$\[])\[(?=[^\[\]\n]*[A-Za-z])"
    r"[^\[\]\n\"',=$ ][^\[\]\n\"',=$]{0,100} [^\[\]\n\"',=$]{1,100}\]",
    re.IGNORECASE,
)
_CONSTANT: Final = re.compile(r"[A-Z]+(?:[_-][A-Z]+)+")  # `CHANGE_ME`, `PARTITION_NAME`
#: A value that is left to the reader: `...`, `xx`, `x.x.x.x`, `10.0.0.x`, `/path/to/data`, `%s`.
_LEFT_OPEN: Final = re.compile(
    r"\.{2,}|…|\?+|[xX*_-]{2,}|[xX]|(?=.*[xX*])(?:[0-9]{1,3}|[xX*]{1,3})(?:\.(?:[0-9]{1,3}|[xX*]{1,3})){3}|"
    r"(?:[xX#?*]{1,5}[.:]){1,7}[xX#?*]{1,5}|%(?:\(\w+\))?[ds]|.*(?<![A-Za-z])(?:your[_ -]|path[/_]to[/_]).*",
    re.IGNORECASE,
)
#: Words that no number is, and no name of a host, which has neither blanks nor underscores (RFC 1123, section 2.1).
_WORDS: Final = re.compile(r"[a-z]+(?:[_ .-]*[_ ]+[a-z]+)+", re.IGNORECASE)

#: The same in a shell's words, where `<` and `>` would be redirections: `<path to data>`, but neither `<in >out`
#: nor `<in>out` nor `<in 2> err`.
IN_WORDS: Final = re.compile(
    r"<[A-Za-z][^<>|;&$`\"\n]{0,100}(?<![ \t])(?<![ \t]\d)>(?=[\s\"'/:,._\\;)|&-]|\Z)(?!/dev/)"
)


def is_placeholder(text: str) -> bool:
    """Return whether a text holds a placeholder that is to be filled in."""
    return _PLACEHOLDER.search(text) is not None or _CONSTANT.fullmatch(text) is not None


def is_left_open(text: str, name: str = "") -> bool:
    """Return whether a whole value, of option `name`, is a placeholder: `...`, `x.x.x.x`, `--port=port`, or nothing."""
    text = text.strip().strip("\"'[]")
    own = set(re.split(r"[_-]+", name.lstrip("-").lower()))
    named = set(re.split(r"[_ .-]+", text.lower())) <= own
    return not text or named or is_placeholder(text) or _LEFT_OPEN.fullmatch(text) is not None


def is_words(text: str) -> bool:
    """Return whether a text is words, as no number is and no host: `node_ip`, `number of nodes`."""
    return _WORDS.fullmatch(text) is not None


#: A number, an amount or a time that is to be written: `NUM_GPUS`, `XXG`, `hh:mm:ss`.
_CAPITALS: Final = re.compile(r"[A-Z]+(?:[:_-][A-Z0-9]+)*|(?:d{1,2}-)?hh(?::mm)?(?::ss)?", re.ASCII)


def is_to_fill(text: str, name: str = "") -> bool:
    """Return whether a text where a number is due stands for one that the reader is to write."""
    return _CAPITALS.fullmatch(text) is not None or is_left_open(text, name)
