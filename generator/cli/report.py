"""`dsgen report`: a plan and what it was chosen from, as one page of HTML."""

from __future__ import annotations

from pathlib import Path

import click

from ..secrets import mask
from .options import Request, bold_option, job_options, top_option
from .printing import echo, working
from .sweep import Term, loaded_axes, read_term

#: GPU counts of the sweep that nobody asked for, over the job's own, and how many layouts each may have to try.
_SHARES = (1 / 4, 3 / 8, 1 / 2, 3 / 4, 1, 3 / 2, 2, 3, 4)
_MOST_CONSIDERED, _MOST_TIMED = 500_000, 10_000


@click.command(short_help="Write a plan and its alternatives as one page of HTML.")
@job_options
@click.option("-o", "--output", metavar="FILE", default="report.html", show_default=True, help="File for the page.")
@click.option("--force", is_flag=True, help="Overwrite a file that differs.")
@click.option(
    "--sweep",
    "terms",
    multiple=True,
    metavar="KEY=VALUES",
    callback=lambda _, __, words: tuple(map(read_term, words)),
    help="Add a curve over gpus=512..2048 or values of any key; one or two. Without it, over GPU counts if few layouts "
    "are to be tried.",
)
@click.option("--no-sweep", is_flag=True, help="Add no curve.")
@top_option(10, "Plans to name.")
@bold_option
def report(
    request: Request, output: str, force: bool, terms: tuple[Term, ...], no_sweep: bool, top: int, bold: bool
) -> None:
    """Plan the job in SPEC and write one page of HTML that shows the plan, and needs no network.

    It shows memory by stage, the step as a timeline, all plans that fit, the rules that removed the others, a sweep,
    and the uncertainty of the estimates.
    """
    from ..programs.program import RenderedFile  # here, to save start-up time
    from ..report.page import report_page
    from ..search.search import search_with_estimates
    from ..search.sweep import Axis, sweep
    from .loading import JobLoader, or_exit, planning, say_range
    from .writing import ACTIONS, write_files

    loader = JobLoader(request)
    job, _ = loader.reported()
    say_range(job)
    with working(planning(job)):
        answer, found = search_with_estimates(job, top=top, bold=bold)
    answer = or_exit(answer, "text")
    axes: list[Axis] = []
    if terms and not no_sweep:
        axes = loaded_axes(loader, terms)[1]
    elif not no_sweep and found.considered <= _MOST_CONSIDERED and len(found.layouts) <= _MOST_TIMED:
        unit = job.cluster.accelerators_per_node
        counts = dict.fromkeys(max(round(job.gpus * share / unit), 1) * unit for share in _SHARES)
        axes = [Axis(path="gpus", values=tuple(counts))]
    with working(f"sweeping {job.name}"):
        swept = sweep(loader.checked, axes, bold=bold) if axes else None
    command = request.command.replace("dsgen", "dsgen report", 1)
    page = report_page(answer, found, swept, command=command, spec=mask(loader.text))
    target = Path(output)
    file = RenderedFile(path=target.name, text=page)
    hint = "use --force to overwrite, or -o for another file"
    (change,) = write_files([file], target.parent, force=force, hint=hint)
    echo(f"{change.path}: {len(page.encode()) / 1e6:.1f} MB, {ACTIONS[change.action.value]}")
