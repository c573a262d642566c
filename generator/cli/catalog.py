"""`dsgen catalog`: the accelerators, node types and models that dsgen knows by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .printing import print_json, print_parts
from .unknown import unknown

if TYPE_CHECKING:
    from ..catalog.records import Catalog

KINDS = ("accelerators", "node-types", "models")


@click.command(short_help="List accelerators, node types and models.")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@click.argument("name", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the answer.",
)
def catalog(kind: str | None, name: str | None, form: str) -> None:
    """List what dsgen knows by name, or print one entry with its source, in SI units."""
    from ..catalog import load_catalog

    known = load_catalog()
    if kind is not None and name is not None:
        _print_entry(_entry(known, kind, name), form)
        return
    names = {k: list(_entries(known, k)) for k in KINDS if kind in (None, k)}
    if form == "json":
        print_json(names)
        return
    for shown, members in names.items():
        print_parts(f"{shown} ({len(members)})", *(f"  {member}" for member in members))


def _entries(known: Catalog, kind: str) -> Mapping[str, Any]:
    return {"accelerators": known.accelerators, "node-types": known.node_types, "models": known.models}[kind]


def _entry(known: Catalog, kind: str, name: str) -> dict[str, Any]:
    from ..catalog import find_accelerator, find_model, find_node_type

    find: Mapping[str, Any] = {"accelerators": find_accelerator, "node-types": find_node_type, "models": find_model}
    record = find[kind](name)
    if record is None:
        unknown(kind.removesuffix("s").replace("-", " "), name, _entries(known, kind))
    return asdict(record)


def _print_entry(entry: dict[str, Any], form: str) -> None:
    if form == "json":
        print_json(entry)
        return
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for key, value in entry.items():
        inner = value.items() if isinstance(value, Mapping) else ()
        text = ", ".join(f"{k}: {v}" for k, v in inner) or (
            ", ".join(value) if isinstance(value, tuple) else str(value)
        )
        table.add_row(key, text)
    print_parts(table)
