"""`dsgen validate`: check the files of a job, each file and all against each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..faults import FAULTS
from ..findings import printable
from ..text.wording import counted
from .faults import show_traces
from .options import form_option
from .printing import ExitStatus, echo, echo_diff, echo_styled, print_json, working
from .streams import print_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..check.coverage import NotChecked
    from ..check.validate import Answer
    from ..findings import Finding
    from .writing import FixedFile

CONSUMERS: Final = ("deepspeed", "huggingface", "accelerate", "lightning", "megatron-deepspeed")
#: The same as `submission.world.MOST_GPUS`, which would take long to import.
MOST_GPUS: Final = 2**20

#: Reasons why launches weren't checked, and places for each, that are listed without --strict.
_MOST_REASONS: Final = 6
_MOST_PLACES: Final = 3

#: Paths of files that were left alone for one reason which are named without --strict.
_MOST_NAMED: Final = 3

_SEVERITIES: Final = ("error", "warning", "note")  #: the worst first


@click.command(short_help="Check the files of a job.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--gpus", type=click.IntRange(1, MOST_GPUS), help="GPUs of the whole job.")
@click.option("--gpus-per-node", type=click.IntRange(1, MOST_GPUS), help="GPUs of one node.")
@click.option("--cluster", metavar="NAME", help="Node type from the catalog.")
@click.option(
    "--model", metavar="NAME|PATH", help="Model preset, or path of a Hugging Face config.json."
)
@click.option("--job", metavar="SPEC", help="Job spec that the files belong to.")
@click.option(
    "--consumer", type=click.Choice(CONSUMERS), help="Program that reads the DeepSpeed config."
)
@click.option(
    "--deepspeed-version",
    metavar="X.Y.Z",
    help="Installed DeepSpeed release; default: the newest known.",
)
@click.option(
    "--skip-unknown", is_flag=True, help="Skip files at PATH that dsgen does not recognize."
)
@click.option("--each-folder", is_flag=True, hidden=True, help="The same as --skip-unknown.")
@click.option("--engine", is_flag=True, help="Also run the parser of the installed DeepSpeed.")
@click.option(
    "--select",
    multiple=True,
    metavar="IDS",
    help="Report only these rules: comma-separated id prefixes.",
)
@click.option(
    "--ignore", multiple=True, metavar="IDS", help="Skip these rules: comma-separated id prefixes."
)
@click.option("--strict", is_flag=True, help="Show findings at every place; name every file.")
@click.option(
    "--baseline",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Leave out the findings listed in FILE.",
)
@click.option(
    "--write-baseline",
    is_flag=True,
    help="With --baseline: write all findings to FILE, and exit with 0.",
)
@click.option("--fix", is_flag=True, help="Apply safe fixes, report the rest.")
@click.option(
    "--diff", "only_diff", is_flag=True, help="With --fix: show the changes, write nothing."
)
@click.option(
    "--fail-on",
    type=click.Choice([*_SEVERITIES, "never"]),
    default="error",
    show_default=True,
    help="Exit with status 1 on findings of this severity or worse.",
)
@click.option(
    "--require-checked",
    is_flag=True,
    help="Exit with status 1 where nothing was checked of a launch.",
)
@form_option("text", "json", "sarif", "github", "azure")
def validate(
    paths: tuple[str, ...],
    form: str,
    fail_on: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    strict: bool,
    baseline: Path | None,
    write_baseline: bool,
    fix: bool,
    only_diff: bool,
    require_checked: bool,
    **context: Any,
) -> None:
    """Check the files and folders at PATH. Exit with status 1 on errors. Nothing is read from
    standard input.

    With --fix, report the findings that remain. The diff goes to standard output, or to standard
    error for formats other than text.
    """
    from ..check.validate import folded  # here, to save start-up time
    from .known_rules import Selection, ids_of

    if only_diff and not fix:
        raise click.UsageError("--diff requires --fix")
    if write_baseline and baseline is None:
        raise click.UsageError("--write-baseline requires --baseline FILE")
    if "-" in paths and not Path("-").exists():
        raise click.UsageError(
            "validate reads no standard input: write it to a file, and name that"
        )
    selected = Selection(select=ids_of(select), ignore=ids_of(ignore))
    check = _checker(paths, selected.keeps, form, **context)
    if fix:
        files, answer = _fixed(
            paths, check, selected.keeps, write=not only_diff, quiet=form != "text"
        )
    else:
        files, answer = (), check({})
    findings = _reported(answer, selected.keeps, baseline, write=write_baseline)
    if not strict:
        # In the other formats a finding stands beside its line, so each file keeps its own.
        findings = folded(findings, across=form in ("text", "json"))
    _print(findings, answer, form, strict=strict, required=require_checked)
    _print_counts(findings, answer, files, strict=strict, written=not only_diff)
    spec = context["job"]
    price = _price(Path(spec)) if spec is not None and form == "text" else ""
    if price:
        echo(price, err=True)
    _exit(findings, answer, fail_on, required=require_checked)


def _print_counts(
    findings: Sequence[Finding],
    answer: Answer,
    files: Sequence[FixedFile],
    *,
    strict: bool,
    written: bool,
) -> None:
    """Print on standard error how much was found, fixed, not checked and left alone."""
    if findings or answer.documents or not answer.not_checked:
        echo(_summary(findings, answer.documents, files, written=written), err=True)
    if strict and answer.judged:
        echo(printable(f"checked: {', '.join(answer.judged)}"), err=True)
    launches = [launch for launch in answer.not_checked if not launch.is_memory]
    if launches:
        echo(_not_checked(launches, strict=strict), err=True)
    memory = [launch for launch in answer.not_checked if launch.is_memory]
    if memory:
        echo(printable(f"memory not judged: {_reasons(memory, strict=strict)}"), err=True)
    if answer.left_alone:
        echo(printable(_left_alone(answer.left_alone, strict=strict)), err=True)


def _exit(findings: Sequence[Finding], answer: Answer, fail_on: str, *, required: bool) -> None:
    """End with the status that findings and options ask for; return where it is 0."""
    faulty = {finding.rule for finding in findings} & FAULTS
    if faulty:
        show_traces(answer.faults, click.get_current_context())
        raise click.exceptions.Exit(ExitStatus.FAULT)
    failing = () if fail_on == "never" else _SEVERITIES[: _SEVERITIES.index(fail_on) + 1]
    has_unchecked_launch = any(not launch.is_memory for launch in answer.not_checked)
    lacks_checks = required and (has_unchecked_launch or not answer.documents)
    if lacks_checks or any(finding.severity.value in failing for finding in findings):
        raise click.exceptions.Exit(ExitStatus.FINDINGS)


def _price(spec: Path) -> str:
    """A line on what a spec's pins cost in time; empty where the best plan is no faster."""
    from ..check.validate import check_spec  # here, to save start-up time
    from ..job.records import Pins
    from ..search import search
    from ..search.instead import unpinned, unpinned_text

    job, _ = check_spec(spec)
    if job is None or job.pins == Pins() or job.elastic:
        return ""
    plans = search(job, top=1, explain=False).plans
    free_plan = unpinned(plans[0]) if plans else None
    return printable(unpinned_text(plans[0], free_plan)) if free_plan else ""


