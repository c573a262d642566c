"""Write docs/rules.md: every rule, with what is printed for its bad case. Run with `python -m docs.make_rules_page`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dsgen.cli.known_rules import known_rules
from dsgen.cli.rules_page import rules_page
from tests.case import NAMES, read_case

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "rules.md"


def page() -> str:
    """The page as it should be."""
    return rules_page(known_rules(), examples())


def examples() -> Mapping[str, str]:
    """What each rule says of its first bad case: its own finding, without those of other rules."""
    found: dict[str, str] = {}
    for case in map(read_case, NAMES):
        finding = _of_rule(case.rule, case.expected)
        if finding:
            found.setdefault(case.rule, finding)
    return found


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
    PAGE.write_text(page(), encoding="utf-8")
