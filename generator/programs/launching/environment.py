"""The variables that a script has values for."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Final

from ...patterns import lazy_pattern
from ...resources import read_text
from ...submission.launches import Call
from ...text.shell.records import ShellScript

#: What sets variables in any shell of a script, or provides for those that are unset: a default, a
#: test of texts.
_PROVIDES: Final = lazy_pattern(
    r"(?<![\w$.-])\w+\+?=|\$\{\w+:?[-=?+]|\[\s(?:(?!-(?:eq|ne|[gl][te]|[defrswx])\s)[^\[\]\n])*\]"
    r"|(?<!\$)(?:\(\([^()\n]*|\{\w+\}[<>])"
    r"|\b(?:for|select|read|getopts|mapfile|readarray|printf\s+-v|test|case|let|wait)\s[^\n;&|]*"
)
#: A variable's name that stands where its value should: `GPUS`, `{GPUS}`.
_NAME_ALONE: Final = lazy_pattern(r"\{([A-Za-z_]\w{2,60})\}|([A-Za-z_]\w{2,60})", re.ASCII)
#: Variables that launchers set and read, of two words, so that no other is like one by chance.
OF_LAUNCHERS: Final = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "LOCAL_RANK",
    "NODE_RANK",
)
#: The variables that NCCL reads, and others that are no slips; the file says where they are from.
OF_NCCL: Final = json.loads(read_text(__package__, "nccl_variables.json"))
#: Variables that only a scheduler sets, so that nobody is to write another word in their place.
_OF_SCHEDULERS: Final = lazy_pattern(r"(?:SLURM|OMPI_COMM_WORLD|PBS|AZUREML|SKYPILOT)_[A-Z_]+")
#: Commands that need no value of what they name.
PRINTS: Final = frozenset({"[", "test", "[[", "echo", "printf", ":", "unset"})


@cache
def variables_read() -> frozenset[str]:
    """The variables that launchers, and the libraries of training programs, read."""
    by_reader = json.loads(read_text(__package__, "read_variables.json"))
    of_libraries = (name for names in by_reader.values() for name in names)
    return frozenset((*OF_LAUNCHERS, *OF_NCCL["variables"], *of_libraries))


def texts_with_variables(shell: ShellScript) -> list[tuple[str, int]]:
    """The words of commands and the values of assignments that have a `$`, each with its place.

    Those of commands that test or print alone are left out: these may name what isn't set.
    """
    texts = [
        (word.raw, word.offset)
        for command in shell.commands
        if command.words and command.words[0].value not in PRINTS
        for word in command.words
        if "$" in word.raw
    ]
    return texts + [
        (assignment.raw, assignment.value_offset)
        for assignment in shell.assignments
        if "$" in assignment.raw
    ]


def provided(shell: ShellScript) -> set[str]:
    """The names that the code of a script, and of those that it calls, gives values by itself.

    A launch may be in a script that this one calls, with defaults of its own.
    """
    lines = (line for text in shell.texts for line in text.lines)
    code = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    return {name for match in _PROVIDES.findall(code) for name in re.findall(r"\w+", match)}


def variable_without_sign(call: Call, text: str | None) -> str | None:
    """The variable that was meant where an option's value lacks the `$`: `GPUS` or `{GPUS}`.

    None where the value is no variable's name. It is one if a scheduler gives that variable, or the
    script sets or expands it; a launcher's variable is, or one that is called as an option, if the
    same call expands another of them.
    """
    match, shell = _NAME_ALONE.fullmatch(text or ""), call.shell
    if match is None:
        return None
    name = match[1] or match[2]
    if _OF_SCHEDULERS.fullmatch(name):
        return name
    expanded_in_call = {variable for word in call.command.words for variable in word.variables}
    # `--nproc_per_node NPROC_PER_NODE --nnodes $NNODES`
    like_options = {
        option.name.strip("-").replace("-", "_").upper() for option in call.options.entries
    }
    of_launchers = {*OF_LAUNCHERS, *like_options}
    if name in of_launchers and not expanded_in_call.isdisjoint(of_launchers):
        return name
    if name in shell.history or name in shell.set_inside:
        return name
    if any(assignment.name == name for assignment in shell.assignments):
        return name
    expansion = re.compile(rf"\$(?:{name}\b|\{{{name}\b)")
    return name if any(expansion.search(text.content) for text in shell.texts) else None
