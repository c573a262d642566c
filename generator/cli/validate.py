"""`dsgen validate`: every finding in the files of a job, each by itself and all against one another."""

from __future__ import annotations

from typing import Any

import click

from .findings_text import finding_text
from .printing import print_json
from .status import ExitStatus

CONSUMERS = ("deepspeed", "huggingface", "accelerate", "megatron-deepspeed")


@click.command(short_help="Find every problem of a job's files.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--gpus", type=click.IntRange(min=1), help="GPUs of the whole job.")
@click.option("--gpus-per-node", type=click.IntRange(min=1), help="GPUs of one node.")
@click.option("--cluster", metavar="NAME", help="A node type of the catalogue.")
@click.option("--model", metavar="NAME|PATH", help="A preset, or a Hugging Face config.json.")
@click.option("--job", metavar="SPEC", help="The job spec that the files are for.")
@click.option("--consumer", type=click.Choice(CONSUMERS), help="What reads the DeepSpeed config.")
@click.option("--deepspeed-version", metavar="X.Y.Z", help="The DeepSpeed that is installed; else the newest known.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the answer.",
)
def validate(paths: tuple[str, ...], form: str, **beside: Any) -> None:
    """Find every problem of the files at PATH, or in the folders there; exit with 1 when there are errors."""
    from .. import validate as find
    from ..findings import Severity

    findings = find(*paths, **beside)
    if form == "json":
        print_json({"findings": [finding.to_dict() for finding in findings]})
    else:
        for finding in findings:
            click.echo(finding_text(finding, colour=True))
        if not findings:
            click.echo("no findings", err=True)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise click.exceptions.Exit(ExitStatus.FINDINGS)
