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


def is_placeholder(text: str) -> bool:
    """Whether a text holds a placeholder that is to be filled in."""
    return _PLACEHOLDER.search(text) is not None
