"""Every rule that dsgen knows, in one table, whatever it checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRule:
    """A rule as it is printed."""

    id: str
    severity: str
    checks: str  #: spec | runs | job | layout | fit
    title: str  #: the requirement as a sentence
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleNote:
    """What explains a rule beyond its requirement."""

    prevents: str  #: the error that comes without it, or what goes wrong silently
    fix: str


#: Spec rules that warn; the others stop the job.
_WARNINGS = frozenset({"SPEC016", "SPEC020"})
_RUN_WARNINGS = frozenset({"RUN006"})


@lru_cache(maxsize=1)
def known_rules() -> tuple[KnownRule, ...]:
    """Rules by id."""
    from ..documents.measurement import TITLES as RUN_TITLES
    from ..rules import ALL_RULES, JobRule, LayoutRule
    from ..spec.codes import TITLES

    spec = _titled(TITLES, "spec", "the job spec's own form", _WARNINGS)
    runs = _titled(RUN_TITLES, "runs", "the documented form of runs that dsgen calibrate reads", _RUN_WARNINGS)
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
    return tuple(sorted((*spec, *runs, *other), key=lambda rule: rule.id))


def _titled(titles: Mapping[str, str], checks: str, source: str, warnings: frozenset[str]) -> list[KnownRule]:
    """What is wrong with a document as text, which is no rule on a job."""
    return [
        KnownRule(id=i, severity="warning" if i in warnings else "error", checks=checks, title=title, source=source)
        for i, title in titles.items()
    ]


@lru_cache(maxsize=1)
def rule_notes() -> Mapping[str, RuleNote]:
    """Notes by rule id."""
    from importlib.resources import files

    import yaml

    text = files(__package__).joinpath("rule_notes.yaml").read_text(encoding="utf-8")
    return {rule: RuleNote(**note) for rule, note in yaml.safe_load(text).items()}


def title_of(rule_id: str) -> str:
    """What the rule requires; empty for an id that isn't known."""
    return next((rule.title for rule in known_rules() if rule.id == rule_id), "")
