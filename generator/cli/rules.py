"""`dsgen rules`: what dsgen requires, and where that comes from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from .printing import print_json, print_parts
from .unknown import unknown

if TYPE_CHECKING:
    from ..rule import Rule

# Imports within functions save start-up time.


@click.command(short_help="List or explain the rules.")
@click.argument("rule_id", required=False, metavar="[ID]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="Form of the answer.",
)
def rules(rule_id: str | None, form: str) -> None:
    """List every rule, or explain the one called ID: what it requires, the error it prevents, its source, a fix.

    The beginning of ids, such as SLM, lists the rules of a subject.
    """
    from .known_rules import known_rules

    name = (rule_id or "").upper()
    chosen = [rule for rule in known_rules() if rule.id == name] or [
        rule for rule in known_rules() if rule.id.startswith(name)
    ]
    if not chosen and rule_id is not None:
        unknown("rule", rule_id, (rule.id for rule in known_rules()))
    if form == "json":
        print_json({"rules": [_document(rule) for rule in chosen]})
    elif form == "markdown":
        from .rule_pages import rules_page

        click.echo(rules_page(chosen), nl=False)
    elif len(chosen) > 1:
        _print_table(chosen)
    else:
        click.echo(_explanation(chosen[0]))


def _document(rule: Rule) -> dict[str, object]:
    """The rule's fields, without those that are empty."""
    from .known_rules import checks

    said = {
        "id": rule.id,
        "severity": rule.severity.value,
        "checks": checks(rule),
        "title": rule.title,
        "source": rule.source,
        "when": rule.when,
        "versions": rule.versions,
        "reads": list(rule.reads),
        "prevents": rule.prevents,
        "fix": rule.fix,
    }
    return {name: value for name, value in said.items() if value}


def _explanation(rule: Rule) -> str:
    """The rule as a person reads it."""
    from .known_rules import checks

    said = {
        "prevents": rule.prevents,
        "fix": rule.fix,
        "source": rule.source,
        "when": rule.when,
        "reads": ", ".join(rule.reads),
        "versions": rule.versions and f"DeepSpeed {rule.versions}",
    }
    lines = [f"{name + ':':<10}{text}" for name, text in said.items() if text]
    return "\n".join((f"{rule.id} ({rule.severity.value}, checks {checks(rule)})", rule.title, "", *lines))


def _print_table(rules: Iterable[Rule]) -> None:
    from rich.table import Table
    from rich.text import Text

    from .known_rules import checks

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("id", "severity", "checks"):
        table.add_column(heading, no_wrap=True)
    table.add_column("requires", ratio=1)
    for rule in rules:
        table.add_row(rule.id, rule.severity.value, checks(rule), Text(rule.title))  # no emoji in H:M:S
    print_parts(table)
