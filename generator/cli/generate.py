"""`dsgen generate`: plan, render, write."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .options import Request, bold_option, explain_option, form_option, job_options, output_option, top_option

if TYPE_CHECKING:
    from ..write import Change
    from .loading import Prepared


@click.command(short_help="Plan a job and write its files (the default).")
@job_options
@output_option
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@click.option("--diff", "show_diff", is_flag=True, help="Show the changes, write nothing.")
@top_option(3, "Plans to compare.")
@bold_option
@explain_option
@form_option("text", "json")
def generate(
    request: Request,
    output: str | None,
    force: bool,
    show_diff: bool,
    top: int,
    bold: bool,
    explain: bool,
    form: str,
) -> None:
    """Plan the job in SPEC, and write the files that launch it.

    Without SPEC, read dsgen.yaml in this folder, else plan a built-in example: GPT-3 175B on Azure ND A100 v4.
    """
    from ..job.needs import not_ready  # here, to save start-up time
    from .loading import prepared
    from .printing import echo, print_json
    from .writing import OVERWRITE, print_diff, write_files

    made = prepared(request, form, top, bold, output)
    best, folder = made.answer.plans[0], made.folder
    if show_diff:
        print_diff(made.files, folder)
        return
    changes = write_files(made.files, folder, force=force, hint=f"use --diff to see the changes, or {OVERWRITE}")
    if best.missing and (form == "json" or not sys.stdout.isatty()):  # else it is on the screen
        echo(not_ready(best.missing), err=True)
    if form == "json":
        written = [{"path": str(change.path), "action": change.action.value} for change in changes]
        counts = {"elastic": made.elastic.to_dict()} if made.elastic else {}
        print_json({**best.to_dict(), **counts, "files": written})
    else:
        _print(made, changes, top, bold=bold, explain=explain)


def _print(made: Prepared, changes: Sequence[Change], top: int, *, bold: bool, explain: bool) -> None:
    """The plan in detail, others beside it, then what counts: the plan in short, what it lacks, and what to do next."""
    from ..launchers import LAUNCHERS  # here, to save start-up time
    from .answers import explained, report
    from .elastic_text import counts_report
    from .printing import print_parts
    from .summary import NAMES, in_short
    from .tables import Lines
    from .writing import ACTIONS

    best, folder = made.answer.plans[0], made.folder
    launch = best.job.launch
    launcher = LAUNCHERS[launch.target]
    lacks = ", ".join(f"{lack.what} ({lack.hint})" for lack in best.missing)
    files = {action: [c.path for c in changes if c.action.value == action] for action in ACTIONS}
    rows = [("Missing", f"before submission: {lacks}")] if lacks else []
    for action, paths in files.items():
        if paths:
            names = ", ".join(str(path.relative_to(folder)) for path in paths)
            rows.append(
                ("" if rows and rows[-1][0] in ("Files", "") else "Files", f"{folder}: {names} ({ACTIONS[action]})")
            )
    rows += [("Next", launcher.before(launch, folder))]
    print_parts(*report(made.answer, top, bold=bold))
    if explain:
        print_parts(*explained(best), "")
    if made.elastic:
        print_parts(*counts_report(made.elastic), "")
    print_parts(in_short(best), Lines(rows, least=NAMES))
    print_parts(f"{'':{NAMES + 2}}{launcher.command(folder)}")
