"""`dsgen plan`: ranked plans, and questions about them; `dsgen estimate`: one pinned layout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..job.schema import load_schema
from ..numerals import is_whole
from .options import Request, bold_option, explain_option, form_option, job_options, top_option
from .printing import ExitStatus, print_csv, print_json, working

if TYPE_CHECKING:
    from ..job.records import Job
    from ..search.compare import Comparison
    from ..search.plan import Infeasible, Plan, SearchResult
    from ..search.summary import Line


Asked = Mapping[str, Any]


#: Headings of the table of plans, in small letters, and the keys that they stand for.
_HEADINGS = {
    "dp": "data",
    "tp": "tensor",
    "pp": "pipeline",
    "vp": "virtual_pipeline",
    "cp": "context",
    "ep": "expert",
    "zero": "zero_stage",
    "mb": "micro_batch",
}


def _question(text: str) -> Asked | str:
    """Layout keys and their values, or the name or number of a row of the table of plans."""
    row = text.strip().lower()
    return row if row.isalpha() or is_whole(row) else _keys(text)


def _keys(text: str) -> Asked:
    """Layout keys and their values, as in a job spec; `null` frees a key that the spec pins."""
    from ..job.overrides import parse_value, plain_source  # here, to save start-up time
    from ..job.resolve import pinned_value
    from ..job.schema_check import check_schema

    known = load_schema()["$defs"]["layout"]["properties"]
    asked: dict[str, object] = {}
    # Commas are between keys, and in lists: `recompute_modules=[core_attn, mlp],tensor=8`.
    for part in re.sub(r"(\[[^\[\]]*\])|,", lambda found: found[1] or "\0", text).split("\0"):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        key = key.removeprefix("layout.")
        key = _HEADINGS.get(key.lower(), key)
        if not equals or not value:
            raise click.BadParameter(f"{part.strip()!r} is not KEY=VALUE, such as tensor=8")
        if key in asked:
            raise click.BadParameter(f"{key} is set twice in {text!r}")
        asked[key] = parse_value(value)
    closed = {key: value for key, value in asked.items() if value is not None or key not in known}
    problems = [
        f
        for f in check_schema(plain_source({"layout": closed}))[0]
        if f.where.pointer.startswith("/layout")
    ]
    if problems:
        raise click.BadParameter(
            "; ".join(f"{f.message}; {f.hint}" if f.hint else f.message for f in problems)
        )
    return {key: pinned_value(value) for key, value in asked.items()}


@click.command(short_help="Rank the layouts of a job; write nothing.")
@job_options
@top_option(10, "Plans to list; left out: no more than fit a screen.")
@click.option(
    "--compare",
    "compared",
    multiple=True,
    metavar="KEY=VALUE,...",
    callback=lambda _, __, texts: tuple(map(_question, texts)),
    help="Compare with another layout, such as tensor=8,pipeline=8 or TP=8. Keys left out stay as "
    "chosen where they can; KEY=null searches one. Also: fastest, roomy, or the number of a row. "
    "Repeatable.",
)
@bold_option
@click.option(
    "--spares",
    is_flag=True,
    help="List smaller node counts that keep the batch and layout of the best plan.",
)
@explain_option
@form_option("table", "json", "csv")
def plan(
    request: Request,
    top: int,
    compared: tuple[Asked | str, ...],
    bold: bool,
    spares: bool,
    explain: bool,
    form: str,
) -> None:
    """Rank the layouts of the job in SPEC; write nothing."""
    from ..job.needs import not_ready  # here, to save start-up time
    from ..search import search
    from .findings_text import print_below
    from .loading import JobLoader, planned, planning, say_range
    from .tables import print_parts

    if form == "csv" and (compared or spares):
        raise click.UsageError("--compare and --spares have no csv form; use --format json")
    job, findings = JobLoader(request).reported()
    if compared or spares:
        say_range(job)
        with working(planning(job), form):
            found = search(job, top=top, bold=bold, explain=explain or form == "json")
        _answer(job, found, compared, spares, form, bold, explain=explain)
        return
    answer, counts = planned(job, form, top, bold, explain=explain or form == "json")
    best = answer.plans[0]
    print_below(
        [each for each in best.findings if each not in findings and each.severity.value != "note"]
    )
    if form == "json":
        more_counts = {"counts": counts.to_dict()} if counts else {}
        print_json({**answer.to_dict(), **more_counts, **_factors(best, explain)})
    elif form == "csv":
        print_csv(answer.to_rows())
    else:
        from ..search.suggestions import faster_nearby
        from ..search.summary import further
        from .answers import ALWAYS, explained, instead, nearby, report, sharding

        faster: tuple[Line, ...] = ()
        others: tuple[Line, ...] = ()
        if not counts:
            with working("planning other counts and batches", form):
                faster = (*nearby(best, faster_nearby(best)), *sharding(best))
            with working("planning without pins, and other frameworks", form):
                others = instead(best, bold=bold)
        lacks = (("Next", not_ready(best.missing)),) if best.missing else ()
        details = [*further(best)][0 if explain else -ALWAYS :]
        more = explained(best, answer.rejected_by) if explain else ()
        print_parts(
            *report(answer, top, *faster, *lacks, *others, details=details, counts=counts), *more
        )


def _answer(
    job: Job,
    answer: SearchResult | Infeasible,
    compared: tuple[Asked | str, ...],
    spares: bool,
    form: str,
    bold: bool,
    *,
    explain: bool,
) -> None:
    """Answer the questions about the best plan; exits like a search that finds none."""
    from ..search import Infeasible  # here, to save start-up time
    from ..search.elastic import spare_nodes
    from .tables import print_parts

    best = answer.plans[0] if answer.plans else None
    with working("comparing", form):
        has_rows = not isinstance(answer, Infeasible)
        questions = [asked for asked in compared if has_rows or not isinstance(asked, str)]
        comparisons = [_comparison(job, answer, asked, bold) for asked in questions]
        left = spare_nodes(best) if spares and best else None
    if form == "json":
        document: dict[str, Any] = answer.to_dict()
        document |= {"comparisons": [each.to_dict() for each in comparisons]} if compared else {}
        document |= {"spares": left.to_dict()} if left else {}
        print_json(document | _factors(best, explain))
    else:
        from .answers import explained, obstacle
        from .asked_text import comparisons as compared_parts
        from .asked_text import spares_report

        parts = [*obstacle(answer, rules=False), ""] if isinstance(answer, Infeasible) else []
        parts += compared_parts(best, comparisons)
        parts += ["", *spares_report(left)] if left else []
        parts += explained(best, answer.rejected_by) if explain and best else []
        print_parts(*parts)
    if best is None:
        raise click.exceptions.Exit(ExitStatus.INFEASIBLE)


def _factors(best: Plan | None, explain: bool) -> dict[str, Any]:
    """What `--explain` adds to a document: all else that it says is in one anyway."""
    from .asked_text import factor_rows  # here, to save start-up time

    return {"factors": factor_rows(best)} if explain and best else {}


def _comparison(
    job: Job, answer: SearchResult | Infeasible, asked: Asked | str, bold: bool
) -> Comparison:
    """A layout that was asked about, by its keys or by its row, beside the best plan."""
    from ..search import Infeasible  # here, to save start-up time
    from ..search.compare import compare, compare_row
    from ..search.summary import rows

    if not isinstance(asked, str):
        return compare(job, asked, answer.plans[0] if answer.plans else None, bold=bold)
    shown = () if isinstance(answer, Infeasible) else rows(answer, len(answer.plans))
    by_name = {
        name: row.plan for number, row in enumerate(shown, 1) for name in (row.name, str(number))
    }
    by_name |= {} if isinstance(answer, Infeasible) else answer.named
    if asked not in by_name:
        known = ", ".join(name for name in by_name if not is_whole(name))
        rows_text = (
            f"one of {known}, or a row from 1 to {len(shown)}" if shown else "nothing: no plan fits"
        )
        raise click.BadParameter(f"{asked!r} is no row: {rows_text}", param_hint="--compare")
    return compare_row(asked, answer.plans[0], by_name[asked], bold=bold)


@click.command(short_help="Estimate one layout.")
@job_options
@explain_option
@form_option("table", "json")
def estimate(request: Request, explain: bool, form: str) -> None:
    """Estimate one layout of the job in SPEC: memory, step time, duration, cost.

    Without a layout in SPEC it is the best one; of a layout, keys that are left open use the
    framework's defaults. Rules that the layout breaks are reported, not enforced.
    """
    from ..job.records import Pins  # here, to save start-up time
    from ..search import estimate as estimate_layout
    from ..search import search
    from .findings_text import print_below
    from .loading import JobLoader, or_exit, planning, say_range
    from .tables import print_parts

    job, findings = JobLoader(request).reported(check_pins=False)
    say_range(job, "estimated")
    if job.pins == Pins():
        with working(planning(job), form):
            answer = search(job, top=1, explain=explain or form == "json")
        plan = or_exit(answer, form).plans[0]
    else:
        plan = estimate_layout(job)
    print_below(finding for finding in plan.findings if finding not in findings)
    if form == "json":
        print_json(plan.to_dict())
    else:
        from ..search.instead import unpinned, unpinned_text
        from ..search.summary import further
        from .answers import NAMES, MemoryBars, answer_lines, explained, fitted
        from .tables import Lines

        with working("planning without pins", form):
            free = unpinned(plan)
        price = [("Pinned", unpinned_text(plan, free))] if free else []
        said = (
            answer_lines(plan, *price, name="Chosen" if job.pins == Pins() else "Layout"),
            "",
            MemoryBars(plan),
            "",
        )
        shown = fitted(lambda details: (*said, Lines(details, least=NAMES)), [*further(plan)])
        print_parts(*shown, *(explained(plan) if explain else ()))
