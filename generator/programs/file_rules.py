"""The rules on files of each program, imported where a submission has what they look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from ..rule import Rule, rules_in
from ..submission.record import Rules, loaded
from ..submission.submission import Submission
from .records import PROGRAMS

_RULES: Final = tuple(rules for record in PROGRAMS for rules in record.rules)


@lru_cache(maxsize=len(_RULES))
def _rules_of(rules: Rules) -> tuple[Rule, ...]:
    return rules_in(*map(loaded, rules.names))


def rules_for(submission: Submission) -> tuple[Rules, ...]:
    """The modules of rules of which a submission has something that they look at."""
    return tuple(rules for rules in _RULES if rules.when(submission))


def rules_of_programs(every: Iterable[Rules] = _RULES) -> Iterator[Rule]:
    """The rules of these modules; by default of all."""
    for rules in every:
        yield from _rules_of(rules)
