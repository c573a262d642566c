"""Write docs/rules.md, and a page for each subject of rules: every rule, with what is printed for its bad case.

Run with `python -m docs.make_rules_page`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from dsgen.cli.known_rules import known_rules
from dsgen.cli.rules_page import heading, subject_of, subject_pages
from tests.case import NAMES, read_case

DOCS = Path(__file__).parent


def pages() -> dict[str, str]:
    """The pages as they should be, by their paths in docs/."""
    return {"rules.md": _index()} | {
        f"rules/{subject}.md": page for subject, page in subject_pages(known_rules(), examples())
    }


def write() -> None:
    """Write the pages; a page of a subject that is gone is removed."""
    wanted = pages()
    for old in (DOCS / "rules").glob("*.md"):
        old.unlink()
    for path, page in wanted.items():
        (DOCS / path).parent.mkdir(exist_ok=True)
        (DOCS / path).write_text(page, encoding="utf-8")


def examples() -> Mapping[str, str]:
    """What is printed for the first bad case of each rule: its own finding, without those of other rules."""
    found: dict[str, str] = {}
    for case in map(read_case, NAMES):
        finding = _of_rule(case.rule, case.expected)
        if finding:
            found.setdefault(case.rule, finding)
    return found


def _index() -> str:
    """Every subject with its rules."""
    lines = ["# Rules", "", "What dsgen requires, why, and where that comes from, by subject.", ""]
    lines += ["This page and those it links to are written by `python -m docs.make_rules_page`.", ""]
    lines += ["| subject | rules |", "|---|---|"]
    for subject, rules in groupby(known_rules(), key=subject_of):
        links = " ".join(f"[{rule.id}](rules/{subject}.md#{rule.id.lower()})" for rule in rules)
        lines.append(f"| [{heading(subject)}](rules/{subject}.md) | {links} |")
    return "\n".join(lines) + "\n"


def _of_rule(rule: str, output: str) -> str:
    """The first finding of `rule`, with the lines that belong to it: excerpt, caret and hint."""
    lines = output.splitlines()
    first = next((i for i, line in enumerate(lines) if line.endswith(f" [{rule}]")), None)
    if first is None:
        return ""
    belongs = [lines[first]]
    for line in lines[first + 1 :]:
        if not line.startswith(("  ", "hint: ")):
            break
        belongs.append(line)
    return "\n".join(belongs) + "\n"


if __name__ == "__main__":
    write()
