"""The rules on files of each program, imported where a submission has what they look at."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ..rule import Rule, rules_in
from ..submission.record import Rules, loaded
from ..submission.submission import Submission
from .records import PROGRAMS

_RULES: Final = tuple(rules for record in PROGRAMS for rules in record.rules)


def rules_for(submission: Submission) -> tuple[Rules, ...]:
    """The modules of rules of which a submission has something that they look at."""
    return tuple(rules for rules in _RULES if rules.when(submission))


@lru_cache(maxsize=256)
def rules_of_programs(modules: tuple[Rules, ...] = _RULES) -> tuple[Rule, ...]:
    """The rules of these modules; by default of all.

    Kept, since many submissions have files of the same kinds, and so the same modules.
    """
    return tuple(rule for rules in modules for rule in _rules_of(rules))


@lru_cache(maxsize=len(_RULES))
def _rules_of(rules: Rules) -> tuple[Rule, ...]:
    return rules_in(*map(loaded, rules.names))
