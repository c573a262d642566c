"""The registry of rules: ids, titles, severities and sources."""

from __future__ import annotations

import re

from dsgen.check import codes as of_files
from dsgen.estimate.layout import FIELDS
from dsgen.facts import measurement
from dsgen.findings import Severity
from dsgen.job import codes
from dsgen.programs.job_rules import PLANNING_RULES
from dsgen.rule import rules_in
from dsgen.rules.run import IDENTITY_RULES, LAYOUT_RULES

ALL_RULES = (*PLANNING_RULES, *rules_in(codes, of_files, measurement))


def test_ids_are_unique_and_well_formed() -> None:
    """Every id is a subject prefix with three digits, and names one rule."""
    ids = [rule.id for rule in ALL_RULES]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[A-Z]{2,5}\d{3}", name) for name in ids)


def test_every_rule_says_what_it_requires_and_why() -> None:
    """Every rule has a title that is a sentence, a source, a severity, what it prevents and a
    fix.
    """
    for rule in ALL_RULES:
        assert re.fullmatch(r"[A-Z].+\.", rule.title), rule.id
        assert len(rule.title) <= 120, rule.id
        assert len(rule.source) > 10, rule.id
        assert isinstance(rule.severity, Severity), rule.id
        assert len(rule.prevents) > 10, rule.id
        assert re.fullmatch(r"[^A-Z].+[^.]", rule.fix), rule.id


def test_layout_rules_read_known_variables() -> None:
    """The variables of a layout rule are fields of a layout, each named once."""
    for rule in (*LAYOUT_RULES, *IDENTITY_RULES):
        assert rule.columns.reads
        assert len(set(rule.columns.reads)) == len(rule.columns.reads)
        assert set(rule.columns.reads) <= set(FIELDS)
