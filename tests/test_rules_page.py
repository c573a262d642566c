"""docs/rules.md is what the rules and their cases say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from dsgen.cli.known_rules import known_rules
from dsgen.cli.rules_page import SUBJECTS
from tests.cli.running import run

ROOT = Path(__file__).parent.parent


def test_the_page_is_fresh(update_golden: bool) -> None:
    """docs/rules.md is what `python -m docs.make_rules_page` writes; `--update-golden` writes it anew."""
    spec = importlib.util.spec_from_file_location("make_rules_page", ROOT / "docs" / "make_rules_page.py")
    assert spec is not None and spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    if update_golden:
        maker.PAGE.write_text(maker.page(), encoding="utf-8")
    assert maker.PAGE.read_text(encoding="utf-8") == maker.page()


def test_every_rule_is_on_the_page() -> None:
    """`dsgen rules --format markdown` has a heading for every rule, under its subject, and links that lead there."""
    page = run("rules", "--format", "markdown").stdout
    assert re.findall(r"^### (\S+)$", page, re.MULTILINE) == [rule.id for rule in known_rules()]
    anchors = set(re.findall(r'<a id="([^"]+)">', page))
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) == anchors


def test_every_subject_has_a_name() -> None:
    """The prefixes of ids that the page explains are those that rules have."""
    assert {rule.id.rstrip("0123456789") for rule in known_rules()} == set(SUBJECTS)
