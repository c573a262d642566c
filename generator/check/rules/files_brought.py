"""What a script makes, brings and names: files that may be there for its run, and not before.

A script of many launches is asked the same for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from ...patterns import lazy_pattern
from ...text.around import until_next_check
from ...text.shell.records import Command, ShellScript

#: Commands after which other files are there.
_BRINGS_FILES: Final = frozenset(
    {"cd", "pushd", "git", "wget", "curl", "cp", "ln", "mv", "tar", "unzip"}
)
#: Where the job was submitted, which is where its programs are looked for without them. Source:
#: sbatch(1), qsub(1B) of PBS, qsub(1) of Grid Engine, bsub(1)
_SUBMITTED_IN: Final = lazy_pattern(
    r"\"?\$\{?(?:SLURM_SUBMIT_DIR|PBS_O_WORKDIR|SGE_O_WORKDIR|LS_SUBCWD)\b[^/]*"
)
#: A file that is no program, as its ending says: `config.yaml`.
_DATA: Final = lazy_pattern(r"[^*?\[]*\.(?!py\b|sh\b)[A-Za-z]\w*")
#: Files that a script tests for: `[ -f setup.sh ]`.
_TESTED: Final = lazy_pattern(r"-(?<!\S-)[efrsx][ \t]+[\"']?([^\s\"';\]]+)")
#: The path of a program, with or without folders.
_PROGRAM: Final = lazy_pattern(r"(?:\w[\w.-]{0,80}/){0,10}\w[\w-]{0,80}\.py")
_MOST_SCRIPTS: Final = 64  # whose answers are kept: launches come script by script


@until_next_check(_MOST_SCRIPTS)
def bringing_files(script: ShellScript) -> tuple[Command, ...]:
    """The commands of a script after which other files are there."""
    return tuple(
        command
        for command in script.commands
        if command.words and command.words[0].value in _BRINGS_FILES
    )


@until_next_check(_MOST_SCRIPTS)
def bringing_programs(script: ShellScript) -> tuple[Command, ...]:
    """The commands of a script after which other programs may be there."""
    return tuple(filter(_brings_programs, bringing_files(script)))


def _brings_programs(command: Command) -> bool:
    """Whether a command that brings files may bring programs: `cp` of a file of data doesn't."""
    name, *words = command.words
    if name.value == "cd":
        return not (len(words) == 1 and _SUBMITTED_IN.fullmatch(words[0].raw))
    has_options = any(word.raw.startswith("-") for word in words)
    return (
        name.value != "cp"
        or has_options
        or not all(_DATA.fullmatch(word.path or "") for word in words[:-1])
    )


@until_next_check(_MOST_SCRIPTS)
def names_made(script: ShellScript) -> frozenset[str]:
    """The names of files that a script has read, writes, brings or tests for.

    They may be there when it calls them.
    """
    words = [*script.written]
    for command in bringing_files(script):
        words += command.words[1:]
    paths = {
        *(text.path for _, text in script.followed),
        *(word.path or "" for word in words),
        *_TESTED.findall(script.text.content),
    }
    return frozenset(PurePath(path).name for path in paths)


@until_next_check(_MOST_SCRIPTS)
def programs_named(script: ShellScript) -> frozenset[str]:
    """The paths of programs in a script's texts, relative ones or bare names."""
    return frozenset(path for text in script.texts for path in programs_among(text.content))


def programs_among(text: str) -> Iterator[str]:
    """The words of a text that are paths of programs, relative ones or bare names."""
    return (word for word in text.split() if word.endswith(".py") and _PROGRAM.fullmatch(word))
