"""Every rule that dsgen knows, in one table, whatever it checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from ..rule import Rule, rules_in

# Imports within functions save start-up time.


@lru_cache(maxsize=1)
def known_rules() -> tuple[Rule, ...]:
    """Rules by id; one that checks jobs and files alike is one entry."""
    from ..rules.files.registry import all_file_rules

    rules = {rule.id: rule for rule in _other_rules()}
    for rule in all_file_rules():
        known = rules.get(rule.id)
        rules[rule.id] = rule if known is None else _joined(known, rule)
    return tuple(sorted(rules.values(), key=lambda rule: rule.id))


def checks(rule: Rule) -> str:
    """What the rule checks: spec, runs, job, layout, fit, files or engine; of one that checks files too, both."""
    return f"{rule.checks}, files" if rule.reads and rule.checks != "files" else rule.checks


def _other_rules() -> Iterable[Rule]:
    """All but the rules on documents."""
    from ..documents import codes as of_files
    from ..documents.runs import measurement
    from ..job import codes
    from ..rules.registry import PLANNING_RULES

    return (*rules_in(codes, measurement, of_files), *PLANNING_RULES)


def _joined(known: Rule, rule: Rule) -> Rule:
    """A rule that checks files too, or other files too, with the text that it has already."""
    others = known if known.reads else rule
    return replace(
        known,
        source=known.source if rule.source in known.source else f"{known.source}; {rule.source}",
        since=others.since,
        before=others.before,
        reads=tuple(dict.fromkeys((*known.reads, *rule.reads))),
    )


def title_of(rule_id: str) -> str:
    """What a rule on jobs, layouts or memory requires; empty for another id. Rules on files aren't loaded for it."""
    return next((rule.title for rule in _other_rules() if rule.id == rule_id), "")
