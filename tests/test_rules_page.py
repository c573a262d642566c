"""docs/rules.md and its pages are what the rules and their cases say."""

from __future__ import annotations

import re

from docs import make_rules_page
from dsgen.cli.known_rules import known_rules
from dsgen.cli.rules_page import SUBJECTS
from tests.cli.running import run


def test_the_pages_are_fresh(update_golden: bool) -> None:
    """docs/rules.md and docs/rules/ are what `python -m docs.make_rules_page` writes; `--update-golden` does it too."""
    if update_golden:
        make_rules_page.write()
    docs = make_rules_page.DOCS
    written = {str(path.relative_to(docs)): path.read_text(encoding="utf-8") for path in docs.rglob("rules*/*.md")}
    index = (docs / "rules.md").read_text(encoding="utf-8")
    assert {"rules.md": index, **written} == make_rules_page.pages()


def test_links_of_the_index_lead_to_headings() -> None:
    """Every rule has a link in docs/rules.md that leads to its heading in the page of its subject."""
    pages = make_rules_page.pages()
    links = re.findall(r"\[(\w+)\]\((rules/\w+\.md)#(\w+)\)", pages["rules.md"])
    assert [name for name, _, _ in links] == [rule.id for rule in known_rules()]
    for name, path, anchor in links:
        assert anchor == name.lower()
        assert f"\n## {name}\n" in pages[path]


def test_every_rule_is_in_the_markdown() -> None:
    """`dsgen rules --format markdown` has a heading for every rule."""
    page = run("rules", "--format", "markdown").stdout
    assert re.findall(r"^## (\S+)$", page, re.MULTILINE) == [rule.id for rule in known_rules()]


def test_every_subject_has_a_name() -> None:
    """The prefixes of ids that the page explains are those that rules have."""
    assert {rule.id.rstrip("0123456789") for rule in known_rules()} == set(SUBJECTS)
