"""`dsgen schema`: the published JSON Schemas."""

from __future__ import annotations

import click

NAMES = ("job", "plan", "sweep", "calibration", "findings")


@click.command(short_help="Print a published JSON Schema.")
@click.argument("name", required=False, default="job", type=click.Choice(NAMES))
def schema(name: str) -> None:
    """Print a JSON Schema: of job specs, plan.json, sweeps, calibrations, or what validate --format json prints."""
    from importlib.resources import files  # here, to save start-up time

    package = __package__.rpartition(".")[0]
    click.echo(files(f"{package}.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8"), nl=False)
