"""`dsgen catalog`: the accelerators, node types and models that dsgen knows by name."""

from __future__ import annotations

import click

from .options import form_option

KINDS = ("accelerators", "node-types", "models")


@click.command(short_help="List accelerators, node types and models.")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@click.argument("name", required=False)
@form_option("text", "json")
def catalog(kind: str | None, name: str | None, form: str) -> None:
    """List what dsgen knows by name, or print one entry with its source, in SI units."""
    from .catalog_text import entry, entry_table, listing, names  # here, to save start-up time
    from .printing import print_json, print_parts

    if kind is not None and name is not None:
        found = entry(kind, name)
        if form == "json":
            print_json(found)
        else:
            print_parts(entry_table(found))
        return
    kinds = [kind] if kind else KINDS
    if form == "json":
        print_json({shown: names(shown) for shown in kinds})
        return
    for shown in kinds:
        print_parts(f"{shown} ({len(names(shown))})", listing(shown), "")