def _checker(
    paths: tuple[str, ...],
    reported: Callable[[Finding], bool],
    form: str,
    *,
    each_folder: bool,
    **context: Any,
) -> Callable[[Mapping[str, str]], Answer]:
    """A function that checks the paths.

    It takes contents by path that are read instead of the files'. `each_folder` is a former name
    of `--skip-unknown`.
    """
    from ..check.validate import validate as check

    context["skip_unknown"] |= each_folder

    def answer(instead: Mapping[str, str]) -> Answer:
        try:
            with working(f"checking {', '.join(paths)}", form):
                return check(paths, instead=instead, reported=reported, **context)
        except ModuleNotFoundError as missing:
            from ..check.engine import NoEngine  # here, to save start-up time

            if not isinstance(missing, NoEngine):
                raise
            raise click.UsageError(f"--engine requires DeepSpeed: {missing.msg}") from None

    return answer


def _fixed(
    paths: Sequence[str],
    check: Callable[[Mapping[str, str]], Answer],
    selected: Callable[[Finding], bool],
    *,
    write: bool,
    quiet: bool,
) -> tuple[tuple[FixedFile, ...], Answer]:
    """The files that `--fix` changes, and the answer for the changed files.

    The diff is printed; with `write` the files are changed on disk.
    """
    from ..write import CannotWrite
    from .writing import fix_files, refuse_unwritable, settled, tell, unified_diff, write_fixed

    if write:
        settled(paths, tell)
    files, answer = fix_files(check, selected)
    if write and settled(answer.texts, tell):
        # What an interrupted run had left was put in place: the files are others now.
        files, answer = fix_files(check, selected)
    echo_diff(unified_diff(files), err=quiet)
    if write:
        try:
            write_fixed(files, tell)
        except CannotWrite as problem:
            refuse_unwritable(problem, "make the files writable, or fix a copy of them")
    return files, answer


def _reported(
    answer: Answer, selected: Callable[[Finding], bool], baseline: Path | None, *, write: bool
) -> Sequence[Finding]:
    """The selected findings that the baseline lacks.

    With `write` the baseline gets all selected findings, and only faults of dsgen are reported.
    """
    findings: Sequence[Finding] = tuple(filter(selected, answer.findings))
    if baseline is None:
        return findings
    # Faults of dsgen itself are in no baseline: a team can't accept them.
    faults = [finding for finding in findings if finding.rule in FAULTS]
    judged = [finding for finding in answer.findings if finding.rule not in FAULTS]
    from .baseline import compare, write_baseline  # here, to save start-up time

    if write:
        kept = tuple(filter(selected, judged))
        written = counted(write_baseline(baseline, kept), "finding")
        echo(f"{written} written to {baseline}", err=True)
        return faults
    # All findings are compared: an entry for one that isn't selected isn't an unused entry.
    return (*faults, *filter(selected, compare(baseline, judged, answer.texts)))


