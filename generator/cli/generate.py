"""`dsgen generate`: plan, render, write."""

from __future__ import annotations

from pathlib import Path

import click

from .options import Request, bold_option, form_option, job_options, top_option

_HINT = "use --diff to see the changes, --force to overwrite, or -o for another folder"
_ACTIONS = {"create": "written", "identical": "unchanged", "conflict": "overwritten"}


@click.command(short_help="Plan a job and write its files (the default).")
@job_options
@click.option("-o", "--output", metavar="DIR", help="Folder for the files.  [default: NAME-Ngpus]")
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
    from ..render import render
    from ..validate.rendered import check_rendered
    from .findings_text import print_findings, stop
    from .loading import searched
    from .printing import echo, print_json, print_parts
    from .text import file_name
    from .writing import print_diff, write_files

    answer, findings = searched(request, form, top, bold)
    best = answer.plans[0]
    launch = best.job.launch
    folder = Path(output) if output else Path(f"{file_name(best.job.name)}-{best.job.gpus}gpus")
    files = render(best, command=request.command)
    known = {finding.rule for finding in findings}
    of_files = [finding for finding in check_rendered(files, best.job) if finding.rule not in known]
    if any(finding.severity.value == "error" for finding in of_files):
        stop(of_files)
    print_findings([*(f for f in best.findings if f not in findings and f.severity.value != "note"), *of_files])
    if show_diff:
        print_diff(files, folder)
        return
    lacks = best.missing
    if lacks:
        echo(not_ready(lacks), err=True)
    changes = write_files(files, folder, force=force, hint=_HINT)
    if form == "json":
        written = [{"path": str(change.path), "action": change.action.value} for change in changes]
        print_json({**best.to_dict(), "files": written})
    else:
        from .answers import report

        print_parts(*report(answer, top))
        launcher = LAUNCHERS[launch.target]
        lines = [f"  {change.path} ({_ACTIONS[change.action.value]})" for change in changes]
        ready = (f"{not_ready(lacks)}.",) if lacks else ()
        start = (launcher.before(launch, folder), f"  {launcher.command(folder)}")
        echo("\n".join(("Files", *lines, "", *start, *ready)))
