"""`dsgen rules`: the requirements that dsgen checks, and their sources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from .options import form_option

# Functions here import what they print with, to save start-up time.
if TYPE_CHECKING:
    from rich.table import Table

    from ..rule import Rule


@click.command(short_help="List or explain the rules.")
@click.argument("rule_id", required=False, metavar="[ID]")
@form_option("text", "json", "markdown")
def rules(rule_id: str | None, form: str) -> None:
    """List every rule, or explain rule ID: what it requires, the error it prevents, its source, a fix.

    A prefix of ids, such as SLM, lists the rules of a subject.
    """
    from .exits import unknown  # here, to save start-up time
    from .known_rules import known_rules
    from .printing import print_json, print_parts
    from .rule_pages import rules_page

    name = (rule_id or "").upper()
    chosen = [rule for rule in known_rules() if rule.id == name] or [
        rule for rule in known_rules() if rule.id.startswith(name)
    ]
    if not chosen and rule_id is not None:
        unknown("rule", rule_id, (rule.id for rule in known_rules()))
    if form == "json":
        print_json({"rules": [_document(rule) for rule in chosen]})
    elif form == "markdown":
        click.echo(rules_page(chosen), nl=False)
    elif len(chosen) > 1:
        print_parts(_table(chosen))
    else:
        click.echo(_explanation(chosen[0]))


def _document(rule: Rule) -> dict[str, object]:
    """The rule's fields, without those that are empty."""
    from .known_rules import checks

    fields = {
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
    return {name: value for name, value in fields.items() if value}


def _explanation(rule: Rule) -> str:
    """The rule as text."""
    from .known_rules import checks

    fields = {
        "prevents": rule.prevents,
        "fix": rule.fix,
        "source": rule.source,
        "when": rule.when,
        "reads": ", ".join(rule.reads),
        "versions": rule.versions and f"DeepSpeed {rule.versions}",
    }
    lines = [f"{name + ':':<10}{text}" for name, text in fields.items() if text]
    return "\n".join((f"{rule.id} ({rule.severity.value}, checks {checks(rule)})", rule.title, "", *lines))


def _table(rules: Iterable[Rule]) -> Table:
    from rich.table import Column
    from rich.text import Text

    from .known_rules import checks
    from .printing import headed, whole

    table = headed(whole("id"), whole("severity"), whole("checks"), Column("requires", ratio=1))
    for rule in rules:
        table.add_row(rule.id, rule.severity.value, checks(rule), Text(rule.title))  # no emoji in H:M:S
    return table
