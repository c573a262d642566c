"""The commands of a script that `&&` and `||` join: whether each of them runs, and succeeds."""

from __future__ import annotations

from dataclasses import dataclass

from .conditions import both, either, opposite


@dataclass(slots=True)
class Chain:
    """The commands that `&&` and `||` join, while they are read."""

    runs: bool | None = True  #: whether the next command runs
    holds: bool | None = None  #: whether those so far succeed
    #: whether the script expects them to succeed where that can't be known, as none is a test
    expected: bool = True
    sign: str = ""  #: the operator before the next command
    negated: bool = False  #: whether `!` is before the next command
    begun: bool = False  #: whether there is a command
    called: bool = False  #: whether the last command is a function of the script
    only_files: bool = True  #: whether each condition asks whether a file is there
    names: tuple[str, ...] = ()  #: the variables that the conditions depend on

    def add(self, holds: bool | None, *, expected: bool) -> None:
        """Add a command, by whether it succeeds where it runs."""
        self.begun = True
        if self.runs is False:
            self.negated = False
            return
        if self.negated:
            holds, expected = opposite(holds), False
            self.negated = False
        if not self.sign:
            self.holds = holds
            self.expected = expected
        elif self.sign == "&&":
            self.holds = both(self.holds, holds)
            self.expected = self.expected and expected
        else:
            self.holds = either(self.holds, holds)
            self.expected = self.expected or expected

    def join(self, sign: str) -> None:
        """Go on with the command behind `&&` or `||`."""
        self.sign = sign
        if sign == "||":
            self.runs = opposite(self.holds)
        elif self.holds is None and self.expected:
            self.runs = True
        else:
            self.runs = self.holds
