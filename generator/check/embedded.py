"""Configs that a script writes when it runs: they are checked as if they were files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..programs.deepspeed.config import DsConfig
from ..programs.trainer.fsdp_config import FsdpConfig
from ..programs.trainer.fsdp_config import from_text as fsdp_config_of
from ..text.hjson.text import read_json
from ..text.shell.records import Heredoc, ShellScript
from . import kinds


def embedded_configs(shell: ShellScript) -> Iterator[DsConfig | FsdpConfig]:
    """Return the configs of DeepSpeed and FSDP that a script writes, placed in the script.

    A here-document or `echo` writes them.
    """
    for document in shell.heredocs:
        target = document.target.path if document.target is not None else None
        is_object = document.content.lstrip().startswith("{")
        if target is None or not document.complete or not is_object:
            continue
        content = _in_its_place(document, shell)
        json = read_json(replace(shell.text, content=content, lines=content.split("\n")))
        keys = frozenset(json.data) if isinstance(json.data, dict) else frozenset[str]()
        kind = kinds.kind_of(Path(target), document.content, keys)
        if kind == "DeepSpeed config":
            yield DsConfig(json=json, target=target)
        elif kind == "FSDP config":
            yield fsdp_config_of(shell.text.path, json, target)


def _in_its_place(document: Heredoc, shell: ShellScript) -> str:
    """The text of a here-document with blanks before it, so that places in it are the script's.

    A script in a block of YAML is indented there. So each line of a literal text begins in the
    column that it has in the file; of any other, the first does.
    """
    start = shell.locate(document.offset)
    lines = list[str]()
    offset = document.offset
    for line in document.content.split("\n"):
        text = line.lstrip() if document.literal else line
        column = shell.locate(offset + len(line) - len(text)).column or 1
        is_indented = document.literal or not lines
        lines.append(" " * (column - 1) + text if is_indented else text)
        offset += len(line) + 1
    return "\n" * ((start.line or 1) - 1) + "\n".join(lines)
