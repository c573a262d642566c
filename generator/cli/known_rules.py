"""Every rule that dsgen knows, in one table, whatever it checks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRule:
    """A rule as it is printed."""

    id: str
    severity: str
    checks: str  #: spec | job | layout | fit
    title: str  #: the requirement as a sentence
    source: str


@lru_cache(maxsize=1)
def known_rules() -> tuple[KnownRule, ...]:
    """Rules by id."""
    from ..rules import ALL_RULES, JobRule, LayoutRule
    from ..spec.codes import TITLES

    spec = [
        KnownRule(id=i, severity="error", checks="spec", title=title, source="the job spec's own form")
        for i, title in TITLES.items()
    ]
    other = [
        KnownRule(
            id=rule.id,
            severity=rule.severity.value,
            checks="job" if isinstance(rule, JobRule) else "layout" if isinstance(rule, LayoutRule) else "fit",
            title=rule.title,
            source=rule.source,
        )
        for rule in ALL_RULES
    ]
    return tuple(sorted((*spec, *other), key=lambda rule: rule.id))


def title_of(rule_id: str) -> str:
    """What the rule requires; empty for an id that isn't known."""
    return next((rule.title for rule in known_rules() if rule.id == rule_id), "")
