"""AzureML command jobs: the YAML, and its command read as a shell script with places in the YAML file."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ..findings import Location
from ..spec.source import Source
from ..spec.text import Text
from .document import AzureMLJob, LaunchScript
from .shell.launch_line import launches, sbatch_options
from .shell.script import read_command_text

_LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # as `Text` counts lines
_PROPERTIES: Final = re.compile(r"(?:[&!]\S*[ \t]+)*")  # an anchor and a tag before the scalar
_BLOCK: Final = re.compile(r"[|>][^\n\r]*(?:\r\n|[\n\r])")
_SKIPPED: Final = frozenset("\\'\"")  # what quoting adds to a quoted scalar


def read_azureml(source: Source, text: Text) -> AzureMLJob:
    """The job of a YAML document, its command read as a shell script."""
    command = source.value("/command")
    script = None
    if isinstance(command, str) and command.strip():
        shell = read_command_text(command, _places(source, text, command), text.path)
        script = LaunchScript(shell=shell, launches=launches(shell), sbatch=sbatch_options(shell))
    return AzureMLJob(source=source, script=script)


def _places(source: Source, text: Text, command: str) -> Callable[[int], Location]:
    """The place in the file of each character of the command; of the key where they can't be told apart."""
    key = replace(source.locate_key("/command"), pointer="/command")
    starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text.content))]
    where = source.locate("/command")
    begin = starts[where.line - 1] + (where.column or 1) - 1 if where.line and where.line <= len(starts) else 0
    offsets = _aligned(command, text.content, begin)

    def place(offset: int) -> Location:
        if offsets is None:
            return key
        at = offsets[min(max(offset, 0), len(offsets) - 1)]
        line = bisect_right(starts, at) - 1
        return text.locate(line, at - starts[line], "/command")

    return place


def _aligned(value: str, content: str, begin: int) -> list[int] | None:
    """Where each character of a scalar's value stands in the text, in which the scalar begins at `begin`.

    Folding changes white space and quoting adds quotes and backslashes; every other character is there once, in order.
    None where that doesn't hold, as for an alias or an escape such as `\\x41`.
    """
    at = _PROPERTIES.match(content, begin).end()  # type: ignore[union-attr]
    block = _BLOCK.match(content, at)
    at = block.end() if block else at
    quoted = content[at : at + 1] if block is None and content[at : at + 1] in ("'", '"') else ""
    at += len(quoted)
    offsets: list[int] = []
    for char in value:
        if char.isspace():
            offsets.append(at)
            continue
        while (
            at < len(content)
            and content[at] != char
            and (content[at].isspace() or (quoted and content[at] in _SKIPPED))
        ):
            at += 1
        if at >= len(content) or content[at] != char:
            return None
        offsets.append(at)
        at += 1
    return offsets or None
