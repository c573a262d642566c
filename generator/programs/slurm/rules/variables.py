"""Names of variables that Slurm sets for a job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final

from ....catalog.names import is_swapped
from ....findings import ERROR, WARNING, Violation, Violations
from ....patterns import lazy_pattern
from ....resources import read_text
from ....rules.violations import slurm_manual
from ....submission.script import LaunchScript
from ....submission.subjects import scripts
from ....text.shell.records import ShellScript
from ....text.slips import is_slip
from ...launching.environment import PRINTS, provided

#: A variable whose value is needed as it is: `${NAME:-1}` has another. A slip may be in `SLURM_`.
_USED: Final = lazy_pattern(
    r"(hostnames[ \t]+[\"']?)?"
    r"\$(?:(S[A-Z0-9_]{6,40})\b|\{(S[A-Z0-9_]{6,40})(?:[}%#/]|:(?![-=+])))"
)


@cache
def _variables() -> frozenset[str]:
    return frozenset(json.loads(read_text(__package__, "variables.json"))["variables"])


@scripts.rule(
    "SLM078",
    ERROR,
    "launcher",
    slurm_manual("sbatch(1) and srun(1), OUTPUT ENVIRONMENT VARIABLES"),
)
def variables_are_spelled_as_slurm_does(script: LaunchScript) -> Violations:
    """A SLURM_ variable that a script uses has a name that Slurm gives one.
    Prevents: An empty text in its place: --nnodes without a value, a path without its folder. A
    warning where scontrol does without.
    Fix: write the name as Slurm does
    """
    shell, found = script.shell, dict[str, tuple[int, bool]]()
    for name, offset, is_optional in _used(shell):
        if name not in _variables():
            found.setdefault(name, (offset, is_optional))
    known = {*provided(shell), *shell.history, *shell.set_inside} if found else set()
    for name, (offset, is_optional) in found.items():
        meant = _meant(name) if name not in known else None
        if meant is not None:
            message = f"Slurm sets no variable {name}, so it is empty"
            severity = WARNING if is_optional else ERROR
            hint = f"did you mean {meant}?"
            yield Violation(shell.locate(offset), message, hint, severity=severity)


def _used(shell: ShellScript) -> Iterator[tuple[str, int, bool]]:
    """The variables of commands and assignments, but for those that only print them; with each
    whether its command does without: `scontrol show hostnames` has the job's nodes then.
    """
    words = [
        (word.raw, word.offset)
        for command in shell.commands
        if command.words and command.words[0].value not in PRINTS
        for word in command.words
    ]
    words += [(one.raw, one.value_offset) for one in shell.assignments]
    for raw, offset in words:
        for match in _USED.finditer(raw):
            start = match.end(1) if match[1] else match.start()
            yield match[2] or match[3], offset + start, match[1] is not None


@lru_cache(maxsize=256)
def _meant(name: str) -> str | None:
    """The variable of Slurm's of which a name is a slip; None without one."""
    plain = name.replace("_", "")
    near = [
        one
        for one in _variables()
        if is_slip(name, one) or _is_one_off(name, one) or one.replace("_", "") == plain
    ]
    return min(near) if near else None


def _is_one_off(name: str, other: str) -> bool:
    """Return whether one name is the other with a character more, or two that changed places."""
    if len(name) == len(other):
        return is_swapped(name, other)
    shorter, longer = sorted((name, other), key=len)
    is_longer_by_one = len(longer) == len(shorter) + 1
    return is_longer_by_one and any(
        longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer))
    )
