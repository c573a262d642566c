"""`dsgen rules`: what dsgen requires, and where that comes from."""

from __future__ import annotations

import click

from .printing import print_json, print_parts
from .unknown import unknown


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
    """List every rule, or explain the one called ID."""
    from dataclasses import asdict

    from .known_rules import known_rules

    chosen = [rule for rule in known_rules() if rule_id is None or rule.id == rule_id.upper()]
    if not chosen and rule_id is not None:
        unknown("rule", rule_id, (rule.id for rule in known_rules()))
    if form == "json":
        print_json({"rules": [asdict(rule) for rule in chosen]})
    elif rule_id is None:
        _print_all()
    else:
        for rule in chosen:
            click.echo(f"{rule.id} ({rule.severity}, checks the {rule.checks})\n{rule.title}\nsource: {rule.source}")


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
