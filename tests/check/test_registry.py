"""The registry of rules on documents: ids, words, and a case for each."""

from __future__ import annotations

import re
from collections import Counter

from dsgen.check import codes
from dsgen.check.rules.planning import RULES as JOB_RULES_ON_FILES
from dsgen.check.rules.run import all_file_rules
from dsgen.cli.known_rules import checks, known_rules
from dsgen.faults import FAULTS
from dsgen.findings import Severity
from dsgen.programs.job_rules import PLANNING_RULES
from dsgen.rule import rules_in
from tests.case import NAMES, read_case

#: Rules on texts that have tests of their own instead of a case: they need no file, or DeepSpeed.
TESTED_ELSEWHERE = {
    codes.UNKNOWN_NAME.id,
    codes.ENGINE_REFUSES.id,
    codes.ENGINE_VERSION.id,
    *codes.REFUSALS,
} | FAULTS


def test_ids_are_well_formed_and_unique() -> None:
    """Every id is a subject prefix with three digits, and names one rule on documents, or also one
    on jobs' layouts.
    """
    assert [
        rule.id for rule in all_file_rules() if not re.fullmatch(r"[A-Z]{2,5}\d{3}", rule.id)
    ] == []
    own = [rule for rule in all_file_rules() if rule not in JOB_RULES_ON_FILES]
    for rules in (own, JOB_RULES_ON_FILES):
        assert [
            rule for rule, number in Counter(rule.id for rule in rules).items() if number > 1
        ] == []


def test_a_rule_says_what_it_requires_and_why() -> None:
    """Every rule has a title that is a sentence, a source, what it prevents, a fix, and documents
    that it reads.
    """
    for rule in all_file_rules():
        assert re.fullmatch(r"\S.+\.", rule.title), rule.id
        assert len(rule.title) <= 120, rule.id
        assert rule.check.__name__.islower(), rule.id
        assert min(len(rule.source), len(rule.prevents)) > 10, rule.id
        assert rule.fix, rule.id
        assert "\n" not in rule.source + rule.prevents + rule.fix, rule.id
        assert rule.reads, rule.id
        assert isinstance(rule.severity, Severity), rule.id
        assert rule.when in ("parse", "init", "training", "launcher", "submit", "silent"), rule.id
        assert not (rule.since and rule.before) or rule.since < rule.before, rule.id


def test_every_rule_has_a_case() -> None:
    """Every rule on documents, and on their texts, has a bad and a good submission."""
    has = {read_case(name).rule for name in NAMES}
    wanted = {rule.id for rule in all_file_rules()} | (
        {rule.id for rule in rules_in(codes)} - TESTED_ELSEWHERE
    )
    missing = sorted(wanted - has)
    assert not missing, f"{len(missing)} rules have no case in tests/cases: {', '.join(missing)}"


def test_rules_for_jobs_and_files_are_as_severe() -> None:
    """A rule on documents with the id of a rule on jobs or layouts has its severity."""
    others = {rule.id: rule.severity for rule in PLANNING_RULES}
    shared = [rule for rule in all_file_rules() if rule.id in others]
    assert {rule.id: rule.severity for rule in shared} == {
        rule.id: others[rule.id] for rule in shared
    }


def test_rules_are_known_once() -> None:
    """`dsgen rules` has every rule once; one that checks jobs and files says both."""
    known = {rule.id: rule for rule in known_rules()}
    assert len(known) == len(known_rules())
    others = {rule.id for rule in PLANNING_RULES}
    for rule in all_file_rules():
        entry = known[rule.id]
        assert checks(entry).endswith(", files" if rule.id in others else "files")
        assert entry.when
        assert set(rule.reads) <= set(entry.reads)


def test_every_rule_is_explained() -> None:
    """Every rule says what it prevents and what fixes it."""
    assert [rule.id for rule in known_rules() if not (rule.prevents and rule.fix)] == []
