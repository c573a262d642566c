"""`dsgen validate`: every finding in job specs."""

from __future__ import annotations

import click

from .findings_text import finding_text
from .printing import print_json
from .status import ExitStatus


@click.command(short_help="Find every problem of job specs.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the answer.",
)
def validate(paths: tuple[str, ...], form: str) -> None:
    """Find every problem of the job specs at PATH; exit with 1 when there are errors."""
    from .. import validate as find
    from ..findings import Severity

    findings = find(*paths)
    if form == "json":
        print_json({"findings": [finding.to_dict() for finding in findings]})
    else:
        for finding in findings:
            click.echo(finding_text(finding, colour=True))
        if not findings:
            click.echo(f"no findings in {len(paths)} job spec{'s' if len(paths) > 1 else ''}", err=True)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise click.exceptions.Exit(ExitStatus.FINDINGS)
