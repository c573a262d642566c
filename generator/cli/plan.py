"""`dsgen plan` ranks and compares the plans of a job; `dsgen estimate` estimates one layout."""

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
    from ..search.elastic import Elastic
    from ..search.plan import Infeasible, Plan, SearchResult
    from ..search.summary import Line


#: What `--compare` asks about: layout keys with their values, or the name or number of a row.
Keys = Mapping[str, Any]
Question = Keys | str

#: The headings of the table of plans, in lower case, and the layout keys that they stand for.
_KEYS_OF_HEADINGS = {
    "dp": "data",
    "tp": "tensor",
    "pp": "pipeline",
    "vp": "virtual_pipeline",
    "cp": "context",
    "ep": "expert",
    "zero": "zero_stage",
    "mb": "micro_batch",
}


def _question(text: str) -> Question:
    """What one `--compare` asks about: a word or number is a row, anything else layout keys."""
    row = text.strip().lower()
    return row if row.isalpha() or is_whole(row) else _keys(text)


def _keys(text: str) -> Keys:
    """Layout keys with their values, read as in a job spec; `null` frees a key that it pins.

    Raises `click.BadParameter` for text that isn't `KEY=VALUE,...`, or that the schema refuses.
    """
    from ..job.overrides import parse_value, plain_source  # here, to save start-up time
    from ..job.resolve import pinned_value
    from ..job.schema_check import check_schema

    layout_keys = load_schema()["$defs"]["layout"]["properties"]
    values: dict[str, object] = {}
    for part in _split_at_commas(text):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        key = key.removeprefix("layout.")
        key = _KEYS_OF_HEADINGS.get(key.lower(), key)
        if not equals or not value:
            raise click.BadParameter(f"{part.strip()!r} is not KEY=VALUE, such as tensor=8")
        if key == "layout":
            raise click.BadParameter("layout has keys: name one or more, such as micro_batch=null")
        if key in values:
            raise click.BadParameter(f"{key} is set twice in {text!r}")
        values[key] = parse_value(value)

    # The schema knows no null, so a layout key with it isn't checked; an unknown key is, to be
    # refused.
    checked = {
        key: value for key, value in values.items() if value is not None or key not in layout_keys
    }
    for key, asked in checked.items():
        path = _elsewhere(key) if key not in layout_keys else None
        if path:
            raise click.BadParameter(f"{path} is no key of layout; plan with --set {path}={asked}")
    findings, _ = check_schema(plain_source({"layout": checked}))
    problems = list[str]()
    for finding in findings:
        if finding.where.pointer.startswith("/layout"):
            problems += filter(None, (finding.message, finding.hint))
    if problems:
        raise click.BadParameter("; ".join(problems))
    return {key: pinned_value(value) for key, value in values.items()}


def _elsewhere(key: str) -> str | None:
    """The path of a key of a job spec that stands outside `layout`, if there is one."""
    from ..job.schema_check import key_paths  # here, to save start-up time

    path = key_paths().get(key, "")
    return path if path and not path.startswith("layout") else None


def _split_at_commas(text: str) -> list[str]:
    """The parts between commas, but for those in brackets: `modules=[core_attn, mlp],tensor=8`."""
    return re.sub(r"(\[[^\[\]]*\])|,", lambda match: match[1] or "\0", text).split("\0")


@click.command(short_help="Rank the layouts of a job; write nothing.")
@job_options
@top_option(10, "Best plans to list, after those with a name; left out: no more than fit a screen.")
@click.option(
    "--compare",
    "compared",
    multiple=True,
    metavar="KEY=VALUE,...",
    callback=lambda _, __, texts: tuple(map(_question, texts)),
    help="Compare with another layout, such as tensor=8,pipeline=8 or TP=8. Keys left out stay as "
    "chosen where they can; KEY=null searches one. Also: fastest, roomy (at most 80% of the card), "
    "or the number of a row. Repeatable.",
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
    compared: tuple[Question, ...],
    bold: bool,
    spares: bool,
    explain: bool,
    form: str,
) -> None:
    """Rank the layouts of the job in SPEC; write nothing."""
    from ..search import search  # here, to save start-up time
    from .findings_text import print_below
    from .loading import JobLoader, planned, planning, say_range, stop_at_arguments

    if form == "csv" and (compared or spares):
        raise click.UsageError("--compare and --spares have no csv form; use --format json")
    job, findings = JobLoader(request).reported()
    if compared or spares:
        say_range(job)
        with working(planning(job), form):
            result = search(job, top=top, bold=bold, explain=explain or form == "json")
        _print_answers(job, result, compared, spares, form, bold, explain=explain)
        return

    answer, counts = planned(job, form, top, bold, explain=explain or form == "json")
    best = answer.plans[0]
    stop_at_arguments(best)
    new_findings = [finding for finding in best.findings if finding not in findings]
    print_below([finding for finding in new_findings if finding.severity.value != "note"])
    if form == "json":
        elastic = {"counts": counts.to_dict()} if counts else {}
        print_json({**answer.to_dict(), **elastic, **_factors(best, explain)})
    elif form == "csv":
        print_csv(answer.to_rows())
    else:
        _print_plans(answer, counts, top, form, bold=bold, explain=explain)


