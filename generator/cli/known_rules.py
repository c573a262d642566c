"""Every rule that dsgen knows, in one table, whatever it checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRule:
    """A rule as it is printed. What isn't said of a rule is empty."""

    id: str
    severity: str
    checks: str  #: spec | runs | job | layout | fit | files | engine; several with commas
    title: str  #: the requirement as a sentence
    source: str
    when: str = ""  #: when the job would notice: parse | init | training | launcher | submit | silent
    versions: str = ""  #: of DeepSpeed, such as `>=0.16.4`; empty: all
    reads: tuple[str, ...] = ()  #: kinds of documents
    prevents: str = ""  #: the error that comes without it, or what goes wrong silently
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleNote:
    """What explains a rule beyond its requirement, where the rule doesn't say it itself."""

    prevents: str
    fix: str


#: Rules on texts that don't stop the job; the others do.
_MILDER: Mapping[str, str] = {
    "SPEC016": "warning",
    "SPEC020": "warning",
    "RUN006": "warning",
    "FILE007": "note",
    "FILE008": "warning",
    "ENG002": "note",
}


@lru_cache(maxsize=1)
def known_rules() -> tuple[KnownRule, ...]:
    """Rules by id; one that checks jobs and files alike is one entry."""
    from ..rules.files.registry import all_file_rules

    notes = rule_notes()
    rules = {rule.id: rule for rule in _other_rules()}
    for rule_id, rule in rules.items():
        if rule_id in notes:
            rules[rule_id] = replace(rule, prevents=notes[rule_id].prevents, fix=notes[rule_id].fix)
    for document in all_file_rules():
        known = rules.get(document.id)
        rules[document.id] = _of_files(document) if known is None else _joined(known, document)
    return tuple(sorted(rules.values(), key=lambda rule: rule.id))


def _other_rules() -> Iterable[KnownRule]:
    """All but the rules on documents."""
    from ..documents.codes import TITLES as FILE_TITLES
    from ..documents.runs.measurement import TITLES as RUN_TITLES
    from ..job.codes import TITLES
    from ..rules import ALL_RULES, JobRule, LayoutRule

    yield from _titled(TITLES, "spec", "the job spec's own form")
    yield from _titled(RUN_TITLES, "runs", "the documented form of runs that dsgen calibrate reads")
    yield from _titled(FILE_TITLES, "files", "the documented form of what dsgen validate reads")
    for rule in ALL_RULES:
        yield KnownRule(
            id=rule.id,
            severity=rule.severity.value,
            checks="job" if isinstance(rule, JobRule) else "layout" if isinstance(rule, LayoutRule) else "fit",
            title=rule.title,
            source=rule.source,
        )


def _titled(titles: Mapping[str, str], checks: str, source: str) -> Iterable[KnownRule]:
    """What is wrong with a document as text, which is no rule on a job."""
    for rule_id, title in titles.items():
        engine = rule_id.startswith("ENG")
        yield KnownRule(
            id=rule_id,
            severity=_MILDER.get(rule_id, "error"),
            checks="engine" if engine else checks,
            title=title,
            source="the installed DeepSpeed's own parser" if engine else source,
        )


def _of_files(rule: Rule) -> KnownRule:
    return KnownRule(
        id=rule.id,
        severity=rule.severity.value,
        checks="files",
        title=rule.title,
        source=rule.source,
        when=rule.when,
        versions=rule.versions,
        reads=tuple(rule.reads),
        prevents=rule.prevents,
        fix=rule.fix,
    )


def _joined(known: KnownRule, rule: Rule) -> KnownRule:
    """A rule that checks files too, or other files too, with the words it has already where there are any."""
    checks = known.checks if "files" in known.checks else f"{known.checks}, files"
    return replace(
        known,
        checks=checks,
        source=known.source if rule.source in known.source else f"{known.source}; {rule.source}",
        when=known.when or rule.when,
        versions=known.versions if known.reads else rule.versions,
        reads=tuple(dict.fromkeys((*known.reads, *rule.reads))),
        prevents=known.prevents or rule.prevents,
        fix=known.fix or rule.fix,
    )


@lru_cache(maxsize=1)
def rule_notes() -> Mapping[str, RuleNote]:
    """Notes by rule id, for all but the rules on documents."""
    from importlib.resources import files

    import yaml

    text = files(__package__).joinpath("rule_notes.yaml").read_text(encoding="utf-8")
    return {rule: RuleNote(**note) for rule, note in yaml.safe_load(text).items()}


def title_of(rule_id: str) -> str:
    """What a rule on jobs, layouts or memory requires; empty for another id. Rules on files aren't loaded for it."""
    return next((rule.title for rule in _other_rules() if rule.id == rule_id), "")
