"""`dsgen catalog`: the accelerators, node types and models that dsgen knows by name."""

from __future__ import annotations

import click

from .options import form_option

KINDS = ("accelerators", "node-types", "models")


@click.command(short_help="List accelerators, node types and models.")
@click.argument("kind", required=False, metavar=f"[{'|'.join(KINDS)}]")
@click.argument("name", required=False)
@form_option("text", "json")
def catalog(kind: str | None, name: str | None, form: str) -> None:
    """List what dsgen knows by name, or print the entry NAME with its source, in SI units (bytes, seconds, FLOP/s)."""
    from ..catalog import load_catalog  # here, to save start-up time
    from .printing import print_json, print_parts

    known = load_catalog()
    records = {"accelerators": known.accelerators, "node-types": known.node_types, "models": known.models}
    if kind is not None and kind not in KINDS:
        from .catalog_text import kind_of

        kind, name = kind_of(kind, records, alone=name is None), name or kind
    kinds = [kind] if kind else KINDS
    if kind is not None and name is not None:
        from .catalog_text import entry, entry_lines

        found = entry(kind, name, records[kind])
        if form == "json":
            print_json(found)
        else:
            print_parts(entry_lines(found))
    elif form == "json":
        print_json({kind: list(records[kind]) for kind in kinds})
    else:
        from .catalog_text import listing

        for kind in kinds:
            print_parts(f"{kind} ({len(records[kind])})", listing(records[kind]), "")
