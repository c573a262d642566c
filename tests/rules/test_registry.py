"""The registry of rules: ids, titles, severities and sources."""

from __future__ import annotations

import re

from dsgen.estimate.layout import FIELDS
from dsgen.findings import Severity
from dsgen.rules import ALL_RULES, IDENTITY_RULES, LAYOUT_RULES


def test_ids_are_unique_and_well_formed() -> None:
    """Every id is a subject prefix with three digits, and names one rule."""
    ids = [rule.id for rule in ALL_RULES]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[A-Z]{2,5}\d{3}", name) for name in ids)


def test_every_rule_says_what_it_requires_and_why() -> None:
    """Every rule has a title that is a sentence, a source and a severity."""
    for rule in ALL_RULES:
        assert re.fullmatch(r"[A-Z].+\.", rule.title), rule.id
        assert len(rule.title) <= 120, rule.id
        assert len(rule.source) > 10, rule.id
        assert isinstance(rule.severity, Severity), rule.id


def test_layout_rules_read_known_variables() -> None:
    """The variables of a layout rule are fields of a layout, each named once."""
    for rule in (*LAYOUT_RULES, *IDENTITY_RULES):
        assert rule.variables
        assert len(set(rule.variables)) == len(rule.variables)
        assert set(rule.variables) <= set(FIELDS)


def test_frameworks_are_known() -> None:
    """A rule's frameworks are spelled as in the job spec."""
    known = {"deepspeed", "huggingface", "megatron-deepspeed", "megatron-lm"}
    assert all(set(rule.frameworks) <= known for rule in LAYOUT_RULES)
