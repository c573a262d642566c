"""`dsgen validate`: check the files of a job, each by itself and against one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from .options import form_option
from .status import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..findings import Finding
    from ..validate.validate import Answer
    from .fixing import FixedFile

# Imports within functions save start-up time.

CONSUMERS: Final = ("deepspeed", "huggingface", "accelerate", "megatron-deepspeed")
_SEVERITIES: Final = ("error", "warning", "note")  #: the worst first


@click.command(short_help="Check the files of a job.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--gpus", type=click.IntRange(min=1), help="GPUs of the whole job.")
@click.option("--gpus-per-node", type=click.IntRange(min=1), help="GPUs of one node.")
@click.option("--cluster", metavar="NAME", help="Node type from the catalog.")
@click.option("--model", metavar="NAME|PATH", help="Model preset, or path of a Hugging Face config.json.")
@click.option("--job", metavar="SPEC", help="Job spec that the files belong to.")
@click.option("--consumer", type=click.Choice(CONSUMERS), help="Program that reads the DeepSpeed config.")
@click.option("--deepspeed-version", metavar="X.Y.Z", help="Installed DeepSpeed release; default: the newest known.")
@click.option("--skip-unknown", is_flag=True, help="Skip files at PATH that dsgen does not recognize.")
@click.option("--each-folder", is_flag=True, help="Check every folder as a separate job.")
@click.option("--engine", is_flag=True, help="Also run the parser of the installed DeepSpeed.")
@click.option("--select", multiple=True, metavar="IDS", help="Report only these rules: ids or prefixes, with commas.")
@click.option("--ignore", multiple=True, metavar="IDS", help="Skip these rules: ids or prefixes, with commas.")
@click.option("--fix", is_flag=True, help="Apply safe fixes, report the rest.")
@click.option("--diff", "only_diff", is_flag=True, help="With --fix: show the changes, write nothing.")
@click.option(
    "--fail-on",
    type=click.Choice([*_SEVERITIES, "never"]),
    default="error",
    show_default=True,
    help="Exit with status 1 on findings of this severity or worse.",
)
@form_option("text", "json", "sarif", "github")
def validate(
    paths: tuple[str, ...],
    form: str,
    fail_on: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fix: bool,
    only_diff: bool,
    **context: Any,
) -> None:
    """Check the files at PATH, or in the folders there. The exit status is 1 when there are errors.

    With --fix, the findings that remain are reported. The diff goes to standard output, or to standard error for
    formats other than text.
    """
    from .rule_selection import selection

    if only_diff and not fix:
        raise click.UsageError("--diff requires --fix")
    selected = selection(select, ignore)
    check = _checker(paths, selected.keeps, **context)
    if fix:
        files, answer = _fixed(check, selected.keeps, write=not only_diff, quiet=form != "text")
    else:
        files, answer = (), check({})
    findings = [finding for finding in answer.findings if selected.keeps(finding)]
    _print(findings, form)
    click.echo(_summary(findings, answer.documents, files, written=not only_diff), err=True)
    if _fails(findings, fail_on):
        raise click.exceptions.Exit(ExitStatus.FINDINGS)


def _checker(
    paths: tuple[str, ...],
    reported: Callable[[Finding], bool],
    *,
    job: str | None,
    engine: bool,
    skip_unknown: bool,
    each_folder: bool,
    **context: Any,
) -> Callable[[Mapping[str, str]], Answer]:
    """A function that checks the paths, with contents to read instead of the files'."""
    from ..documents.context import ContextFlags
    from ..documents.read import by_folder
    from ..validate.validate import joined
    from ..validate.validate import validate as check

    submissions = by_folder(paths) if each_folder else (paths,)

    def answer(instead: Mapping[str, str]) -> Answer:
        try:
            return joined(
                check(
                    submission,
                    ContextFlags(**context),
                    job=job,
                    engine=engine,
                    skip_unknown=skip_unknown or each_folder,
                    instead=instead,
                    reported=reported,
                )
                for submission in submissions
            )
        except ModuleNotFoundError as missing:
            if not engine or missing.name != "deepspeed":
                raise
            raise click.UsageError(f"--engine requires DeepSpeed: {missing.msg}") from None

    return answer


def _fixed(
    check: Callable[[Mapping[str, str]], Answer], wanted: Callable[[Finding], bool], *, write: bool, quiet: bool
) -> tuple[tuple[FixedFile, ...], Answer]:
    """The files that `--fix` changes, shown and with `write` written, and the answer on what is left."""
    from ..write import CannotWrite
    from .fixing import fix_files, unified_diff, write_fixed
    from .writing import refuse_unwritable

    files, answer = fix_files(check, wanted)
    click.echo(unified_diff(files), nl=False, err=quiet)
    if write:
        try:
            write_fixed(files)
        except CannotWrite as problem:
            refuse_unwritable(problem, "make the files writable, or fix a copy of them")
    return files, answer


def _print(findings: Sequence[Finding], form: str) -> None:
    if form == "json":
        from .findings_json import findings_document, json_text

        click.echo(json_text(findings_document(findings)))
    elif form == "sarif":
        from .findings_json import json_text
        from .known_rules import known_rules
        from .sarif import sarif_log

        click.echo(json_text(sarif_log(findings, {rule.id: rule for rule in known_rules()})))
    elif form == "github":
        from .github_annotations import annotation

        _echo_lines(map(annotation, findings))
    else:
        from .findings_text import finding_text

        _echo_lines(finding_text(finding, colour=True) for finding in findings)


def _echo_lines(lines: Iterable[str]) -> None:
    """All lines at once: there may be tens of thousands, and every call flushes."""
    text = "\n".join(lines)
    if text:
        click.echo(text)


def _summary(findings: Sequence[Finding], documents: int, files: Sequence[FixedFile], *, written: bool) -> str:
    """`2 errors, 1 warning in 3 documents; 1 can be fixed with --fix`."""
    severities = [finding.severity.value for finding in findings]
    counts = [_count(severities.count(severity), severity) for severity in _SEVERITIES if severity in severities]
    summary = f"{', '.join(counts) or 'no findings'} in {_count(documents, 'document')}"
    fixable = sum(bool(finding.edits) for finding in findings)
    if files:
        summary += f"; {_count(len(files), 'file')} {'fixed' if written else 'would be fixed'}"
    elif fixable:
        summary += f"; {fixable} can be fixed with --fix"
    return summary


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _fails(findings: Sequence[Finding], fail_on: str) -> bool:
    if fail_on == "never":
        return False
    failing = _SEVERITIES[: _SEVERITIES.index(fail_on) + 1]
    return any(finding.severity.value in failing for finding in findings)
