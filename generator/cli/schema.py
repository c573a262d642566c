"""`dsgen schema`: the published JSON Schemas, and one of DeepSpeed's configs."""

from __future__ import annotations

import re

import click

NAMES = ("job", "plan", "sweep", "calibration", "findings", "deepspeed")


@click.command(short_help="Print a published JSON Schema.")
@click.argument("name", required=False, default="job", type=click.Choice(NAMES))
@click.option("--deepspeed-version", metavar="X.Y.Z", help="With deepspeed: the release; default: the newest known.")
def schema(name: str, deepspeed_version: str | None) -> None:
    """Print a JSON Schema: of job specs, plan.json, sweeps, calibrations, or what validate --format json prints.

    `deepspeed` is the schema of a DeepSpeed config, for editors.
    """
    if name == "deepspeed":
        _print_deepspeed(deepspeed_version)
        return
    if deepspeed_version is not None:
        raise click.UsageError("--deepspeed-version requires deepspeed")
    from importlib.resources import files  # here, to save start-up time

    package = __package__.rpartition(".")[0]
    click.echo(files(f"{package}.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8"), nl=False)


def _print_deepspeed(version: str | None) -> None:
    from ..programs.deepspeed.json_schema import deepspeed_json_schema  # here, to save start-up time
    from ..programs.deepspeed.schema import versions
    from .printing import print_json

    if version is not None and not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", version):
        raise click.UsageError(f"--deepspeed-version: {version[:40]!r} is not a version such as 0.19.8")
    print_json(deepspeed_json_schema(version or ".".join(map(str, versions()[-1]))))
