"""`dsgen generate`: plan, render, write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .findings_text import print_findings
from .loading import load
from .options import Request, form_option, job_options
from .printing import print_json, print_obstacle, print_parts
from .text import file_name
from .writing import refuse_unwritable, write_files

if TYPE_CHECKING:
    from ..frameworks.program import RenderedFile
    from ..job.records import Launch
    from ..search.plan import SearchResult
    from ..write import Change

# Imports within functions save start-up time.

_OTHER_PLACE = "--diff shows the changes, --force overwrites, -o names another folder"


@click.command(short_help="Plan a job and write its files (the default).")
@job_options
@click.option("-o", "--output", metavar="DIR", help="Folder for the files; else NAME-Ngpus here.")
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@click.option("--diff", "show_diff", is_flag=True, help="Show what would change, and write nothing.")
@click.option("--top", type=click.IntRange(min=1), default=3, show_default=True, help="Plans to compare.")
@form_option("text", "json")
def generate(request: Request, output: str | None, force: bool, show_diff: bool, top: int, form: str) -> None:
    """Plan the job in SPEC, and write the files that launch it.

    Without SPEC it reads dsgen.yaml here, else plans a built-in example: GPT-3 175B on Azure ND A100 v4.
    """
    from ..render import render
    from ..search import search
    from ..search.plan import Infeasible

    job, findings = load(request)
    folder = Path(output) if output else Path(f"{file_name(job.name)}-{job.gpus}gpus")
    answer = search(job, top=top)
    if isinstance(answer, Infeasible):
        print_obstacle(answer, form)
    files = render(answer.plans[0], command=request.command)
    print_findings(f for f in answer.plans[0].findings if f not in findings and f.severity.value != "note")
    if show_diff:
        _print_diff(files, folder)
        return
    changes = write_files(files, folder, force=force, hint=_OTHER_PLACE)
    if form == "json":
        written = [{"path": str(change.path), "action": change.action.value} for change in changes]
        print_json({**answer.plans[0].to_dict(), "files": written})
    else:
        print_parts(*report(answer, top))
        click.echo(_files_text(job.launch, changes, folder))


def report(answer: SearchResult, top: int) -> tuple[object, ...]:
    """What is printed of a search: the best plan, those it was preferred to, and what was ruled out."""
    from .answers import considered, plans_table, ruled_out
    from .summary import plan_summary

    parts = (plan_summary(answer.plans[0]), "", considered(answer), plans_table(answer, top))
    return (
        (*parts, "", "Ruled out, by rule:", ruled_out(answer.rejected_by), "") if answer.rejected_by else (*parts, "")
    )


def _print_diff(files: tuple[RenderedFile, ...], folder: Path) -> None:
    from ..write import CannotWrite, compare, diff

    try:
        text = diff(compare(files, folder))
    except CannotWrite as problem:
        refuse_unwritable(problem)
    click.echo(text, nl=False)
    click.echo("nothing was written" if text else f"{folder} is up to date", err=True)


def _files_text(launch: Launch, changes: tuple[Change, ...], folder: Path) -> str:
    from ..launchers import LAUNCHERS

    words = {"create": "written", "identical": "unchanged", "conflict": "overwritten"}
    lines = [f"  {change.path} ({words[change.action.value]})" for change in changes]
    launcher = LAUNCHERS[launch.target]
    return "\n".join(("Files", *lines, "", launcher.before(launch, folder), f"  {launcher.command(folder)}"))
