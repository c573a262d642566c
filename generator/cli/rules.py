"""`dsgen rules`: what dsgen requires, and where that comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .printing import print_json, print_parts
from .unknown import unknown

if TYPE_CHECKING:
    from .known_rules import KnownRule


@click.command(short_help="List or explain the rules.")
@click.argument("rule_id", required=False, metavar="[ID]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the answer.",
)
def rules(rule_id: str | None, form: str) -> None:
    """List every rule, or explain the one called ID: what it requires, the error it prevents, its source, a fix."""
    from .known_rules import known_rules

    chosen = [rule for rule in known_rules() if rule_id is None or rule.id == rule_id.upper()]
    if not chosen and rule_id is not None:
        unknown("rule", rule_id, (rule.id for rule in known_rules()))
    if form == "json":
        print_json({"rules": [_document(rule) for rule in chosen]})
    elif rule_id is None:
        _print_all()
    else:
        for rule in chosen:
            click.echo(_explanation(rule))


def _document(rule: KnownRule) -> dict[str, str]:
    from dataclasses import asdict

    from .known_rules import rule_notes

    note = rule_notes().get(rule.id)
    return {**asdict(rule), **(asdict(note) if note else {})}


def _explanation(rule: KnownRule) -> str:
    """The rule as a person reads it."""
    document = _document(rule)
    named = ("prevents", "fix", "source")
    lines = [f"{name + ':':<10}{document[name]}" for name in named if name in document]
    return "\n".join((f"{rule.id} ({rule.severity}, checks the {rule.checks})", rule.title, "", *lines))


def _print_all() -> None:
    from rich.table import Table

    from .known_rules import known_rules

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("id", "severity", "checks"):
        table.add_column(heading, no_wrap=True)
    table.add_column("requires", ratio=1)
    for rule in known_rules():
        table.add_row(rule.id, rule.severity, rule.checks, rule.title)
    print_parts(table)
