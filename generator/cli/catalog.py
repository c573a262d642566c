"""`dsgen catalog`, `rules`, `schema` and `completion`: print rules, catalog entries, schemas and completions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from ..catalog import find_accelerator, find_model, find_node_type, load_catalog
from ..catalog.names import counted, nearest
from ..catalog.records import Accelerator, Model, ModelEntry, NodeType
from ..estimate.model_size import parameter_count
from ..job.hf_config import model_from_config
from ..units import GBIT_PER_S, TFLOPS, count, gib
from .options import form_option
from .printing import unknown
from .tables import Lines, Table, asides, numbers, whole

KINDS = ("accelerators", "node-types", "models")


@click.command(short_help="List accelerators, node types and models.")
@click.argument("kind", required=False, metavar=f"[{'|'.join(KINDS)}]")
@click.argument("name", required=False)
@form_option("text", "json")
def catalog(kind: str | None, name: str | None, form: str) -> None:
    """List the entries of the catalog, or print entry NAME with its source, in SI units (bytes, seconds, FLOP/s)."""
    from ..catalog import load_catalog  # here, to save start-up time
    from .printing import print_json
    from .tables import print_parts

    known = load_catalog()
    records = {"accelerators": known.accelerators, "node-types": known.node_types, "models": known.models}
    if kind is not None and kind not in KINDS:
        kind, name = kind_of(kind, records, alone=name is None), name or kind
    kinds = [kind] if kind else KINDS
    if kind is not None and name is not None:
        found = entry(kind, name, records[kind])
        if form == "json":
            print_json(found)
        else:
            print_parts(entry_lines(found))
    elif form == "json":
        print_json({kind: list(records[kind]) for kind in kinds})
    else:
        for kind in kinds:
            print_parts(f"{kind} ({len(records[kind])})", listing(records[kind]), "")


NAMES = ("job", "plan", "sweep", "calibration", "findings", "deepspeed")


@click.command(short_help="Print a published JSON Schema.")
@click.argument("name", required=False, default="job", type=click.Choice(NAMES))
@click.option("--deepspeed-version", metavar="X.Y.Z", help="With deepspeed: the release; default: the newest known.")
def schema(name: str, deepspeed_version: str | None) -> None:
    """Print a JSON Schema: of job specs, plan.json, sweeps, calibrations, or the findings of validate --format json.

    `deepspeed` is the schema of a DeepSpeed config, for editors.
    """
    if name == "deepspeed":
        from ..programs.deepspeed.json_schema import deepspeed_json_schema  # here, to save start-up time
        from ..programs.deepspeed.schema import versions
        from .printing import print_json

        if deepspeed_version is not None and not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", deepspeed_version):
            raise click.UsageError(f"--deepspeed-version: {deepspeed_version[:40]!r} is not a version such as 0.19.8")
        print_json(deepspeed_json_schema(deepspeed_version or ".".join(map(str, versions()[-1]))))
        return
    if deepspeed_version is not None:
        raise click.UsageError("--deepspeed-version requires deepspeed")
    from importlib.resources import files  # here, to save start-up time

    package = __package__.rpartition(".")[0]
    click.echo(files(f"{package}.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8"), nl=False)


@click.command(short_help="List or explain the rules.")
@click.argument("rule_id", required=False, metavar="[ID]")
@form_option("text", "json", "markdown")
def rules(rule_id: str | None, form: str) -> None:
    """List every rule, or explain rule ID: requirement, prevented error, source and fix.

    A prefix of ids, such as SLM, lists the rules of a subject.
    """
    from .known_rules import (  # here, to save start-up time
        known_rules,
        rule_document,
        rule_text,
        rules_called,
        rules_page,
        rules_table,
    )
    from .printing import print_json, unknown
    from .tables import print_parts

    name = (rule_id or "").upper()
    chosen = [*rules_called(name)] if name else []
    chosen = chosen or [rule for rule in known_rules() if rule.id.startswith(name)]
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


_SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in SHELL.

    \b
    bash  echo 'source <(dsgen completion bash)' >> ~/.bashrc
    zsh   echo 'source <(dsgen completion zsh)' >> ~/.zshrc, below compinit
    fish  dsgen completion fish > ~/.config/fish/completions/dsgen.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "dsgen", "_DSGEN_COMPLETE").source())


def listing(records: Mapping[str, Any]) -> Table:
    """One row per entry: its name, its main facts, and other names of it."""
    table = Table(whole(), numbers(), numbers(), numbers(drop=2), asides(least=12, drop=1))
    others = load_catalog().aliases.items()
    for name, record in records.items():
        also = ", ".join(alias for alias, of in others if of == name and alias != name.partition("/")[2])
        price = record.list_price if isinstance(record, NodeType) else None
        table.add_row(f"  {name}", *_facts(record), f"${price.usd_per_node_hour:,.2f}/h" if price else "", also)
    return table


_FIND: Final[Mapping[str, Any]] = {
    "accelerators": lambda name: find_accelerator(found.accelerator if (found := counted(name)) else name),  # `8xh200`
    "node-types": find_node_type,
    "models": find_model,
}
_KINDS: Final = ("node_types", "accelerators", "models")  #: as `nearest` has them


def kind_of(name: str, known: Mapping[str, Iterable[str]], *, alone: bool) -> str:
    """The kind of the entry `name`, which is given alone; else it should have been a kind."""
    found = next((kind for kind, find in _FIND.items() if alone and find(name) is not None), None)
    if found or not alone:
        return found or unknown("kind", name, _FIND)
    names = [each for names in known.values() for each in names if name.lower() in each]
    near = [*names[:2], *get_close_matches(name, _FIND, cutoff=0.7), *filter(None, (nearest(name, k) for k in _KINDS))]
    if len(names) < 2 and near:
        raise click.UsageError(f"unknown kind or name {name!r}; did you mean {near[0]!r}?")
    if names:
        unknown("kind or name", name, names)
    raise click.UsageError(f"unknown kind or name {name!r}; one of {', '.join(_FIND)}, or a name that these list")


def entry(kind: str, name: str, known: Iterable[str]) -> dict[str, Any]:
    """One entry as data; a model as the shape that its configuration describes, with its number of parameters."""
    record = _FIND[kind](name)
    if record is None:
        unknown(kind.removesuffix("s").replace("-", " "), name, known)
    if isinstance(record, ModelEntry):
        model = _model(record)
        return {"name": model.name, "parameters": parameter_count(model), **asdict(model)}
    return asdict(record)


def entry_lines(entry: Mapping[str, Any]) -> Lines:
    """One entry, a line a fact."""
    return Lines((key, _text(value)) for key, value in entry.items())


def _facts(record: Accelerator | NodeType | ModelEntry) -> tuple[str, str]:
    if isinstance(record, Accelerator):
        precision = next((p for p in ("bf16", "fp16", "fp32") if record.supports(p)), None)
        rate = "" if precision is None else f"{record.flops_per_s[precision] / TFLOPS:,.0f} TFLOP/s {precision}"
        return f"{gib(record.memory_bytes)} GiB", rate
    if isinstance(record, NodeType):
        gbits = record.network_bytes_per_s_per_node / GBIT_PER_S
        network = f"{gbits:,.0f} Gbit/s" if gbits else "no network"
        return f"{record.accelerators_per_node} × {record.accelerator}", network
    model = _model(record)
    return f"{count(parameter_count(model))} parameters", f"{model.layers} layers of {model.hidden:,}"


def _model(entry: ModelEntry) -> Model:
    return model_from_config(entry.config, name=entry.name, source=entry.source)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(inner)}" for key, inner in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(_text, value)) or "nothing"
    if value is None or isinstance(value, bool):
        return {None: "unknown", True: "yes", False: "no"}[value]
    if isinstance(value, float) and value < 1e4:
        return f"{value:,g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)
