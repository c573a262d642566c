"""`dsgen catalog`, `rules`, `schema` and `completion`: print what dsgen knows."""

from __future__ import annotations

import re
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from ..resources import read_text
from .options import form_option
from .printing import echo, print_json, unknown

KINDS = ("accelerators", "node-types", "models")


@click.command(short_help="List accelerators, node types and models.")
@click.argument("kind", required=False, metavar=f"[{'|'.join(KINDS)}|model]")
@click.argument("name", required=False, metavar="[NAME|FILE]")
@form_option("text", "json")
def catalog(kind: str | None, name: str | None, form: str) -> None:
    """List the entries of the catalog, or print entry NAME with its source, in SI units (bytes,
    seconds, FLOP/s). A part of names lists those entries.

    `dsgen catalog model FILE` prints the model of a Hugging Face config.json, and whether
    transformers, where it is installed, counts as many parameters.
    """
    from ..catalog import load_catalog, load_models  # here, to save start-up time
    from .catalog_text import containing, entry, entry_lines, facts_of, kind_of, listing
    from .tables import print_parts

    if kind == "model" and name is not None and (Path(name).exists() or name.endswith(".json")):
        from .model_file import model_entry

        described = model_entry(name)
        if form == "json":
            print_json(described)
        else:
            print_parts(entry_lines(described, sparse=True))
        return

    kind = "models" if kind == "model" else kind
    loaded = load_models() if kind == "models" and name is None else load_catalog()
    records = {
        "accelerators": loaded.accelerators,
        "node-types": loaded.node_types,
        "models": loaded.models,
    }
    if kind is not None and kind not in KINDS:  # `dsgen catalog h100`: a name without its kind
        kind, name = kind_of(kind, records, alone=name is None), name or kind
    kinds = [kind] if kind else KINDS
    if kind is not None and name is not None:
        several = containing(kind, name, records[kind])
        if several:  # these are listed in place of one entry
            records[kind], name = several, None

    if kind is not None and name is not None:
        entry_of_name = entry(kind, name, records[kind])
        if form == "json":
            print_json(entry_of_name)
        else:
            print_parts(entry_lines(entry_of_name, sparse=kind == "models"))
    elif form == "json":
        facts = {kind: facts_of(records[kind]) for kind in kinds}
        print_json({**{kind: list(records[kind]) for kind in kinds}, "facts": facts})
    else:
        for kind in kinds:
            heading = f"{kind} ({len(records[kind])})"
            print_parts(heading, listing(records[kind], loaded.aliases), "")


#: Schemas that are files of the package.
PUBLISHED = (
    "job",
    "plan",
    "sweep",
    "calibration",
    "tune",
    "submit",
    "findings",
    "rules",
    "catalog",
)
NAMES = (*PUBLISHED, "deepspeed")


@click.command(short_help="Print a published JSON Schema.")
@click.argument("name", required=False, default="job", type=click.Choice(NAMES))
@click.option(
    "--deepspeed-version",
    metavar="X.Y.Z",
    help="With deepspeed: the release; default: the newest known.",
)
def schema(name: str, deepspeed_version: str | None) -> None:
    """Print a JSON Schema: of job specs, or of what `--format json` prints: plans, sweeps,
    calibrations, trials (tune), submissions, findings, rules, the catalog.

    `deepspeed` is the schema of a DeepSpeed config, for editors.
    """
    if name not in PUBLISHED:
        # here, to save start-up time
        from ..programs.deepspeed.json_schema import deepspeed_json_schema
        from ..programs.deepspeed.schema import versions

        newest = ".".join(map(str, versions()[-1]))
        version = newest if deepspeed_version is None else deepspeed_version
        if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", version):
            raise click.UsageError(
                f"--deepspeed-version: {version[:40]!r} is not a version such as 0.19.8"
            )
        print_json(deepspeed_json_schema(version))
        return
    if deepspeed_version is not None:
        raise click.UsageError("--deepspeed-version requires deepspeed")

    package = __package__.rpartition(".")[0]
    echo(read_text(f"{package}.schemas", f"{name}.schema.json"), nl=False)


@click.command(short_help="List or explain the rules.")
@click.argument("rule_id", required=False, metavar="[ID]")
@form_option("text", "json", "markdown")
def rules(rule_id: str | None, form: str) -> None:
    """List every rule, or explain rule ID: requirement, prevented error, source and fix.

    A prefix of ids, such as SLM, lists the rules of a subject; another word those whose requirement
    or error has it.
    """
    # here, to save start-up time
    from .known_rules import (
        known_rules,
        rule_document,
        rule_text,
        rules_called,
        rules_table,
        says,
        subject_pages,
    )
    from .tables import print_parts

    name = (rule_id or "").upper()
    # One rule is found without importing the modules of all others.
    chosen = [*rules_called(name)] if name else []
    if not chosen:
        chosen = [rule for rule in known_rules() if rule.id.startswith(name)]
    if not chosen and rule_id is not None:
        is_word = not re.search("[0-9]", rule_id)
        chosen = [rule for rule in known_rules() if is_word and says(rule, rule_id)]
    if not chosen and rule_id is not None:
        unknown("rule", rule_id, (rule.id for rule in known_rules()))
    if form == "json":
        print_json({"rules": [rule_document(rule) for rule in chosen]})
    elif form == "markdown":
        echo("\n".join(page for _, page in subject_pages(chosen, {})), nl=False)
    elif len(chosen) > 1:
        print_parts(rules_table(chosen))
    else:
        print_parts(*rule_text(chosen[0]))


@click.command(short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in SHELL.

    \b
    bash  echo 'source <(dsgen completion bash)' >> ~/.bashrc
    zsh   echo 'source <(dsgen completion zsh)' >> ~/.zshrc, below compinit
    fish  dsgen completion fish > ~/.config/fish/completions/dsgen.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    script = completion_class(context.find_root().command, {}, "dsgen", "_DSGEN_COMPLETE")
    echo(script.source())
