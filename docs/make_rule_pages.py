"""Write docs/rules: a page of rules for each subject, with the output for each rule's bad case, and
an index.

And the modules in which `dsgen rules ID` finds each rule.

Run with `python -m docs.make_rule_pages`.
"""

from __future__ import annotations

import json
import pkgutil
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import dsgen
from dsgen.cli.known_rules import heading, in_markdown, known_rules, subject_of, subject_pages
from dsgen.rule import rules_in
from tests.case import NAMES, read_case

FOLDER = Path(__file__).parent / "rules"
INDEX = Path(dsgen.__file__).parent / "cli" / "rule_modules.json"
#: Folders whose modules only use rules.
USERS = {"cli", "draft", "report", "render", "write"}
MADE = "<!-- Written by `python -m docs.make_rule_pages`; do not edit. -->"


def pages() -> Mapping[Path, str]:
    """Every page as it should be, by path."""
    found = {FOLDER / "README.md": "\n".join(_index())}
    for subject, page in subject_pages(known_rules(), examples()):
        title, _, rest = page.partition("\n")
        listed = "\n".join(_listed(subject))
        found[FOLDER / f"{subject.lower()}.md"] = f"{title}\n\n{MADE}\n\n{listed}\n{rest}"
    return found


def index() -> str:
    """The ids of the rules in each module, as JSON, a module a line."""
    lines = list[str]()
    for module in pkgutil.walk_packages(dsgen.__path__, "dsgen."):
        name = module.name.removeprefix("dsgen.")
        if name.partition(".")[0] not in USERS and name != "__main__":
            ids = sorted({rule.id for rule in rules_in(import_module(module.name))})
            lines += [f"  {json.dumps(name)}: {json.dumps(ids)}"] if ids else []
    return "{\n" + ",\n".join(sorted(lines)) + "\n}\n"


def write() -> None:
    """Write every page and the modules; pages of subjects that are gone are removed."""
    FOLDER.mkdir(exist_ok=True)
    INDEX.write_text(index(), encoding="utf-8")
    made = pages()
    for path in set(FOLDER.glob("*.md")) - set(made):
        path.unlink()
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")


def _listed(subject: str) -> Iterator[str]:
    """The rules of a subject by id, each with what it requires, as a table that leads to them."""
    yield from ("| rule | requires |", "|---|---|")
    for rule in known_rules():
        if subject_of(rule) == subject:
            yield f"| [{rule.id}](#{rule.id.lower()}) | {in_markdown(rule.title)} |"


def _index() -> Iterator[str]:
    yield from (
        "# Rules",
        "",
        "What dsgen requires, why, and where that comes from. `dsgen rules ID` prints the same.",
        "",
    )
    yield from (MADE, "", "| subject | rules |", "|---|---|")
    for subject, number in sorted(Counter(map(subject_of, known_rules())).items()):
        yield f"| [{heading(subject)}]({subject.lower()}.md) | {number} |"
    yield ""


def examples() -> Mapping[str, str]:
    """Return what each rule says of its first bad case: its own finding, without those of other
    rules.
    """
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
    write()
