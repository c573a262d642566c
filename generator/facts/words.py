"""Values that are left to the reader, and names that say what a file is for."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

_PLACEHOLDER: Final = re.compile(
    r"<\s*[A-Za-z][^<>]*>|\{\{|\{%|(?<![${])\{\s*[A-Za-z_]\w*\s*\}|@[A-Z][A-Z0-9_]+@|\b__[A-Z][A-Z0-9_]*__\b|"
    r"\b(?:your|my)[_-](?:partition|account|qos|project|name|email|cluster|compute|queue)\b|"
    r"\b(?:CHANGE[_-]?ME|REPLACE[_-]?ME|FIXME|XXX+|TODO|PARTITION_NAME|ACCOUNT_NAME)\b",
    re.IGNORECASE,
)
#: A value that is left to the reader: `...`, `xx`, `x.x.x.x`, `10.0.0.x`, `<ip>`, or words such as `node_ip` alone.
_LEFT_OPEN: Final = re.compile(
    r"\.{2,}|…|\?+|[xX*_-]{2,}|[xX]|(?=.*[xX*])(?:[0-9]{1,3}|[xX*]{1,3})(?:\.(?:[0-9]{1,3}|[xX*]{1,3})){3}|"
    r"(?:[xX#?*]{1,5}[.:]){1,7}[xX#?*]{1,5}|%(?:\(\w+\))?[ds]|.*(?<![A-Za-z])(?:your[_ -]|path[/_]to[/_]).*",
    re.IGNORECASE,
)
_GENERIC: Final = re.compile(
    r"(?:(?:your|my|the|some|first|second|other|remote|master|main|worker|head|node|machine|server|host|private|public|"
    r"ip|ipv4|addr|address|name|hostname|port|rank|value|number|num|here|placeholder)(?:[_.\s-]+|$))+",
    re.IGNORECASE,
)
#: Names of one word that a machine or setting really may have.
_REAL: Final = frozenset({"master", "main", "worker", "head", "node", "machine", "server", "host"})

#: The same in a shell's words, where `<` and `>` would be redirections: `<path to data>`, but neither `<in >out`
#: nor `<in>out` nor `<in 2> err`.
IN_WORDS: Final = re.compile(
    r"<[A-Za-z][^<>|;&$`\"\n]{0,100}(?<![ \t])(?<![ \t]\d)>(?=[\s\"'/:,._\\;)|&-]|\Z)(?!/dev/)"
)


def is_placeholder(text: str) -> bool:
    """Return whether a text holds a placeholder that is to be filled in."""
    return _PLACEHOLDER.search(text) is not None


def is_left_open(text: str, name: str = "") -> bool:
    """Return whether a whole value, of option `name`, is a placeholder: `...`, `x.x.x.x`, `node_ip`, `--port=port`."""
    text = text.strip().strip("\"'[]")
    own = name.lstrip("-").replace("-", "_").lower()
    if is_placeholder(text) or _LEFT_OPEN.fullmatch(text) or (own and text.replace("-", "_").lower() == own):
        return True
    return text.lower() not in _REAL and _GENERIC.fullmatch(text) is not None


#: A number, an amount or a time that is to be written: `NUM_GPUS`, `XXG`, `hh:mm:ss`.
_CAPITALS: Final = re.compile(r"[A-Z]+(?:[:_-][A-Z0-9]+)*|(?:d{1,2}-)?hh(?::mm)?(?::ss)?", re.ASCII)


def is_to_fill(text: str, name: str = "") -> bool:
    """Return whether a text where a number is due stands for one that the reader is to write."""
    return _CAPITALS.fullmatch(text) is not None or is_left_open(text, name)


#: Names of what prepares data, converts, measures or uses a model; and of what trains one. Retrieval is no evaluation.
_OTHER: Final = re.compile(
    r"infer|generat|convert|preprocess|prepare|tokeni[sz]e|download|(?<!ri)eval|serv(?:e|ing)|export|_perf\b|"
    r"nccl[-_]test|chatbot",
    re.IGNORECASE,
)
_TRAINING: Final = re.compile(r"train|tun(?:e|ing)|sft|dpo|grpo|ppo|distill", re.IGNORECASE)
_PREPARES: Final = re.compile(r"setup|install|health|clean|^apt(?:-get)?$", re.IGNORECASE)


def trains_nothing(name: str) -> bool:
    """Return whether a file is named after something else than training."""
    return _OTHER.search(name) is not None and _TRAINING.search(name) is None


def is_template(path: str) -> bool:
    """Return whether a file, or the folder that it is in, is named as something to be completed."""
    return any("template" in part.lower() for part in PurePosixPath(path).parts[-2:])


def prepares(name: str) -> bool:
    """Return whether a program is named after the preparation of a machine."""
    return _PREPARES.search(name) is not None and _TRAINING.search(name) is None
