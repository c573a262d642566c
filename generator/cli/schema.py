"""`dsgen schema`: the published JSON Schemas."""

from __future__ import annotations

import click


@click.command(short_help="Print a published JSON Schema.")
@click.argument("name", required=False, default="job", type=click.Choice(["job", "plan", "calibration"]))
def schema(name: str) -> None:
    """Print the JSON Schema of the job spec (job), of plan.json (plan) or of a calibration (calibration)."""
    from importlib.resources import files

    package = __package__.rpartition(".")[0]
    click.echo(files(f"{package}.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8"), nl=False)
