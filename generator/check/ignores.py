"""Read the comments that ignore findings, and leave these findings out.

`# dsgen: ignore[ID]` is for a line, `# dsgen: ignore-file[ID]` for a whole file.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Final

import yaml

from ..dataclass import dataclass
from ..findings import Finding, Location
from ..patterns import lazy_pattern
from ..places import Lines
from ..rule import rules_in
from ..text.hjson.text import read_json
from ..text.shell.tokens import ARRAY, WORD, Tokens
from ..text.text import Text
from . import codes

_HASH: Final = lazy_pattern(r"(?:^|(?<=[ \t;]))#", re.MULTILINE)
_HASH_OR_SLASHES: Final = lazy_pattern(r"(?:^|(?<=[ \t,;{}\[\]]))(?:#|//)", re.MULTILINE)
_LINE: Final = lazy_pattern(r"[^\r\n]*")
_SCANNER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Span = tuple[int, int]  # offsets of the first character and of the one behind the last


def comments(text: Text) -> Iterator[Span]:
    """Return the comments of a file.

    It is JSON or HJSON, YAML with the scripts in its blocks, or else a shell script.
    """
    suffix, content = PurePath(text.path).suffix.lower(), text.content
    if suffix in (".json", ".hjson") or content.lstrip()[:1] in ("{", "["):
        return (
            (mark.start, mark.end) for mark in read_json(text).marks if mark.what == "a comment"
        )
    if suffix in (".yaml", ".yml"):
        return _outside(content, _quoted(content))
    return _of_shell(content)


def _outside(content: str, texts: list[Span]) -> Iterator[Span]:
    """Return each comment that begins with `#`, up to the end of its line.

    A `#` in one of the texts begins none. The texts are in order and don't overlap.
    """
    starts = [start for start, _ in texts]
    position = 0
    while match := _HASH.search(content, position):
        last_begun = bisect_right(starts, match.start()) - 1
        if last_begun >= 0 and match.start() < texts[last_begun][1]:
            position = texts[last_begun][1]
            continue
        position = _line_end(content, match.start())
        yield match.start(), position


def _line_end(content: str, start: int) -> int:
    line = _LINE.match(content, start)
    return line.end() if line else start


def _quoted(content: str) -> list[Span]:
    """The quoted texts of YAML. All that follows a place that can't be read counts as one."""
    quoted: list[Span] = []
    end = 0  # of the last token that was read
    try:
        for token in yaml.scan(content, Loader=_SCANNER):
            end = token.end_mark.index
            if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"'):
                quoted.append((token.start_mark.index, end))
    except (yaml.YAMLError, RecursionError, ValueError):
        quoted.append((end, len(content)))
    return quoted


def _of_shell(content: str) -> Iterator[Span]:
    """The comments of a shell script, and those of configs in its here-documents."""
    tokens = Tokens(content).found
    words = [(token.start, token.end) for token in tokens if token.kind == WORD]
    words += [word for token in tokens if token.kind == ARRAY for word in token.words]
    bodies = sorted((token.body.start, token.body.end) for token in tokens if token.body)
    yield from _outside(content, sorted((*words, *bodies)))
    for start, end in bodies:
        while match := _HASH_OR_SLASHES.search(content, start, end):
            line_start = content.rfind("\n", 0, match.start()) + 1
            start = match.end()
            # An odd number of quotes before it means that it stands in a text of the config.
            is_in_quotes = content.count('"', line_start, match.start()) % 2 == 1
            if not is_in_quotes:
                start = _line_end(content, match.start())
                yield match.start(), start


_IGNORE: Final = lazy_pattern(r"dsgen:\s*ignore(-file)?(?:\s*\[([^\]\n]*)\])?")
#: Rules whose findings come after the comments are judged, or with --engine only.
_FOUND_LATER: Final = (
    codes.USELESS_IGNORE,
    codes.UNKNOWN_IGNORE,
    codes.ENGINE_REFUSES,
    codes.ENGINE_VERSION,
)
_NEVER_USELESS: Final = frozenset(rule.id for rule in _FOUND_LATER)
_MAX_SHOWN: Final = 60  # characters of an id that isn't one
#: A line with nothing but a comment. Directives of Slurm are no comments: ids may stand behind one.
_COMMENT_LINE: Final = lazy_pattern(r"(?!#SBATCH)\s*(?:#|//|/\*)")
_MAX_IDS: Final = 200  # in a file's comments; --ignore takes as many as are needed
_MAX_JOINED: Final = 1_000  # lines of a command that backslashes join


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ignore:
    """One id of a comment, with the lines that it is for."""

    rule: str
    lines: range | None  #: from 1; None: the whole file
    where: Location  #: of the comment

    def covers(self, finding: Finding) -> bool:
        if finding.rule != self.rule or finding.where.path != self.where.path:
            return False
        if self.lines is None:
            return True
        return finding.where.line is not None and finding.where.line in self.lines


