"""Every rule that dsgen knows in one table, and the rules that `--select` and `--ignore` choose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Final

from ..check import codes as of_files
from ..dataclass import dataclass
from ..facts import measurement
from ..findings import Finding
from ..job import codes
from ..rule import Rule, rules_in
from .exits import unknown

#: Reported whatever is selected, unless ignored by name: files that could not be read were not checked at all.
_UNREAD: Final = frozenset(
    {
        *("FILE001", "FILE002", "FILE004", "FILE005", "FILE006"),
        *("SPEC001", "SPEC002", "SPEC004", "SPEC005", "SPEC014"),
        "PARSE016",
    }
)


@lru_cache(maxsize=1)
def known_rules() -> tuple[Rule, ...]:
    """Rules by id; one that checks jobs and files alike is one entry."""
    from ..check.rules.registry import all_file_rules  # here, to save start-up time

    rules = {rule.id: rule for rule in _other_rules()}
    for rule in all_file_rules():
        known = rules.get(rule.id)
        rules[rule.id] = rule if known is None else _joined(known, rule)
    return tuple(sorted(rules.values(), key=lambda rule: rule.id))


def checks(rule: Rule) -> str:
    """What the rule checks: spec, runs, job, layout, fit, files or engine; of one that checks files too, both."""
    return f"{rule.checks}, files" if rule.reads and rule.checks != "files" else rule.checks


def title_of(rule_id: str) -> str:
    """What a rule on jobs, layouts or memory requires; empty for another id. Rules on files aren't loaded for it."""
    return next((rule.title for rule in _other_rules() if rule.id == rule_id), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Ids and prefixes of ids, such as `SLM` and `SLM004`. The longest that fits a rule decides; of two, `ignore`."""

    select: tuple[str, ...] = ()  #: empty: all
    ignore: tuple[str, ...] = ()

    def keeps(self, finding: Finding) -> bool:
        """Whether the finding is reported."""
        wanted = 0 if not self.select or finding.rule in _UNREAD else -1
        return max(wanted, _longest(self.select, finding.rule)) > _longest(self.ignore, finding.rule)


def selection(select: Iterable[str], ignore: Iterable[str]) -> Selection:
    """What the flags choose; refuses an id or prefix that no rule has."""
    return Selection(select=_ids(select), ignore=_ids(ignore))


def _other_rules() -> Iterable[Rule]:
    """All but the rules on files."""
    from ..programs.job_rules import PLANNING_RULES  # here, to save start-up time

    return (*rules_in(codes, measurement, of_files), *PLANNING_RULES)


def _joined(known: Rule, rule: Rule) -> Rule:
    """A rule that checks files too, or other files too, with the text of the first."""
    others = known if known.reads else rule
    return replace(
        known,
        source=known.source if rule.source in known.source else f"{known.source}; {rule.source}",
        since=others.since,
        before=others.before,
        reads=tuple(dict.fromkeys((*known.reads, *rule.reads))),
    )


def _longest(prefixes: tuple[str, ...], rule: str) -> int:
    return max((len(prefix) for prefix in prefixes if rule.startswith(prefix)), default=-1)


def _ids(values: Iterable[str]) -> tuple[str, ...]:
    names = tuple(part.strip().upper() for value in values for part in value.split(",") if part.strip())
    known = [rule.id for rule in known_rules()] if names else []
    for name in names:
        if not any(rule.startswith(name) for rule in known):
            subjects = sorted({rule.rstrip("0123456789") for rule in known})
            unknown("rule", name, (*known, *subjects))
    return names
