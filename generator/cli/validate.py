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
MOST_GPUS: Final = 2**20  #: `programs.world.MOST_GPUS`, which would take long to import
_MOST_REASONS: Final = 6  # why launches weren't checked, on a screen
_MOST_PLACES: Final = 3  # of launches that weren't checked, for one reason
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
@click.option("--strict", is_flag=True, help="Show a repeated finding at every place.")
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
    """Check the files and folders at PATH. Exit with status 1 on errors.

    With --fix, report the findings that remain. The diff goes to standard output, or to standard
    error for formats other than text.
    """
    from ..check.validate import folded  # here, to save start-up time
    from .known_rules import Selection, ids_of

    lacking = "--diff requires --fix" if only_diff and not fix else ""
    if lacking or (write_baseline and baseline is None):
        raise click.UsageError(lacking or "--write-baseline requires --baseline FILE")
    selected = Selection(select=ids_of(select), ignore=ids_of(ignore))
    check = _checker(paths, selected.keeps, form, **context)
    if fix:
        files, answer = _fixed(
            paths, check, selected.keeps, write=not only_diff, quiet=form != "text"
        )
    else:
        files, answer = (), check({})
    findings = _told(answer, selected.keeps, baseline, write=write_baseline)
    if not strict:
        # others note what they say beside its line
        findings = folded(findings, across=form in ("text", "json"))
    _print(findings, answer, form, strict=strict, required=require_checked)
    if findings or answer.documents or not answer.not_checked:
        echo(_summary(findings, answer.documents, files, written=not only_diff), err=True)
    if answer.not_checked:
        echo(_not_checked(answer.not_checked, strict=strict), err=True)
    if answer.left_alone:
        echo(_left_alone(answer.left_alone), err=True)
    spec = context["job"]
    if spec is not None and form == "text" and (price := _price(Path(spec))):
        echo(price, err=True)
    faulty = {finding.rule for finding in findings} & FAULTS
    if faulty:
        show_traces(answer.faults, click.get_current_context())
        raise click.exceptions.Exit(ExitStatus.FAULT)
    failing = () if fail_on == "never" else _SEVERITIES[: _SEVERITIES.index(fail_on) + 1]
    unread = require_checked and (answer.not_checked or not answer.documents)
    if unread or any(finding.severity.value in failing for finding in findings):
        raise click.exceptions.Exit(ExitStatus.FINDINGS)


def _price(spec: Path) -> str:
    """What the layout that a spec pins costs; nothing where the chosen one is no faster."""
    from ..check.validate import check_spec  # here, to save start-up time
    from ..job.records import Pins
    from ..search import search
    from ..search.instead import unpinned, unpinned_text

    job, _ = check_spec(spec)
    if job is None or job.pins == Pins() or job.elastic:
        return ""
    for plan in search(job, top=1, explain=False).plans:
        if free := unpinned(plan):
            return printable(unpinned_text(plan, free))
    return ""


def _checker(
    paths: tuple[str, ...],
    reported: Callable[[Finding], bool],
    form: str,
    *,
    each_folder: bool,
    **context: Any,
) -> Callable[[Mapping[str, str]], Answer]:
    """A function that checks the paths; it accepts contents to read instead of the files'."""
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
    """What `--fix` changes, as a diff and with `write` on disk, and the answer that remains."""
    from ..write import CannotWrite
    from .writing import fix_files, refuse_unwritable, settled, tell, unified_diff, write_fixed

    if write:
        settled(paths, tell)
    files, answer = fix_files(check, selected)
    if write and settled(answer.texts, tell):  # they are other files now
        files, answer = fix_files(check, selected)
    echo_diff(unified_diff(files), err=quiet)
    if write:
        try:
            write_fixed(files, tell)
        except CannotWrite as problem:
            refuse_unwritable(problem, "make the files writable, or fix a copy of them")
    return files, answer


def _told(
    answer: Answer, selected: Callable[[Finding], bool], baseline: Path | None, *, write: bool
) -> Sequence[Finding]:
    """The selected findings that the baseline lacks; none while one is written."""
    findings: Sequence[Finding] = tuple(filter(selected, answer.findings))
    if baseline is None:
        return findings
    # A baseline has no faults of dsgen: they are nothing that a team adopts.
    faults = [finding for finding in findings if finding.rule in FAULTS]
    judged = [finding for finding in answer.findings if finding.rule not in FAULTS]
    from .baseline import compare, write_baseline  # here, to save start-up time

    if write:
        kept = tuple(filter(selected, judged))
        written = counted(write_baseline(baseline, kept), "finding")
        echo(f"{written} written to {baseline}", err=True)
        return faults
    # All of them are compared: what isn't selected is no unused entry.
    return (*faults, *filter(selected, compare(baseline, judged, answer.texts)))


def _print(
    findings: Sequence[Finding], answer: Answer, form: str, *, strict: bool, required: bool
) -> None:
    """Print all lines at once: there may be tens of thousands, and every call flushes.

    What wasn't checked is an error where that it is checked is `required`.
    """
    from .findings_text import (
        annotation,
        azure_annotation,
        azure_not_checked,
        findings_document,
        findings_text,
        github_not_checked,
    )

    unread = answer.not_checked
    if form == "json":
        print_json(findings_document(findings, answer.documents, answer.left_alone, unread))
    elif form == "sarif":
        from .known_rules import known_rules
        from .sarif import sarif_log

        rules = {rule.id: rule for rule in known_rules()}
        print_json(
            sarif_log(findings, rules, answer.documents, answer.left_alone, unread, required)
        )
    elif form == "github":
        commands = (github_not_checked(one, required=required) for one in unread)
        print_commands([*map(annotation, findings), *commands])
    elif form == "azure":
        commands = (azure_not_checked(one, required=required) for one in unread)
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
    by_reason: dict[str, list[str]] = {}
    for one in launches:
        place = f"{one.where.name}:{one.where.line}".removesuffix(":None")
        by_reason.setdefault(one.reason, []).append(place)

    ordered = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    shown = ordered if strict else ordered[:_MOST_REASONS]
    parts = []
    for reason, places in shown:
        listed = ", ".join(places if strict else places[:_MOST_PLACES])
        left = len(places) - _MOST_PLACES
        parts.append(f"{reason}: {listed}" + (f" and {left:,} more" * (left > 0 and not strict)))

    rest = len(launches) - sum(len(places) for _, places in shown)
    if rest:
        parts.append(f"{rest:,} more for other reasons, which --strict lists")
    counts = f"{len(launches):,} launch{'es' * (len(launches) > 1)}"
    return printable(f"not checked: {counts} ({'; '.join(parts)})")


def _left_alone(files: Mapping[str, str]) -> str:
    """`left alone: 12 files (8 of Hydra, 3 not recognized, 1 written by a script: ds.json)`."""
    by_reason: dict[str, list[str]] = {}
    for path, reason in files.items():
        by_reason.setdefault(reason, []).append(path)
    parts = [
        f"{len(paths):,} {reason}"
        + (f": {', '.join(paths)}" if len(paths) <= 3 and reason[:3] != "of " else "")
        for reason, paths in sorted(by_reason.items())
    ]
    return f"left alone: {counted(len(files), 'file')} ({'; '.join(parts)})"
