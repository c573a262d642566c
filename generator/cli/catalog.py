"""`dsgen catalog`: the accelerators, node types and models that dsgen knows by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..units import GBIT_PER_S, TFLOPS
from .options import form_option
from .printing import print_json, print_parts
from .text import count, gib
from .unknown import unknown

if TYPE_CHECKING:
    from rich.table import Table

    from ..catalog.records import Accelerator, Catalog, Model, ModelEntry, NodeType

# Imports within functions save start-up time.

KINDS = ("accelerators", "node-types", "models")


@click.command(short_help="List accelerators, node types and models.")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@click.argument("name", required=False)
@form_option("text", "json")
def catalog(kind: str | None, name: str | None, form: str) -> None:
    """List what dsgen knows by name, or print one entry with its source, in SI units."""
    from ..catalog import load_catalog

    known = load_catalog()
    if kind is not None and name is not None:
        _print_entry(_entry(known, kind, name), form)
        return
    kinds = [kind] if kind else KINDS
    if form == "json":
        print_json({shown: list(_entries(known, shown)) for shown in kinds})
        return
    for shown in kinds:
        print_parts(f"{shown} ({len(_entries(known, shown))})", _listing(known, shown), "")


def _entries(known: Catalog, kind: str) -> Mapping[str, Any]:
    return {"accelerators": known.accelerators, "node-types": known.node_types, "models": known.models}[kind]


def _listing(known: Catalog, kind: str) -> Table:
    """One row per entry: its name and what one looks for first."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    describe: Mapping[str, Callable[[Any], tuple[str, str]]] = {
        "accelerators": _accelerator_facts,
        "node-types": _node_facts,
        "models": _model_facts,
    }
    for name, record in _entries(known, kind).items():
        table.add_row(f"  {name}", *describe[kind](record))
    return table


def _accelerator_facts(record: Accelerator) -> tuple[str, str]:
    precision = next((p for p in ("bf16", "fp16", "fp32") if record.supports(p)), None)
    rate = "" if precision is None else f"{record.flops_per_s[precision] / TFLOPS:,.0f} TFLOP/s {precision}"
    return f"{gib(record.memory_bytes)} GiB", rate


def _node_facts(record: NodeType) -> tuple[str, str]:
    rate = record.network_bytes_per_s_per_node / GBIT_PER_S
    return f"{record.accelerators_per_node} × {record.accelerator}", f"{rate:,.0f} Gbit/s" if rate else "no network"


def _model_facts(entry: ModelEntry) -> tuple[str, str]:
    model = _model(entry)
    from ..estimate.model_size import parameter_count

    return f"{count(parameter_count(model))} parameters", f"{model.layers} layers of {model.hidden:,}"


def _model(entry: ModelEntry) -> Model:
    from ..job.hf_config import model_from_config

    return model_from_config(entry.config, name=entry.name, source=entry.source)


def _entry(known: Catalog, kind: str, name: str) -> dict[str, Any]:
    """One entry as data; a model as the shape that its configuration describes, with its number of parameters."""
    from ..catalog import find_accelerator, find_model, find_node_type
    from ..estimate.model_size import parameter_count

    find: Mapping[str, Any] = {"accelerators": find_accelerator, "node-types": find_node_type, "models": find_model}
    record = find[kind](name)
    if record is None:
        unknown(kind.removesuffix("s").replace("-", " "), name, _entries(known, kind))
    if kind == "models":
        model = _model(record)
        return {"name": model.name, "parameters": parameter_count(model), **asdict(model)}
    return asdict(record)


def _print_entry(entry: dict[str, Any], form: str) -> None:
    if form == "json":
        print_json(entry)
        return
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for key, value in entry.items():
        table.add_row(key, _text(value))
    print_parts(table)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(inner)}" for key, inner in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(_text, value)) or "nothing"
    if value is None or isinstance(value, bool):
        return {None: "unknown", True: "yes", False: "no"}[value]
    return (
        f"{value:,g}"
        if isinstance(value, float) and value < 1e4
        else f"{value:,.0f}"
        if isinstance(value, (int, float))
        else str(value)
    )
