"""`dsgen rules`: the requirements that dsgen checks, and their sources."""

from __future__ import annotations

import click

from .options import form_option


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
    from .rule_pages import rule_document, rule_text, rules_page, rules_table

    name = (rule_id or "").upper()
    chosen = [rule for rule in known_rules() if rule.id == name] or [
        rule for rule in known_rules() if rule.id.startswith(name)
    ]
    if not chosen and rule_id is not None:
        unknown("rule", rule_id, (rule.id for rule in known_rules()))
    if form == "json":
        print_json({"rules": [rule_document(rule) for rule in chosen]})
    elif form == "markdown":
        click.echo(rules_page(chosen), nl=False)
    elif len(chosen) > 1:
        print_parts(rules_table(chosen))
    else:
        print_parts(*rule_text(chosen[0]))
