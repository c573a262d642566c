"""`dsgen generate`: plan, render, write."""

from __future__ import annotations

import click

from .options import Request, bold_option, form_option, job_options, output_option, top_option


@click.command(short_help="Plan a job and write its files (the default).")
@job_options
@output_option
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@click.option("--diff", "show_diff", is_flag=True, help="Show the changes, write nothing.")
@top_option(3, "Plans to compare.")
@bold_option
@form_option("text", "json")
def generate(
    request: Request, output: str | None, force: bool, show_diff: bool, top: int, bold: bool, form: str
) -> None:
    """Plan the job in SPEC, and write the files that launch it.

    Without SPEC, read dsgen.yaml in this folder, else plan a built-in example: GPT-3 175B on Azure ND A100 v4.
    """
    from ..job.needs import not_ready  # here, to save start-up time
    from ..launchers import LAUNCHERS
    from .loading import prepared
    from .printing import echo, print_json, print_parts
    from .writing import ACTIONS, OVERWRITE, print_diff, write_files

    made = prepared(request, form, top, bold, output)
    best, folder = made.answer.plans[0], made.folder
    if show_diff:
        print_diff(made.files, folder)
        return
    lacks = best.missing
    if lacks:
        echo(not_ready(lacks), err=True)
    changes = write_files(made.files, folder, force=force, hint=f"use --diff to see the changes, or {OVERWRITE}")
    if form == "json":
        written = [{"path": str(change.path), "action": change.action.value} for change in changes]
        counts = {"elastic": made.elastic.to_dict()} if made.elastic else {}
        print_json({**best.to_dict(), **counts, "files": written})
    else:
        from .answers import report
        from .elastic_text import counts_report

        print_parts(*report(made.answer, top))
        if made.elastic:
            print_parts(*counts_report(made.elastic), "")
        launch = best.job.launch
        launcher = LAUNCHERS[launch.target]
        lines = [f"  {change.path} ({ACTIONS[change.action.value]})" for change in changes]
        ready = (f"{not_ready(lacks)}.",) if lacks else ()
        start = (launcher.before(launch, folder), f"  {launcher.command(folder)}")
        echo("\n".join(("Files", *lines, "", *start, *ready)))