def _print(
    findings: Sequence[Finding], answer: Answer, form: str, *, strict: bool, required: bool
) -> None:
    """Print the findings in the format `form`, in one call: each call flushes.

    With `required`, launches that weren't checked are errors.
    """
    from .findings_text import (
        annotation,
        azure_annotation,
        azure_not_checked,
        findings_document,
        findings_text,
        github_not_checked,
    )

    not_checked = answer.not_checked
    if form == "json":
        print_json(findings_document(findings, answer.documents, answer.left_alone, not_checked))
    elif form == "sarif":
        from .known_rules import known_rules
        from .sarif import sarif_log

        rules = {rule.id: rule for rule in known_rules()}
        print_json(
            sarif_log(findings, rules, answer.documents, answer.left_alone, not_checked, required)
        )
    elif form == "github":
        commands = (github_not_checked(launch, required=required) for launch in not_checked)
        print_commands([*map(annotation, findings), *commands])
    elif form == "azure":
        commands = (azure_not_checked(launch, required=required) for launch in not_checked)
        print_commands([*map(azure_annotation, findings), *commands])
    elif text := findings_text(findings, strict=strict):
        echo_styled(text)


def _summary(
    findings: Sequence[Finding], documents: int, files: Sequence[FixedFile], *, written: bool
) -> str:
    """`2 errors, 1 warning in 3 documents; 1 can be fixed with --fix`."""
    severities = [finding.severity.value for finding in findings]
    counts = [
        counted(severities.count(severity), severity)
        for severity in _SEVERITIES
        if severity in severities
    ]
    summary = f"{', '.join(counts) or 'no findings'} in {counted(documents, 'document')}"
    fixable = sum(bool(finding.edits) for finding in findings)
    if files:
        summary += f"; {counted(len(files), 'file')} {'fixed' if written else 'would be fixed'}"
    elif fixable:
        summary += f"; {fixable} can be fixed with --fix"
    return summary


def _not_checked(launches: Sequence[NotChecked], *, strict: bool) -> str:
    """`not checked: 3 launches (the options of verl are not read: a.sh:3, b.sh:9; ...)`.

    The most frequent reasons come first; `strict` lists every reason and place.
    """
    scripts = sum(launch.of == "script" for launch in launches)
    others = len(launches) - scripts
    counts = []
    if others:
        counts.append(f"{others:,} launch{'es' * (others > 1)}")
    if scripts:
        counts.append(counted(scripts, "script"))
    reasons = _reasons(launches, strict=strict)
    return printable(f"not checked: {', '.join(counts)} ({reasons})")


def _reasons(launches: Sequence[NotChecked], *, strict: bool) -> str:
    """`the options of verl are not read: a.sh:3, b.sh:9; ...`."""
    by_reason: dict[str, list[str]] = {}
    for launch in launches:
        place = f"{launch.where.name}:{launch.where.line}".removesuffix(":None")
        by_reason.setdefault(launch.reason, []).append(place)

    ordered = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    shown = ordered if strict else ordered[:_MOST_REASONS]
    parts = []
    for reason, places in shown:
        listed = ", ".join(places if strict else places[:_MOST_PLACES])
        unlisted = 0 if strict else max(len(places) - _MOST_PLACES, 0)
        more = f" and {unlisted:,} more" if unlisted else ""
        parts.append(f"{reason}: {listed}{more}")

    unshown = len(launches) - sum(len(places) for _, places in shown)
    if unshown:
        parts.append(f"{unshown:,} more for other reasons, which --strict lists")
    return "; ".join(parts)


def _left_alone(files: Mapping[str, str], *, strict: bool) -> str:
    """`left alone: 12 files (8 of Hydra; 3 not recognized: a.json, b.json, c.json; ...)`.

    Of each reason the first files are named; with `strict` all are.
    """
    by_reason: dict[str, list[str]] = {}
    for path, reason in files.items():
        by_reason.setdefault(reason, []).append(path)
    parts = []
    for reason, paths in sorted(by_reason.items()):
        # Files of another program (`of Hydra`) are many and plain to see: `strict` names them.
        most = len(paths) if strict else 0 if reason.startswith("of ") else _MOST_NAMED
        named = f": {', '.join(paths[:most])}" if most else ""
        more = f" and {len(paths) - most:,} more" if most and len(paths) > most else ""
        parts.append(f"{len(paths):,} {reason}{named}{more}")
    hint = "; --strict names all" if any(" more" in part for part in parts) else ""
    return f"left alone: {counted(len(files), 'file')} ({'; '.join(parts)}{hint})"
