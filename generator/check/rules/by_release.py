"""Findings that depend on the release of DeepSpeed, told by judging older releases too.

Where nothing names the release, files are judged by the newest, and an older one may run them. What
that one accepts is no certain error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import tee
from typing import Final

from ...findings import Finding, Severity, Version
from ...programs.deepspeed.schema import versions
from ...programs.deepspeed.submission import release_of_deepspeed
from ...rule import Rule
from ...submission.submission import Submission
from ...text.wording import dots

#: The oldest release that may run files which name none; it is of August 2024.
_OLDEST: Final = (0, 14, 5)

#: The rule on keys that only other releases have.
_OF_OTHERS: Final = "VER004"
#: Findings of rules on a submission, as they are reported.
Judge = Callable[[Iterable[Rule], Submission], Iterable[Finding]]
_Key = tuple[str, str, int | None, int | None]


def told_by_release(
    findings: Sequence[Finding], rules: Iterable[Rule], submission: Submission, judge: Judge
) -> list[Finding]:
    """The findings, those that only newer releases give as warnings that name the release.

    The first of them has the pin that would settle them all. Where a release is named, findings
    that depend on it name it.
    """
    if submission.context.deepspeed_version is not None:
        return [*findings]
    asked = [finding for finding in findings if _may_depend(finding, submission)]
    if not asked:
        return [*findings]

    others = _Others(findings, tuple(rules), {finding.rule for finding in asked}, submission, judge)
    told = {id(finding): _told(finding, submission, others) for finding in asked}
    lasts = [last for _, last in told.values() if last]
    pinned = False
    result = list[Finding]()
    for finding in findings:
        replacement, last = told.get(id(finding), (finding, ()))
        if last and not pinned:
            replacement, pinned = _with_pin(replacement, min(lasts)), True
        result.append(replacement)
    return result


def _may_depend(finding: Finding, submission: Submission) -> bool:
    """Return whether a finding is an error in a file that DeepSpeed reads."""
    if finding.severity is not Severity.ERROR:
        return False
    return any(
        config.path == finding.where.path for config in submission.of_kind("DeepSpeed config")
    )


@dataclass
class _Others:
    """What other releases say of a submission, each asked once."""

    findings: Sequence[Finding]  #: of the release that the files are judged by
    rules: tuple[Rule, ...]
    ids: set[str]  #: of the rules whose findings may depend on the release
    submission: Submission
    judge: Judge
    _judged: dict[Version, Submission] = field(default_factory=dict)
    _errors: dict[Version, frozenset[_Key]] = field(default_factory=dict)
    #: the paths of files that a release refuses for something else, as far as they are looked for
    _refused: dict[Version, Iterator[str]] = field(default_factory=dict)

    def refuse(self, finding: Finding, version: Version) -> bool:
        """Return whether a release refuses what a finding is about."""
        if version not in self._errors:
            asked = (rule for rule in self.rules if rule.id in self.ids)
            found = self.judge(asked, self._at(version))
            errors = (_key(each) for each in found if each.severity is Severity.ERROR)
            self._errors[version] = frozenset(errors)
        return _key(finding) in self._errors[version]

    def may_run(self, path: str, version: Version) -> bool:
        """Return whether a release may be meant: it has all keys of a file, and refuses it for
        nothing else.
        """
        if version not in self._refused:
            found = self.judge(self.rules, self._at(version))
            self._refused[version] = (
                each.where.path
                for each in found
                if _is_refusal(each) and _key(each) not in self._known
            )
        # The first refusal of the file is enough, and no rule is asked twice for the next file.
        refused, self._refused[version] = tee(self._refused[version])
        return path not in refused

    @cached_property
    def _known(self) -> frozenset[_Key]:
        """What the release that the files are judged by refuses."""
        return frozenset(_key(each) for each in self.findings if _is_refusal(each))

    def _at(self, version: Version) -> Submission:
        if version not in self._judged:
            self._judged[version] = self.submission.judged_by(version)
        return self._judged[version]


def _is_refusal(finding: Finding) -> bool:
    return finding.severity is Severity.ERROR or finding.rule == _OF_OTHERS


def _told(finding: Finding, submission: Submission, others: _Others) -> tuple[Finding, Version]:
    """A finding as it is told, and the last release that accepts what it is about, if one does."""
    release = release_of_deepspeed(submission, finding.where.path)
    if release.where:
        named = str(release)
        ends = (_OLDEST, versions()[-1])
        depends = any(not others.refuse(finding, version) for version in ends)
        if depends and named not in finding.message:
            return replace(finding, message=f"{finding.message}; judged by {named}"), ()
        return finding, ()

    if others.refuse(finding, _OLDEST):
        return finding, ()
    tables = (version for version in versions() if version >= _OLDEST)
    first = next((table for table in tables if others.may_run(finding.where.path, table)), None)
    if first is None or others.refuse(finding, first):
        return finding, ()  # it is of what only these releases have

    releases = _releases()
    low, high = releases.index(first), len(releases) - 1  # one accepts it, the last doesn't
    # Most such findings are of the last few releases: these are asked first, in longer steps.
    step = 1
    while high - step > low and others.refuse(finding, releases[high - step]):
        high, step = high - step, 2 * step
    low = max(low, high - step)
    while high - low > 1:
        middle = (low + high) // 2
        refused = others.refuse(finding, releases[middle])
        low, high = (low, middle) if refused else (middle, high)
    since = f"DeepSpeed {dots(releases[high])}"
    message = f"{finding.message}; so from {since} on, and no file names a release"
    return replace(finding, message=message, severity=Severity.WARNING), releases[low]


def _with_pin(finding: Finding, last: Version) -> Finding:
    """The finding with what would settle it: the release, by a pin or a flag."""
    pin = f"name the release that runs: pin deepspeed<={dots(last)}, or set --deepspeed-version"
    return replace(finding, hint=f"{finding.hint}; or {pin}" if finding.hint else pin)


@cache
def _releases() -> tuple[Version, ...]:
    """The releases from the oldest on, as many of a minor version as its newest table has."""
    newest = {version[:2]: version[2] for version in versions() if version >= _OLDEST}
    every = ((*minor, patch) for minor, last in sorted(newest.items()) for patch in range(last + 1))
    return tuple(version for version in every if version >= _OLDEST)


def _key(finding: Finding) -> _Key:
    where = finding.where
    return finding.rule, where.path, where.line, where.column
