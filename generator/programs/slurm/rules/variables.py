"""Names of variables that Slurm sets for a job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final, NamedTuple

from ....catalog.names import is_swapped
from ....findings import ERROR, WARNING, Violation, Violations
from ....patterns import lazy_pattern
from ....resources import read_text
from ....rules.violations import slurm_manual
from ....submission.script import LaunchScript
from ....submission.subjects import scripts
from ....text.shell.records import ShellScript
from ....text.slips import is_slip
from ...launching.environment import provided, texts_with_variables

#: A variable whose value is needed as it is: `${NAME:-1}` has another. A slip may be in `SLURM_`.
#: Without quotes scontrol gets no word; an empty one, in quotes, is a list without hosts.
_USED: Final = lazy_pattern(
    r"(hostnames[ \t]+)?"
    r"\$(?:(S[A-Z0-9_]{6,40})\b|\{(S[A-Z0-9_]{6,40})(?:[}%#/]|:(?![-=+])))"
)


@cache
def _variables() -> frozenset[str]:
    own_node = "SLURMD_NODENAME"  # the one that begins otherwise
    names = json.loads(read_text(__package__, "variables.json"))["variables"]
    return frozenset((own_node, *names))


@scripts.rule(
    "SLM078",
    ERROR,
    "launcher",
    slurm_manual("sbatch(1) and srun(1), OUTPUT ENVIRONMENT VARIABLES"),
)
def variables_are_spelled_as_slurm_does(script: LaunchScript) -> Violations:
    """A SLURM_ variable that a script uses has a name that Slurm gives one.
    Prevents: An empty text in its place: --nnodes without a value, a path without its folder. A
    warning where the empty word vanishes, and scontrol does without.
    Fix: write the name as Slurm does
    """
    shell = script.shell
    if not shell.mentions("$S", "${S"):
        return
    if not script.launches and not shell.mentions("#SBATCH", "srun", "sbatch"):
        return  # a script that is no job's, as of a container, may get such a variable
    slips = dict[str, _Use]()
    for use in _uses(shell):
        if use.name not in _variables() and _meant(use.name) is not None:
            slips.setdefault(use.name, use)
    if not slips:
        return
    set_by_script = {*provided(shell), *shell.history, *shell.set_inside}
    for name, use in slips.items():
        if name not in set_by_script:
            message = f"Slurm sets no variable {name}, so it is empty"
            severity = WARNING if use.is_optional else ERROR
            hint = f"did you mean {_meant(name)}?"
            yield Violation(shell.locate(use.offset), message, hint, severity=severity)


class _Use(NamedTuple):
    """A place of a script that needs the value of a variable."""

    name: str
    offset: int
    #: whether the command does without: `scontrol show hostnames` then takes the job's nodes
    is_optional: bool


def _uses(shell: ShellScript) -> Iterator[_Use]:
    """The variables of assignments and of commands, but for commands that only print."""
    for raw, offset in texts_with_variables(shell):
        for match in _USED.finditer(raw):
            hostnames, plain_name, name_in_braces = match.groups()
            start = match.end(1) if hostnames else match.start()
            yield _Use(plain_name or name_in_braces, offset + start, hostnames is not None)


@lru_cache(maxsize=256)
def _meant(name: str) -> str | None:
    """The variable of Slurm's of which a name is a slip; None without one."""
    without_underscores = name.replace("_", "")
    near = (
        variable
        for variable in sorted(_variables())
        if is_slip(name, variable)
        or _is_one_off(name, variable)
        or variable.replace("_", "") == without_underscores
    )
    return min(near, key=lambda other: (abs(len(other) - len(name)), other), default=None)


def _is_one_off(name: str, other: str) -> bool:
    """Return whether one name is the other with a character more, or two that changed places."""
    if len(name) == len(other):
        return is_swapped(name, other)
    shorter, longer = sorted((name, other), key=len)
    is_longer_by_one = len(longer) == len(shorter) + 1
    return is_longer_by_one and any(
        longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer))
    )