def _print_plans(
    answer: SearchResult, counts: Elastic | None, top: int, form: str, *, bold: bool, explain: bool
) -> None:
    """Print the table of plans, and what would be faster than the best of them."""
    from ..job.needs import not_ready  # here, to save start-up time
    from ..programs.job_rules import check_job
    from ..programs.launching.front_ends import SETTINGS, front_end_of
    from ..search.suggestions import faster_nearby
    from ..search.summary import further
    from .answers import ALWAYS, explained, instead, nearby, needs_outside, report, sharding
    from .tables import print_parts

    best = answer.plans[0]
    faster: tuple[Line, ...] = ()
    others: tuple[Line, ...] = ()
    if not counts:
        with working("planning other counts and batches", form):
            faster = (*nearby(best, faster_nearby(best, check_job)), *sharding(best))
        with working("planning without pins, and other frameworks", form):
            others = instead(best, bold=bold)
    front_end = front_end_of(best.job)
    next_steps: tuple[Line, ...] = ()
    if front_end is not None:
        values = f"dsgen generate writes the values for it ({SETTINGS})"
        next_steps = (("Next", f"{front_end.unwritten}; {values}"),)
    else:
        steps = [*([not_ready(best.missing)] if best.missing else ()), *needs_outside(best)]
        next_steps = (("Next", "; ".join(steps)),) if steps else ()
    details = [*further(best)]
    if not explain:
        always = ALWAYS + bool(best.uncertainty.evidence.beyond)
        details = details[-always:]
    explanation = explained(best, answer) if explain else ()
    lines = report(answer, top, *faster, *next_steps, *others, details=details, counts=counts)
    print_parts(*lines, *explanation)


def _print_answers(
    job: Job,
    answer: SearchResult | Infeasible,
    compared: tuple[Question, ...],
    spares: bool,
    form: str,
    bold: bool,
    *,
    explain: bool,
) -> None:
    """Print the answers to `--compare` and `--spares`; exit as `plan` does where nothing fits."""
    from ..search import Infeasible  # here, to save start-up time
    from ..search.elastic import spare_nodes
    from .tables import print_parts

    best = answer.plans[0] if answer.plans else None
    with working("comparing", form):
        questions = compared
        if isinstance(answer, Infeasible):  # there are no rows to ask about
            questions = tuple(question for question in compared if not isinstance(question, str))
        comparisons = [_comparison(job, answer, question, bold) for question in questions]
        spare_counts = spare_nodes(best) if spares and best else None
    if form == "json":
        document: dict[str, Any] = answer.to_dict()
        if compared:
            document["comparisons"] = [comparison.to_dict() for comparison in comparisons]
        if spare_counts:
            document["spares"] = spare_counts.to_dict()
        print_json(document | _factors(best, explain))
    else:
        from .answers import explained, obstacle
        from .asked_text import comparisons as compared_parts
        from .asked_text import spares_report

        parts = [*obstacle(answer, rules=False), ""] if isinstance(answer, Infeasible) else []
        parts += compared_parts(best, comparisons)
        parts += ["", *spares_report(spare_counts)] if spare_counts else []
        parts += explained(best, answer) if explain and best else []
        print_parts(*parts)
    if best is None:
        raise click.exceptions.Exit(ExitStatus.INFEASIBLE)


def _factors(best: Plan | None, explain: bool) -> dict[str, Any]:
    """What `--explain` adds to a JSON document; its other explanations are always in it."""
    from .asked_text import factor_rows  # here, to save start-up time

    return {"factors": factor_rows(best)} if explain and best else {}


def _comparison(
    job: Job, answer: SearchResult | Infeasible, question: Question, bold: bool
) -> Comparison:
    """The layout that a question is about, compared with the best plan."""
    from ..search import Infeasible  # here, to save start-up time
    from ..search.compare import compare, compare_row
    from ..search.summary import rows

    if not isinstance(question, str):
        return compare(job, question, answer.plans[0] if answer.plans else None, bold=bold)
    if isinstance(answer, Infeasible):
        raise _no_row(question, "no plan fits")
    table = rows(answer, len(answer.plans))
    plans: dict[str, Plan] = {}
    for number, row in enumerate(table, start=1):
        plans |= {row.name: row.plan, str(number): row.plan}
    plans |= answer.named
    if question not in plans:
        names = ", ".join(name for name in plans if not is_whole(name))
        more = "; --top lists more" if is_whole(question) else ""
        raise _no_row(question, f"name {names}, or one of rows 1 to {len(table)}{more}")
    return compare_row(question, answer.plans[0], plans[question], bold=bold)


def _no_row(question: str, choices: str) -> click.BadParameter:
    """The error where a question names no row of the table."""
    missing = "row" if is_whole(question) else "row and no KEY=VALUE"
    return click.BadParameter(f"{question!r} is no {missing}: {choices}", param_hint="--compare")


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
    has_layout = job.pins != Pins()
    if not has_layout:
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
        from .answers import NAMES, MemoryBars, answer_lines, explained, fitted, needs_outside
        from .tables import Lines

        with working("planning without pins", form):
            free_plan = unpinned(plan)
        price = [("Pinned", unpinned_text(plan, free_plan, searched=False))] if free_plan else []
        needs = [("Next", "; ".join(needs_outside(plan)))] if any(needs_outside(plan)) else []
        name = "Layout" if has_layout else "Chosen"
        top_parts = (answer_lines(plan, *price, *needs, name=name), "", MemoryBars(plan), "")
        shown = fitted(lambda details: (*top_parts, Lines(details, least=NAMES)), [*further(plan)])
        print_parts(*shown, *(explained(plan) if explain else ()))