def without_ignored(findings: Iterable[Finding], texts: Mapping[str, Text]) -> tuple[Finding, ...]:
    """Leave out the findings that comments of the files ignore.

    Add one for each comment that ignores nothing, or a rule that dsgen doesn't have.
    """
    findings = tuple(findings)
    reported = frozenset(finding.rule for finding in findings)
    ignores: list[_Ignore] = []
    problems: list[Finding] = []
    for text in texts.values():
        if "dsgen:" in text.content:
            for item in _read(text, reported):
                if isinstance(item, _Ignore):
                    ignores.append(item)
                else:
                    problems.append(item)
    for ignore in ignores:
        if ignore.rule not in _NEVER_USELESS and not any(map(ignore.covers, findings)):
            place = "in this file" if ignore.lines is None else "at this line"
            message = f"{ignore.rule} is ignored here, but it reports nothing {place}"
            problems.append(codes.USELESS_IGNORE.at(ignore.where, message, "remove the comment"))
    return tuple(
        finding
        for finding in (*findings, *problems)
        if not any(ignore.covers(finding) for ignore in ignores)
    )


def _read(text: Text, reported: frozenset[str]) -> Iterator[_Ignore | Finding]:
    """The ids in a file's comments; a finding for each comment that has no effect.

    `reported` are the ids of findings. They are ids of rules, surely: most files are done without
    importing every rule.
    """
    lines = Lines(text)
    matches = (_IGNORE.search(text.content, start, end) for start, end in sorted(comments(text)))
    placed = [(lines.locate(match.start()), match) for match in matches if match]
    comment_lines = {
        where.line for where, _ in placed if _COMMENT_LINE.match(text.lines[(where.line or 1) - 1])
    }
    ids_left = _MAX_IDS
    for where, match in placed:
        rules = [name.strip() for name in (match[2] or "").split(",") if name.strip()]
        if len(rules) > ids_left:
            message = (
                f"more than {_MAX_IDS} ids in the comments of this file: those from "
                "here on have no effect"
            )
            yield codes.UNKNOWN_IGNORE.at(where, message, "give the ids with --ignore")
            return
        ids_left -= len(rules)
        is_for_file = bool(match[1])
        covered = None if is_for_file else _lines(text, where, comment_lines)
        if not rules:
            message = "the comment names no rule to ignore"
            yield codes.UNKNOWN_IGNORE.at(
                where, message, "write the rule's id: `dsgen: ignore[ID]`"
            )
        for rule in rules:
            if rule in reported or rule in _all_ids():
                yield _Ignore(rule=rule, lines=covered, where=where)
            else:
                yield _unknown(where, rule)


def _lines(text: Text, where: Location, comment_lines: set[int | None]) -> range:
    """Return the lines that a comment is for.

    It is for its own line, or for the next where it is alone on its line. Lines that a backslash
    joins to these belong to them.
    """

    def goes_on(number: int) -> bool:
        """Tell whether a backslash joins this line to the next."""
        is_inside = 0 < number < len(text.lines)
        return is_inside and text.lines[number - 1].endswith("\\")

    first = where.line or 1
    while first in comment_lines:
        first += 1
    last = first
    while last - first < _MAX_JOINED and goes_on(first - 1):
        first -= 1
    while last - first < _MAX_JOINED and goes_on(last):
        last += 1
    return range(first, last + 1)


@lru_cache(maxsize=1)
def _all_ids() -> frozenset[str]:
    """Every id that a finding can have."""
    from ..job import codes as of_specs  # saves start-up time: most files have no such comment
    from ..programs.job_rules import PLANNING_RULES
    from .rules.run import all_file_rules

    rules = (*rules_in(of_specs, codes), *PLANNING_RULES, *all_file_rules())
    return frozenset(rule.id for rule in rules)


def _unknown(where: Location, rule: str) -> Finding:
    """The finding on an id that no rule has."""
    shown = rule if len(rule) <= _MAX_SHOWN else f"{rule[:_MAX_SHOWN]}..."
    ids = sorted(_all_ids())
    close = difflib.get_close_matches(rule[:_MAX_SHOWN].upper(), ids, n=1, cutoff=0.4)
    hint = f"did you mean `{close[0]}`?" if close else "run `dsgen rules` for the list"
    return codes.UNKNOWN_IGNORE.at(where, f"unknown rule {shown!r}", hint)
