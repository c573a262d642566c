"""How many processes accelerate starts on each machine, where the number of machines isn't known.

`--num_machines $NODES --num_processes $((NODES * 8))` starts eight on each, whatever NODES is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ...numerals import is_whole, whole
from ...patterns import lazy_pattern
from ...submission.launches import Call
from ...text.shell.expand import evaluated
from ...text.shell.records import Assignment, ShellScript

#: A value that is another variable's: `$NODES`, `"${NODES}"`.
_VARIABLE: Final = lazy_pattern(r"\"?\$\{?(\w+)\}?\"?")
#: One that is computed.
_COMPUTED: Final = lazy_pattern(r"\"?\$\(\((.*)\)\)\"?")
#: Numbers of machines with which the quotient is worked out. They are primes, so that none divides
#: a product by chance.
_TRIED: Final = (1009, 2003)
#: Of a variable that is set more often, not every way through the branches is tried.
_MOST_SETTINGS: Final = 2


def processes_of_each_machine(call: Call) -> int | None:
    """Return the processes of each machine where they are the same for every number of machines.

    A variable that is set twice may be changed in a branch: the quotient has to be the same with
    its first value alone.
    """
    machines, processes = call.argument("--num_machines"), call.argument("--num_processes")
    if machines is None or processes is None or not processes.option.values:
        return None
    if machines.value is not None or processes.value is not None or not machines.option.values:
        return None

    before = [one for one in call.shell.assignments if one.command_index <= call.command.index]
    settings = Counter(one.name for one in before)
    first = {one.name: one for one in reversed(before)}
    root = _root(machines.option.values[0].raw, first)
    if root is None:
        return None

    first_only = [one for one in before if one is first[one.name]]
    quotients = set[int | None]()
    for assignments in (before, first_only):
        for number in _TRIED:
            numbers = _Numbers(call.shell, root, number, settings)
            numbers.follow(assignments)
            at = call.command.index
            total = numbers.read(processes.option.values[0].raw, at)
            parts = numbers.read(machines.option.values[0].raw, at)
            is_whole_part = total and parts and total > 0 and parts > 0 and total % parts == 0
            quotients.add(total // parts if is_whole_part and total and parts else None)
    return quotients.pop() if len(quotients) == 1 else None


def _root(raw: str, first: dict[str, Assignment]) -> str | None:
    """The variable from which the one of a word has its value; None where it isn't a variable's."""
    root = None
    for _ in range(len(first) + 1):
        variable = _VARIABLE.fullmatch(raw)
        if variable is None:
            break
        root = variable[1]
        if root not in first:
            break
        raw = first[root].raw
    return root


class _Numbers:
    """The numbers of a script's variables, where a `root` that isn't known is a certain number."""

    def __init__(self, shell: ShellScript, root: str, number: int, settings: Counter[str]) -> None:
        self._shell = shell
        self._settings = settings
        self._by_name: dict[str, int | None] = {root: number}

    def follow(self, assignments: Sequence[Assignment]) -> None:
        """Compute the variables that are set by others, in order."""
        for one in assignments:
            if _COMPUTED.fullmatch(one.raw) or _VARIABLE.fullmatch(one.raw):
                is_followed = self._settings[one.name] <= _MOST_SETTINGS
                value = self.read(one.raw, one.command_index) if is_followed else None
                self._by_name[one.name] = value

    def read(self, raw: str, at: int) -> int | None:
        """The number of a word that is a variable, or computed, before the command of an index."""
        computed, variable = _COMPUTED.fullmatch(raw), _VARIABLE.fullmatch(raw)
        if computed is not None:
            return evaluated(computed[1], lambda name: self._text(name, at))
        text = self._text(variable[1], at) if variable is not None else None
        return whole(text) if text is not None and is_whole(text) else None

    def _text(self, name: str, at: int) -> str | None:
        if name in self._by_name:
            number = self._by_name[name]
            return None if number is None else str(number)
        return self._shell.value_of(name, at)
