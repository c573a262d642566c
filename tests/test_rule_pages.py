"""The pages in docs/rules are what the rules and their cases say."""

from __future__ import annotations

import re

from docs.make_rule_pages import FOLDER, INDEX, index, pages, write
from dsgen.cli.known_rules import SUBJECTS, checks, known_rules, rule_document, rules_called
from tests.cli.running import run


def test_the_pages_are_fresh(update_golden: bool) -> None:
    """docs/rules is what `python -m docs.make_rule_pages` writes; `--update-golden` writes it
    anew.
    """
    if update_golden:
        write()
    assert {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")} == pages()


def test_every_rule_has_an_anchor() -> None:
    """Every rule has a heading, and so an anchor, on the page of its subject, and the index leads
    to every page.
    """
    made = pages()
    anchors = {
        path.stem: re.findall(r"^## (\S+)$", text, re.MULTILINE) for path, text in made.items()
    }
    for rule in known_rules():
        assert anchors[rule.id.rstrip("0123456789").lower()].count(rule.id) == 1
    links = re.findall(r"\]\((\S+)\.md\)", made[FOLDER / "README.md"])
    assert sorted(links) == sorted(set(anchors) - {"README"})


def test_markdown_has_every_rule() -> None:
    """`dsgen rules --format markdown` has a heading for every rule."""
    page = run("rules", "--format", "markdown").stdout
    assert re.findall(r"^## (\S+)$", page, re.MULTILINE) == [rule.id for rule in known_rules()]


def test_every_subject_has_a_name() -> None:
    """The prefixes of ids that the pages explain are those that rules have."""
    assert {rule.id.rstrip("0123456789") for rule in known_rules()} == set(SUBJECTS)


def test_a_rule_is_explained_without_the_others() -> None:
    """The modules that are said to have an id give the same rule as all modules do."""
    assert INDEX.read_text(encoding="utf-8") == index()
    known = known_rules()
    several = [rule for rule in known if ", files" in checks(rule) or len(rule.reads) > 1]
    for rule in (*several[::8], *known[::50]):
        assert [rule_document(one) for one in rules_called(rule.id)] == [rule_document(rule)]
