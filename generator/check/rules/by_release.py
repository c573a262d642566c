"""Findings that depend on the release of DeepSpeed, recognized by judging older releases too.

Where no file names the release, files are judged by the newest, though an older one may run them.
What an older one accepts is no certain error.
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

_KEYS_OF_OTHER_RELEASES: Final = "VER004"  #: the rule on keys that only other releases have
#: Findings of rules on a submission, as they are reported.
Judge = Callable[[Iterable[Rule], Submission], Iterable[Finding]]
_Key = tuple[str, str, int | None, int | None]  # rule, path, line, column


def told_by_release(
    findings: Sequence[Finding], rules: Iterable[Rule], submission: Submission, judge: Judge
) -> list[Finding]:
    """The findings, with those as warnings that an older release may not give.

    Such a warning names the first release that gives the finding. The hint of the first warning has
    the pin that would settle them all. Where files name a release, findings that depend on it say
    so.
    """
    if submission.context.deepspeed_version is not None:
        return [*findings]
    dependent = [finding for finding in findings if _may_depend(finding, submission)]
    if not dependent:
        return [*findings]

    ids = {finding.rule for finding in dependent}
    others = _OtherReleases(findings, tuple(rules), ids, submission, judge)
    told = {id(finding): _told(finding, submission, others) for finding in dependent}
    accepting = [last for _, last in told.values() if last]
    is_pinned = False
    result = list[Finding]()
    for finding in findings:
        replacement, last_accepting = told.get(id(finding), (finding, ()))
        if last_accepting and not is_pinned:
            replacement, is_pinned = _with_pin(replacement, min(accepting)), True
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
class _OtherReleases:
    """What other releases find in a submission, each asked once."""

    findings: Sequence[Finding]  #: of the release that the files are judged by
    rules: tuple[Rule, ...]
    ids: set[str]  #: of the rules whose findings may depend on the release
    submission: Submission
    judge: Judge
    _judged: dict[Version, Submission] = field(default_factory=dict)
    _errors: dict[Version, frozenset[_Key]] = field(default_factory=dict)
    #: the paths of files that a release refuses for something that the release by which files are
    #: judged accepts, as far as they are looked for
    _refused: dict[Version, Iterator[str]] = field(default_factory=dict)

    def refuse(self, finding: Finding, version: Version) -> bool:
        """Return whether a release refuses what a finding is about."""
        if version not in self._errors:
            rules = (rule for rule in self.rules if rule.id in self.ids)
            of_release = self.judge(rules, self._at(version))
            errors = (_key(each) for each in of_release if each.severity is Severity.ERROR)
            self._errors[version] = frozenset(errors)
        return _key(finding) in self._errors[version]

    def may_run(self, path: str, version: Version) -> bool:
        """Return whether a release may be the one that is meant to run a file.

        It has all keys of the file, and doesn't refuse it for anything that the release by which
        the file is judged accepts.
        """
        if version not in self._refused:
            findings = self.judge(self.rules, self._at(version))
            self._refused[version] = (
                finding.where.path
                for finding in findings
                if _is_refusal(finding) and _key(finding) not in self._known_refusals
            )
        # The first refusal of the file is enough, and no rule is asked twice for the next file.
        refused, self._refused[version] = tee(self._refused[version])
        return path not in refused

    @cached_property
    def _known_refusals(self) -> frozenset[_Key]:
        """What the release that the files are judged by refuses."""
        return frozenset(_key(finding) for finding in self.findings if _is_refusal(finding))

    def _at(self, version: Version) -> Submission:
        if version not in self._judged:
            self._judged[version] = self.submission.judged_by(version)
        return self._judged[version]


def _is_refusal(finding: Finding) -> bool:
    return finding.severity is Severity.ERROR or finding.rule == _KEYS_OF_OTHER_RELEASES


def _told(
    finding: Finding, submission: Submission, others: _OtherReleases
) -> tuple[Finding, Version]:
    """A finding as it is told, and the last release that accepts what it is about.

    The release is empty where none does, or where the finding isn't lowered.
    """
    release = release_of_deepspeed(submission, finding.where.path)
    if release.where and release.is_known:  # a file names it
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
        return finding, ()  # it is about keys that the accepting releases don't have

    last_accepting, first_refusing = _change_between(finding, first, others)
    since = f"DeepSpeed {dots(first_refusing)}"
    unnamed = "no file names a release" if release.is_known else f"it runs {release}"
    message = f"{finding.message}; so from {since} on, and {unnamed}"
    return replace(finding, message=message, severity=Severity.WARNING), last_accepting


def _change_between(
    finding: Finding, accepting: Version, others: _OtherReleases
) -> tuple[Version, Version]:
    """The last release that accepts what a finding is about, and the first that refuses it.

    A bisection from a release that accepts it to the newest, which doesn't.
    """
    releases = _releases()
    low, high = releases.index(accepting), len(releases) - 1
    # Most such findings are of the last few releases: these are asked first, in longer steps.
    step = 1
    while high - step > low and others.refuse(finding, releases[high - step]):
        high, step = high - step, 2 * step
    low = max(low, high - step)
    while high - low > 1:
        middle = (low + high) // 2
        refused = others.refuse(finding, releases[middle])
        low, high = (low, middle) if refused else (middle, high)
    return releases[low], releases[high]


def _with_pin(finding: Finding, last: Version) -> Finding:
    """The finding with what would settle it: the release, by a pin or a flag."""
    pin = f"name the release that runs: pin deepspeed<={dots(last)}, or set --deepspeed-version"
    return replace(finding, hint=f"{finding.hint}; or {pin}" if finding.hint else pin)


@cache
def _releases() -> tuple[Version, ...]:
    """All releases from the oldest on.

    Patches are numbered from 0 to that of the newest table of each minor version.
    """
    newest = {version[:2]: version[2] for version in versions() if version >= _OLDEST}
    every = ((*minor, patch) for minor, last in sorted(newest.items()) for patch in range(last + 1))
    return tuple(version for version in every if version >= _OLDEST)


def _key(finding: Finding) -> _Key:
    """What two releases' findings on the same thing have in common."""
    where = finding.where
    return finding.rule, where.path, where.line, where.column
