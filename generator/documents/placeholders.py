"""Text that somebody or something still fills in: `<account>`, `{{ nodes }}`, `{ nodes }`, `@NODES@`, `CHANGE_ME`."""

from __future__ import annotations

import re
from typing import Final

_PLACEHOLDER: Final = re.compile(
    r"<\s*[A-Za-z][^<>]*>|\{\{|\{%|(?<![${])\{\s*[A-Za-z_]\w*\s*\}|@[A-Z][A-Z0-9_]+@|\b__[A-Z][A-Z0-9_]*__\b|"
    r"\b(?:your|my)[_-](?:partition|account|qos|project|name|email|cluster|compute|queue)\b|"
    r"\b(?:CHANGE[_-]?ME|REPLACE[_-]?ME|FIXME|XXX+|TODO|PARTITION_NAME|ACCOUNT_NAME)\b",
    re.IGNORECASE,
)

#: The same in a shell's words, where `<` and `>` would be redirections: `<path to data>`, but neither `<in >out`
#: nor `<in>out` nor `<in 2> err`.
IN_WORDS: Final = re.compile(
    r"<[A-Za-z][^<>|;&$`\"\n]{0,100}(?<![ \t])(?<![ \t]\d)>(?=[\s\"'/:,._\\;)|&-]|\Z)(?!/dev/)"
)


def is_placeholder(text: str) -> bool:
    """Whether a text holds a placeholder that is to be filled in."""
    return _PLACEHOLDER.search(text) is not None


#: What stands for a number, a host or a file on a command line that is to be completed: `NUM_GPUS`, `xxxx`, `x.x.x.x`,
#: `your_port`, `[rank]`, `%d`, `hh:mm:ss`, `...`.
_TO_FILL: Final = re.compile(
    r"<[^<>]+>|\[[A-Za-z][\w -]*\]|\{+\s*[A-Za-z][\w. -]*\}+|%(?:\(\w+\))?[ds]|\.{3,}|\u2026|"
    r"(?:[xX#?*]{1,5}[.:]){3,7}[xX#?*]{1,5}|[xX]{2,}|[?#*_]+|(?:[dD]{1,2}-)?hh(?::mm)?(?::ss)?|"
    r".*(?<![A-Za-z])(?:your[_ -]|path[/_]to[/_]).*",
    re.IGNORECASE,
)
_CAPITALS: Final = re.compile(r"[A-Z][A-Z0-9]*(?:[:_-][A-Z0-9]+)*", re.ASCII)


def is_to_fill(text: str) -> bool:
    """Whether a text where a number, a host or a file is due stands for one that the reader is to write."""
    return _CAPITALS.fullmatch(text) is not None or _TO_FILL.fullmatch(text) is not None or is_placeholder(text)
