"""Apply rules to a submission.

They are those of the programs, and those on files of several programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from itertools import islice
from typing import Final

from ...faults import guarded, note
from ...findings import Finding, Severity, in_file_order
from ...programs.deepspeed.config import has_auto
from ...programs.deepspeed.facts import says_layout
from ...programs.deepspeed.submission import configs_of, release_of_deepspeed
from ...programs.file_rules import rules_for, rules_of_programs
from ...programs.releases import is_of_copy
from ...rule import Rule, findings_by_rule, path_read, rules_in
from ...submission.repository import is_named
from ...submission.submission import Submission
from ...text.slips import is_slip
from ..codes import MOST_FINDINGS, bounded

# Imports within functions save start-up time.


@cache
def _rules_on_all() -> tuple[Rule, ...]:
    """Rules that hold documents of several programs against one another."""
    from . import against_job, consistency, plans
    from . import secrets as secret_rules

    return rules_in(consistency, secret_rules, against_job, plans)


@cache
def _rules_on_launch_lines() -> tuple[Rule, ...]:
    """Rules that hold launch lines against the programs that they start."""
    from . import files_there, program_options, ranks

    return rules_in(ranks, program_options, files_there)


@cache
def _rules_on_estimates() -> tuple[Rule, ...]:
    """Rules on layouts, memory and time, which need numpy."""
    from . import fits, planning

    return (*planning.RULES, *rules_in(fits, planning))


def all_file_rules() -> tuple[Rule, ...]:
    """Every rule on files."""
    return (
        *rules_of_programs(),
        *_rules_on_launch_lines(),
        *_rules_on_all(),
        *_rules_on_estimates(),
    )


#: Kinds of documents that a spec or a plan makes estimable.
_ESTIMATED: Final = ("DeepSpeed config", "training arguments", "Megatron-Bridge overrides")
_OF_TEXT: Final = "PARSE016"  #: on text that no program reads


def check_submission(submission: Submission) -> tuple[Finding, ...]:
    """Every rule that the documents break, by themselves or against one another, in file order."""
    with guarded("the arguments of the job's script", submission):
        submission = _with_stated_arguments(submission)

    # Without a run of Megatron's, machines, or sizes of parallelism, they have nothing to say.
    estimated: object = True
    with guarded("the facts of a run", submission):
        estimated = (
            submission.of_kind("Megatron arguments")
            or (submission.cluster and configs_of(submission))
            or says_layout(submission)
            or ((submission.job or submission.plan_files) and submission.has(*_ESTIMATED))
        )
    rules = (*rules_of_programs(rules_for(submission)), *_rules_on_all())
    if submission.launches:
        rules += _rules_on_launch_lines()
    if estimated:
        rules += _rules_on_estimates()
    findings_of_rules = in_file_order(list(_bounded(rules, submission)))
    if submission.has("DeepSpeed config"):
        from .by_release import told_by_release  # saves start-up time without a config

        with guarded("the releases that findings depend on", submission):
            return tuple(told_by_release(findings_of_rules, rules, submission, _bounded))
    return findings_of_rules


def _with_stated_arguments(submission: Submission) -> Submission:
    """Return the submission with arguments that only the job spec makes known.

    They are on launch lines, which don't say whose arguments they are.
    """
    if submission.job is None:
        return submission

    from ...programs.megatron.arguments import of_job  # saves start-up time without a job spec

    shown = {id(arguments.launch) for arguments in submission.of_kind("Megatron arguments")}
    rest = (launch for launch in submission.launches if id(launch) not in shown)
    stated = tuple(of_job(submission.job, rest))
    documents = (*submission.documents, *stated)
    return replace(submission, documents=documents) if stated else submission


def _bounded(rules: Iterable[Rule], submission: Submission) -> Iterator[Finding]:
    """Return the findings of each rule, at most the first `MOST_FINDINGS` of a file.

    That there may be more is said.
    """
    for rule, of_rule in findings_by_rule(rules, submission):
        try:
            yield from _bounded_of_rule(rule, of_rule, submission)
        except Exception as error:
            note(error, f"rule {rule.id}", path_read(rule, submission))


def _bounded_of_rule(
    rule: Rule, findings: Iterator[Finding], submission: Submission
) -> Iterator[Finding]:
    """Return the findings of a rule; each of them after the bound would take the same time."""
    certain = _without_repeats(_as_certain(rule, findings, submission))
    yield from bounded(islice(certain, MOST_FINDINGS * (1 + len(submission.documents))))


def _as_certain(
    rule: Rule, findings: Iterator[Finding], submission: Submission
) -> Iterator[Finding]:
    """Make a note of what a rule says, where it isn't certain.

    It isn't where the release is not known exactly, or nothing is known to start what would fail.
    """
    for finding in findings:
        less = finding.severity is not Severity.NOTE and _is_unused(rule, finding, submission)
        judged = ""
        if rule.since or rule.before:
            release = release_of_deepspeed(submission, finding.where.path)
            if not rule.holds_for(release.version):
                continue
            less = less or not release.certain(rule.holds_for)
            judged = f"; judged by {release}" if release.where else ""
        severity = Severity.NOTE if less else finding.severity
        yield (
            replace(finding, message=finding.message + judged, severity=severity)
            if less or judged
            else finding
        )


def _is_unused(rule: Rule, finding: Finding, submission: Submission) -> bool:
    """Return whether a finding is of something that isn't used as it stands.

    This is a library's copy, a text without a command, arguments of a program that is elsewhere, or
    a config that no program is known to read as it is.
    """
    path = finding.where.path
    texts = (script.shell for script in submission.scripts if script.path == path)
    if is_of_copy(path) or any(text.directives and not text.commands for text in texts):
        return True
    arguments = (
        submission.of_kind("training arguments")
        if rule.reads[:1] == ("training arguments",)
        else ()
    )
    if arguments and all(file.assumed for file in arguments):
        return True
    if path not in unclaimed(submission) or rule.id == _OF_TEXT:
        return False
    # a slip is one whatever the program does
    meant = re.match(r"did you mean `?(\w+)", finding.hint or "")
    slip = meant is not None and any(
        is_slip(word, meant[1]) for word in re.findall(r"\w+", finding.message)
    )
    if path not in {config.path for config in configs_of(submission)}:
        return not slip and not is_named(path)
    # The program may hand another to the engine; not the Trainer, for which alone an "auto" is.
    auto = any(file.path == path and has_auto(file) for file in configs_of(submission))
    completed = rule.when in ("init", "training") and not auto
    return path.endswith((".yaml", ".yml")) or (not slip and (completed or not is_named(path)))


@lru_cache(maxsize=4)
def unclaimed(submission: Submission) -> frozenset[str]:
    """Return the paths of configs and arguments that no document names.

    The configs are DeepSpeed's and accelerate's.
    """
    arguments = (one for one in submission.of_kind("training arguments") if one.launch is None)
    files = (*submission.of_kind("accelerate config"), *arguments)
    alone = (document.path for document in files if submission.is_alone(document))
    return frozenset((*(one.path for one in configs_of(submission) if one.unclaimed), *alone))


def _without_repeats(findings: Iterator[Finding]) -> Iterator[Finding]:
    """One place and message is reported once, however many ways lead to it."""
    reported = set[tuple[object, ...]]()
    for finding in findings:
        key = (finding.where.path, finding.where.line, finding.where.column, finding.message)
        if key not in reported:
            reported.add(key)
            yield finding
