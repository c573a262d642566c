"""The commands of a script that `&&` and `||` join: whether each of them runs, and succeeds."""

from __future__ import annotations

from dataclasses import dataclass

from .conditions import both, either, opposite


@dataclass(slots=True)
class Chain:
    """The commands that `&&` and `||` join, while they are read."""

    runs: bool | None = True  #: whether the next one runs
    holds: bool | None = None  #: whether those so far succeed
    #: whether that can't be known, but is what the script expects: they ask for nothing
    expected: bool = True
    sign: str = ""  #: the operator before the next one
    negated: bool = False
    begun: bool = False  #: whether there is one
    called: bool = False  #: whether the last one is a function of the script
    only_files: bool = True  #: whether each condition asks whether a file is there
    names: tuple[str, ...] = ()  #: the variables that their conditions depend on

    def add(self, holds: bool | None, *, expected: bool) -> None:
        """Add a command, by whether it succeeds where it runs."""
        self.begun = True
        if self.runs is False:
            self.negated = False
            return
        if self.negated:
            holds, expected, self.negated = opposite(holds), False, False
        if not self.sign:
            self.holds, self.expected = holds, expected
        elif self.sign == "&&":
            self.holds, self.expected = both(self.holds, holds), self.expected and expected
        else:
            self.holds, self.expected = either(self.holds, holds), self.expected or expected

    def join(self, sign: str) -> None:
        """Go on with the command behind `&&` or `||`."""
        self.sign = sign
        if sign == "||":
            self.runs = opposite(self.holds)
        else:
            self.runs = True if self.holds is None and self.expected else self.holds
