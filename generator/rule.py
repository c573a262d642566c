"""`Rule`: one requirement, written once, whatever it judges.

That is a spec, a job, a layout, an estimate, or files.

A rule is the decorator on its check, and the check's docstring, a record of three fields: the
requirement, after `Prevents: ` the error that the rule prevents, or what goes wrong silently, and
after `Fix: ` what fixes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from itertools import chain
from types import ModuleType
from typing import Any, Final, Generic, Literal, TypeVar

from .dataclass import dataclass
from .faults import note, path_in
from .findings import Finding, Location, Severity, Version, Violation, Violations, When
from .patterns import lazy_pattern

S = TypeVar("S")

#: What a rule judges: the text of a job spec, tables and logs of runs, a job, a layout, an estimate
#: against capacity, files, or files read by the installed DeepSpeed's own parser.
Checks = Literal["spec", "runs", "job", "layout", "fit", "files", "engine"]

_SECTION: Final = lazy_pattern(r"^ *(Prevents|Fix): ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The judgement of layouts by a rule: of one, or of columns in the search.

    Empty for rules on anything else.
    """

    #: the fields of `Layout` that `holds` reads; the first is where a finding points
    reads: tuple[str, ...] = ()
    #: what it reads of the job, where a job is inferred and may lack some
    facts: tuple[str, ...] = ()
    #: From job, layout or columns, and ledger: a bool, or an array of bools.
    holds: Callable[..., Any] = lambda *_: True
    #: message with both numbers, hint that passes
    explain: Callable[..., tuple[str, str]] = lambda *_: ("", "")
    binds: Callable[[Any], bool] = lambda _: True  #: whether the rule applies to a job


