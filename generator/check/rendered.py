"""Rendered files judged before they are written, by the rules that `dsgen validate` applies to files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..facts.around import checking
from ..findings import Finding, Severity, in_file_order
from ..job.records import Job, Launch
from ..job.text import UnreadableText, text_of
from ..programs.lookup import Files
from ..programs.program import RenderedFile
from ..programs.submission import Context, Submission
from .grouping import submissions_of
from .read import read_texts
from .rules.run import check_submission

_WORD: Final = re.compile(r"\S+")


def check_rendered(files: Iterable[RenderedFile], job: Job, folder: Path | None = None) -> tuple[Finding, ...]:
    """Errors and warnings in files that were rendered for `job`.

    A finding is placed at the value of the spec's `launch` that it quotes, else in the file, which has its relative
    path. Paths that a file names are looked up from the `folder` that the files are for, where it is given.
    """
    files = tuple(files)
    try:
        reading = read_texts([text_of(file.text, file.path, folder) for file in files])
    except UnreadableText as problem:
        return (problem.finding,)
    whole, release = tuple(reading.documents), job.deepspeed_version
    found, coming = [*reading.findings], [folder / file.path for file in files] if folder else ()
    with checking([folder] if folder else (), coming, alone=folder is None):
        contexts = [(whole, Context(job=job, deepspeed_version=release))]  # as with --job, and as without
        contexts += [(part, Context(deepspeed_version=release)) for part in submissions_of(whole, Files(whole))]
        for documents, context in contexts:
            found += check_submission(Submission(documents=documents, context=context))
    return in_file_order(dict.fromkeys(_placed(one, job) for one in found if one.severity is not Severity.NOTE))


def _placed(finding: Finding, job: Job) -> Finding:
    """`finding` at the value of the spec that stands where it points, else that its message and its line quote."""
    values = [pair for pair in _values(job.launch) if pair[0] in job.origin.locations]
    where, line = finding.where, finding.where.excerpt or finding.message
    word = _WORD.match(where.excerpt, where.column - 1) if where.excerpt is not None and where.column else None
    at = word[0].strip("\"',") if word else None
    here = [pointer for pointer, value in values if value == at]
    here += [pointer for pointer, value in values if _quotes(finding.message, value) and _quotes(line, value)]
    options = [(pointer, value.partition("=")[0]) for pointer, value in values if value.startswith("--")]
    if not here and (named := [each for each in options if _quotes(finding.message, each[1].lstrip("-"))]):
        hint = f"remove {named[0][1]} from launch.arguments"
        return replace(finding, where=job.origin.locate(named[0][0]), hint=hint, edits=())
    return replace(finding, where=job.origin.locate(here[0]) if here else where, edits=())


def _quotes(text: str, value: str) -> bool:
    return len(value) > 1 and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None


def _values(launch: Launch) -> Iterator[tuple[str, str]]:
    """The values of the spec's `launch` with their pointers, the longest first: what quotes it quotes its parts."""
    yield "/launch/script", launch.script
    found = [(f"/launch/arguments/{index}", value) for index, value in enumerate(launch.arguments)]
    found += [(f"/launch/environment/{name}", value) for name, value in launch.environment.items()]
    for key, value in launch.options.items():
        items = value if isinstance(value, (list, tuple)) else (value,)
        pointer = f"/launch/{launch.target}/{key}"
        found += [(f"{pointer}/{index}" if items is value else pointer, str(item)) for index, item in enumerate(items)]
    yield from sorted(found, key=lambda pair: -len(pair[1]))
