"""Findings as text for people, as JSON, and as commands to GitHub Actions and Azure Pipelines."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from ..findings import Finding, Location, Severity, printable
from ..patterns import lazy_pattern
from .printing import (
    BLUE,
    ORANGE,
    RED,
    ExitStatus,
    colour_allowed,
    echo,
    echo_styled,
    form_asked,
    print_json,
)

if TYPE_CHECKING:  # to save start-up time
    from ..check.coverage import NotChecked

_MANY_FILES = 4  # a finding in so many files is shown once, with a list of them
_MOST_PLACES, _MOST_LINES = 5, 8  # in such a list
#: What differs between messages that say the same: numbers, paths, quoted text, options with their
#: values. It matches whole words, and is tried at their beginnings alone, as they may be long.
_SPECIFIC = lazy_pattern(r"(?<!\S)\S*[0-9/=`'\"$]\S*")
_WIDTH = 110  # of an excerpt, in characters
_COLOURS = {"error": RED, "warning": ORANGE, "note": BLUE}
_LATER = "dsgen.findings"  #: in the context of the command: what is printed at its end


def finding_text(finding: Finding, *more: Finding, colour: bool = False, width: int = 0) -> str:
    """Findings at one place, with the source line and a caret.

    `path:line:column: severity: message [ID]`, the line, the caret, `hint:`.

    With a width in columns, text wraps between words, and notes have no source line.
    """
    firsts = []
    for each in (finding, *more):
        severity = each.severity.value
        first = _folded(
            f"{_place(each.where)}: {severity}: {_line(counted(each))} [{each.rule}]", width
        )
        if colour and colour_allowed():
            shown = click.style(severity, fg=_COLOURS[severity], bold=True)
            first = first.replace(f": {severity}:", f": {shown}:", 1)
        firsts.append(first)
    hint = [_folded(f"hint: {_line(finding.hint)}", width)] if finding.hint else []
    excerpt = [] if width and finding.severity is Severity.NOTE else _excerpt(finding.where, width)
    return "\n".join((*firsts, *excerpt, *hint))


def together(findings: Iterable[Finding], alone: Container[int] = ()) -> list[list[Finding]]:
    """Group findings of one cause: those with the same place and hint.

    A finding whose `id` is in `alone`, or that stands for several places, makes a group by itself.
    """
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        key: object = (finding.where, finding.hint)
        if id(finding) in alone or finding.again:
            key = id(finding)
        groups.setdefault(key, []).append(finding)
    return [*groups.values()]


def _folded(text: str, width: int) -> str:
    """Text as lines of `width` columns, the further ones indented."""
    from .tables import wrapped  # here, to save start-up time

    if not width or len(text) <= width:
        return text
    first = wrapped(text, width)[0]
    rest = text[len(first) :].lstrip()
    return "\n".join((first, *(f"  {line}" for line in wrapped(rest, width - 2))))


def findings_text(findings: Sequence[Finding], *, strict: bool) -> str:
    """Every finding as text.

    Unless `strict`, findings that say the same of many files are shown once, with a list of these.
    """
    shared = _shared_by_many_files(findings)
    firsts = {id(group[0]): group for group in shared}
    others = {id(finding) for group in shared for finding in group[1:]}
    texts = list[str]()
    for finding, *same_place in together(findings, alone=firsts.keys() | others):
        if strict or id(finding) not in others:
            texts.append(finding_text(finding, *same_place, colour=True))
        if strict or id(finding) in others:
            continue
        elsewhere = [*finding.elsewhere]
        for other in firsts.get(id(finding), [finding])[1:]:
            elsewhere += (other.where, *other.elsewhere)
        if elsewhere:
            texts.append(_others(elsewhere))
    return "\n".join(texts)


def _shared_by_many_files(findings: Iterable[Finding]) -> list[list[Finding]]:
    """The groups of findings that say the same of many files, whatever the values in it."""
    groups: dict[tuple[str, Severity, str], list[Finding]] = {}
    for finding in findings:
        key = (finding.rule, finding.severity, _SPECIFIC.sub("...", finding.message))
        groups.setdefault(key, []).append(finding)
    return [group for group in groups.values() if len(_paths_of(group)) >= _MANY_FILES]


def _paths_of(findings: Iterable[Finding]) -> set[str]:
    return {where.path for finding in findings for where in (finding.where, *finding.again)}


def _others(wheres: Sequence[Location]) -> str:
    """`the same in 3 more files: a.sh:3, b.sh:5, c.sh:9 (--strict shows each)`."""
    first_places = dict[str, Location]()  # by path
    for where in wheres:
        first_places.setdefault(where.path, where)
    places = [f"{path}:{where.line}".removesuffix(":None") for path, where in first_places.items()]
    files = len(places)
    more = f" and {len(places) - _MOST_PLACES:,} more" if len(places) > _MOST_PLACES else ""
    listed = printable(", ".join(places[:_MOST_PLACES]))
    return (
        f"the same in {files:,} more file{'s' * (files > 1)}: {listed}{more} (--strict shows each)"
    )


def counted(finding: Finding) -> str:
    """The message, and how often it is said of the file: `(3 times, lines 5, 9, 14)`."""
    lines, times = finding.lines, 1 + len(finding.again) - len(finding.elsewhere)
    if times == 1:
        return finding.message
    shown = [str(line) for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append("...")
    places = f", lines {', '.join(shown)}" if len(lines) > 1 else ""
    return f"{finding.message} ({times} times{places})"


def print_findings(findings: Iterable[Finding]) -> None:
    """Print every finding to stderr, as wide as the terminal."""
    for same in together(findings):
        echo_styled(finding_text(*same, colour=True, width=_columns()), err=True)


def _columns() -> int:
    """The columns of the terminal that findings are printed on, 0 where there is none."""
    if sys.stderr.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return 0


def print_below(findings: Iterable[Finding]) -> None:
    """Print findings to stderr below the answer: when the command ends, or asks a question."""
    context = click.get_current_context()
    if not context.meta.setdefault(_LATER, []):
        context.call_on_close(lambda: print_findings(context.meta.pop(_LATER, ())))
    context.meta[_LATER] += findings


def height_below() -> int:
    """The number of lines that the findings below the answer take."""
    context = click.get_current_context(silent=True)
    return sum(
        finding_text(*same, width=_columns()).count("\n") + 1
        for same in together(context.meta.get(_LATER, ()) if context else ())
    )


def stop(findings: Iterable[Finding], outcome: str = "") -> NoReturn:
    """Print findings to stderr, with `--format json` to stdout too, and exit.

    The status is `ExitStatus.FINDINGS`. The `outcome`, such as `not submitted`, is a last line on
    stderr.
    """
    findings = tuple(findings)
    print_findings(findings)
    if outcome:
        echo(outcome, err=True)
    if form_asked() == "json":
        print_json(findings_document(findings))
    raise click.exceptions.Exit(ExitStatus.FINDINGS)


def relative_path(path: str) -> str | None:
    """`path` from the working directory, with slashes; None for no file, such as `<flags>`."""
    if path.startswith("<") and path.endswith(">"):
        return None
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):  # empty, with a NUL, or on another drive
        relative = path
    return printable(Path(relative).as_posix())


def findings_document(
    findings: Iterable[Finding],
    documents: int = 0,
    left_alone: Mapping[str, str] | None = None,
    not_checked: Iterable[NotChecked] = (),
) -> dict[str, object]:
    """Findings as JSON (`schemas/findings.schema.json`), with the number of documents judged."""
    told = []
    for finding in findings:
        places = [
            {
                "path": where.name,
                "line": where.line,
                "column": where.column,
                "pointer": where.pointer,
            }
            for where in (finding.where, *finding.again)
        ]
        more = {
            "fixable": bool(finding.edits),
            "times": len(places),
            "lines": list(finding.lines),
            "places": places,
        }
        told.append({**finding.to_dict(), **more})
    return {
        "findings": told,
        "documents": documents,
        "not_checked": [
            {
                "path": launch.where.name,
                "line": launch.where.line,
                "column": launch.where.column,
                "reason": launch.told,
            }
            for launch in not_checked
        ],
        "left_alone": [
            {"path": path, "reason": reason} for path, reason in (left_alone or {}).items()
        ],
    }


def annotation(finding: Finding) -> str:
    """For GitHub: `::error file=job.yaml,line=3,col=7,title=MLM004::message%0Ahint: ...`."""
    values = {name: _data(value) for name, value in _properties(finding).items()}
    properties = ",".join(
        f"{name}={value.replace(':', '%3A').replace(',', '%2C')}" for name, value in values.items()
    )
    command = "notice" if finding.severity is Severity.NOTE else finding.severity.value
    return f"::{command} {properties}::{_data(_message(finding))}"


def github_not_checked(launch: NotChecked, *, required: bool) -> str:
    """For GitHub: `::notice file=run.sh,line=3,col=1,title=not checked::not checked: ...`.

    It is an error where all launches are `required` to be checked.
    """
    path, where = relative_path(launch.where.path), launch.where
    place = {"file": path, "line": where.line, "col": where.column, "title": "not checked"}
    properties = ",".join(
        f"{name}={_data(printable(str(value))).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in place.items()
        if value is not None
    )
    command = "error" if required and not launch.is_memory else "notice"
    return f"::{command} {properties}::{_data(_line(launch.message))}"


def azure_not_checked(launch: NotChecked, *, required: bool) -> str:
    """A line of the log for Azure; an error where all launches are `required` to be checked."""
    text = f"{_place(launch.where)}: {_line(launch.message)}"
    is_error = required and not launch.is_memory
    return f"##vso[task.logissue type=error]{_azure(text)}" if is_error else text


def azure_annotation(finding: Finding) -> str:
    """A finding as Azure reads it.

    `##vso[task.logissue type=error;sourcepath=job.yaml;linenumber=3;code=MLM004]message`.
    """
    if finding.severity is Severity.NOTE:  # Azure knows no notes: a plain line of the log
        return f"{_place(finding.where)}: note: {_line(counted(finding))} [{finding.rule}]"
    names = {"file": "sourcepath", "line": "linenumber", "col": "columnnumber", "title": "code"}
    values = {names[name]: _azure(value) for name, value in _properties(finding).items()}
    properties = "".join(
        f";{name}={value.replace(';', '%3B').replace(']', '%5D')}" for name, value in values.items()
    )
    return (
        f"##vso[task.logissue type={finding.severity.value}{properties}]{_azure(_message(finding))}"
    )


def _message(finding: Finding) -> str:
    hint = f"\nhint: {_line(finding.hint)}" if finding.hint else ""
    return _line(counted(finding)) + hint


def _place(where: Location) -> str:
    parts = (where.name, where.line, where.column)
    return ":".join(printable(str(part)) for part in parts if part is not None)


def _excerpt(where: Location, columns: int = 0) -> list[str]:
    """The source line, cut around the place where it is long, and a caret under the place."""
    if where.excerpt is None or where.column is None:
        return []
    line, caret = where.excerpt, where.column - 1
    width = min(_WIDTH, max(columns - 8, 20)) if columns else _WIDTH
    if len(line) > width:
        start = max(0, min(caret - width // 2, len(line) - width))
        end = start + width
        before, after = "..." if start else "", "..." if end < len(line) else ""
        line = f"{before}{line[start:end]}{after}"
        caret += len(before) - start
    return [f"  {_line(line)}", f"  {' ' * len(_line(line[:caret]))}^"]


def _line(text: str) -> str:
    """`text` on one line, tabs as spaces."""
    return printable(text.replace("\t", " ").replace("\n", " "))


def _properties(finding: Finding) -> dict[str, str]:
    """The place and the rule by GitHub's names."""
    path, where = relative_path(finding.where.path), finding.where
    place = {} if path is None else {"file": path, "line": where.line, "col": where.column}
    properties = {**place, "title": finding.rule}
    return {name: printable(str(value)) for name, value in properties.items() if value is not None}


# Source: actions/toolkit packages/core/src/command.ts: what a runner decodes in data and in
# properties.
def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


# Source: microsoft/azure-pipelines-task-lib node/taskcommand.ts: what an agent decodes.
def _azure(text: str) -> str:
    return text.replace("%", "%AZP25").replace("\r", "%0D").replace("\n", "%0A")