#: The documents that state the facts of a kind of file.
STATED_IN: Final = {
    "Megatron arguments": ("launch script", "AzureML job", "Megatron arguments"),
    "DeepSpeed config": ("DeepSpeed config",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InFiles:
    """The way in which a rule on jobs or layouts judges the facts that files state of a run."""

    #: the files that it judges; or a DeepSpeed config
    kinds: tuple[str, ...] = ("Megatron arguments",)
    #: asks whether it is applied to an engine, where another rule does more for the rest
    only: Callable[[Any], bool] | None = None
    #: options with which something else decides what the rule would judge
    unless: tuple[str, ...] = ()
    cut: bool = False  #: whether older parsers cut the pipeline to the GPUs before they judge it
    #: where it is not the rule's own: the run goes on and trains what is written
    severity: Severity | None = None
    facts: tuple[str, ...] = ()  #: of a rule on jobs: what it reads

    @property
    def reads(self) -> tuple[str, ...]:
        """The kinds of documents that state these facts."""
        return tuple(dict.fromkeys(name for kind in self.kinds for name in STATED_IN[kind]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One requirement."""

    id: str
    severity: Severity
    when: When
    source: str  #: where the requirement comes from: project, file:line and version
    #: the check's docstring: the requirement, what it prevents, and a fix
    text: str = field(repr=False)
    checks: Checks = "files"
    reads: tuple[str, ...] = ()  #: the kinds of documents that it looks at
    #: the violations of a subject; none where a reader reports them itself
    check: Callable[..., Any] = lambda _: ()
    #: what is checked one by one
    subjects: Callable[..., Iterable[Any]] = field(default=lambda _: (), repr=False)
    #: a violation in the words of its subject, where these are others than the rule's; it is
    #: given the violation with its severity
    tells: Callable[[Any, Violation], Violation] | None = field(default=None, repr=False)
    since: Version = ()  #: first DeepSpeed version that it holds for; empty: all
    before: Version = ()  #: first DeepSpeed version that it no longer holds for; empty: none
    also: tuple[Rule, ...] = ()  #: the same check under other ids, for other programs
    columns: Columns = Columns()
    in_files: InFiles | None = None

    @property
    def title(self) -> str:
        return " ".join(_SECTION.split(self.text)[0].split())

    @property
    def prevents(self) -> str:
        """The error that comes without it, or what goes wrong silently."""
        return self._section("Prevents")

    @property
    def fix(self) -> str:
        return self._section("Fix")

    @property
    def versions(self) -> str:
        """The DeepSpeed versions it holds for, as one writes them: `>=0.19.8`; empty for all."""
        bounds = []
        for sign, version in ((">=", self.since), ("<", self.before)):
            if version:
                bounds.append(sign + ".".join(map(str, version)))
        return ",".join(bounds)

    def holds_for(self, version: Version) -> bool:
        """Whether it holds for a DeepSpeed version."""
        is_too_old = version < self.since
        is_too_new = bool(self.before) and version >= self.before
        return not is_too_old and not is_too_new

    def allows(self, *planned: Any) -> Any:
        """Whether `columns.holds` of a layout, or of columns; a rule that raises removes none."""
        try:
            return self.columns.holds(*planned)
        except Exception as error:
            note(error, f"rule {self.id}", path_in(*planned))
            return True

    def applies(self, job: Any) -> bool:
        """Whether the rule applies to a job; one that raises does not."""
        try:
            return self.columns.binds(job)
        except Exception as error:
            note(error, f"rule {self.id}", path_in(job))
            return False

    def finding(self, violation: Violation) -> Finding:
        return Finding(
            rule=self.id,
            severity=violation.severity or self.severity,
            where=violation.where,
            message=violation.message,
            hint=violation.hint,
            edits=violation.edits,
        )

    def at(
        self,
        where: Location,
        message: str,
        hint: str | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        return self.finding(Violation(where, message, hint, severity=severity))

    def _section(self, name: str) -> str:
        """The text of a section on one line; empty where there is none."""
        _, *parts = _SECTION.split(self.text)
        texts = dict(zip(parts[::2], parts[1::2], strict=True))
        return " ".join(texts.get(name, "").split())


@dataclass(frozen=True, slots=True)
class Subject(Generic[S]):
    """What rules judge one by one: `subjects` divides a submission or a job into them."""

    reads: tuple[str, ...]
    subjects: Callable[[Any], Iterable[S]]
    checks: Checks = "files"
    #: a violation in the words of its subject, where these are others than the rules'
    tells: Callable[[S, Violation], Violation] | None = None

    def __call__(self, whole: Any) -> Iterable[S]:
        return self.subjects(whole)

    def where(self, holds: Callable[[S], object], *reads: str) -> Subject[S]:
        """The subjects of which something holds. `reads`: the documents, where they are others."""
        return Subject(
            reads or self.reads, lambda whole: filter(holds, self(whole)), self.checks, self.tells
        )

    def rule(
        self,
        id: str,
        severity: Severity,
        when: When,
        source: str,
        in_files: InFiles | None = None,
        *,
        reads: tuple[str, ...] = (),
        since: Version = (),
        before: Version = (),
    ) -> Callable[[Callable[[S], Violations] | Rule], Rule]:
        """Make a rule of the check below.

        `reads`: the documents, where they are others than the subject's.
        """

        def made(check: Callable[[S], Violations] | Rule) -> Rule:
            settings: dict[str, Any] = {
                "id": id,
                "severity": severity,
                "when": when,
                "source": source,
                "in_files": in_files,
                "since": since,
                "before": before,
                "checks": self.checks,
                "reads": reads or self.reads,
                "subjects": self.subjects,
                "tells": self.tells,
            }
            if isinstance(check, Rule):
                return replace(check, also=(check, *check.also), **settings)
            return Rule(**settings, text=check.__doc__ or "", check=check)

        return made


def rule_of_reader(
    text: str,
    *,
    source: str,
    checks: Checks,
    severity: Severity = Severity.ERROR,
    when: When = "parse",
) -> Rule:
    """A rule on text, which the reader of the text checks itself, and reports with `Rule.at`.

    `text` is the id with a colon, and then what the docstring of a check has.
    """
    id, _, text = text.partition(": ")
    return Rule(id=id, severity=severity, when=when, source=source, text=text, checks=checks)


def rules_in(*modules: ModuleType) -> tuple[Rule, ...]:
    """The rules of these modules, in the order in which they stand there."""
    return tuple(
        rule
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Rule) and value.check.__module__ in (module.__name__, __name__)
        for rule in (value, *value.also)
    )


def findings_of(rules: Iterable[Rule], whole: Any) -> Iterator[Finding]:
    """Yield the findings of all rules on a submission, a job or a layout."""
    for _, of_rule in findings_by_rule(rules, whole):
        yield from of_rule


def findings_by_rule(rules: Iterable[Rule], whole: Any) -> Iterator[tuple[Rule, Iterator[Finding]]]:
    """As `findings_of`, by rule that is broken; a rule looks for as many as are asked of it.

    A rule that raises on a subject is noted as a fault of dsgen, and says no more of that subject.
    """
    # By the way to divide `whole`, as each is walked once.
    known: dict[Callable[..., Iterable[Any]], tuple[Any, ...]] = {}
    for rule in rules:
        subjects = known.get(rule.subjects)
        if subjects is None:
            subjects = known[rule.subjects] = tuple(_subjects(rule, whole))
        if not subjects:
            continue
        violations = _violations(rule, subjects, whole)
        first = next(violations, None)
        if first is not None:
            yield rule, map(rule.finding, chain((first,), violations))


def _subjects(rule: Rule, whole: Any) -> Iterator[Any]:
    """What the rule checks one by one; none where it can't be told, which is noted as a fault."""
    try:
        yield from rule.subjects(whole)
    except Exception as error:
        note(error, f"rule {rule.id}", path_read(rule, whole))


def _violations(rule: Rule, subjects: Iterable[Any], whole: Any) -> Iterator[Violation]:
    """The places that break the rule, in the words of their subjects."""
    for subject in subjects:
        try:
            for violation in rule.check(subject):
                if rule.tells:
                    known = replace(violation, severity=violation.severity or rule.severity)
                    violation = rule.tells(subject, known)
                yield violation
        except Exception as error:
            note(error, f"rule {rule.id}", path_in(subject) or path_read(rule, whole))


def path_read(rule: Rule, whole: Any) -> str:
    """The path of the first document that a rule reads, or of whatever else it judges."""
    documents = getattr(whole, "documents", ())
    read = [document for document in documents if document.document_kind in rule.reads]
    return path_in(*read, *documents, whole)
