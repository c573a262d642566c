"""Apply the rules to a submission: those of the programs, and those on files of several programs.

Findings that aren't certain are lowered to notes here, for all rules alike.
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
from ...programs.deepspeed.config import Config, has_auto
from ...programs.deepspeed.facts import says_layout
from ...programs.deepspeed.submission import configs_of, release_of_deepspeed
from ...programs.file_rules import rules_for, rules_of_programs
from ...programs.releases import is_of_copy
from ...rule import Rule, findings_by_rule, path_read, rules_in
from ...submission.repository import is_named_in_project
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


#: Kinds of documents whose run can be estimated with a spec or a plan beside them.
_ESTIMATED: Final = ("DeepSpeed config", "training arguments", "Megatron-Bridge overrides")
_OF_TEXT: Final = "PARSE016"  #: the rule on text that no program reads


def check_submission(submission: Submission) -> tuple[Finding, ...]:
    """Every rule that the documents break, by themselves or against one another, in file order."""
    with guarded("the arguments of the job's script", submission):
        submission = _with_stated_arguments(submission)

    may_be_estimated = True
    with guarded("the facts of a run", submission):
        may_be_estimated = _may_be_estimated(submission)
    rules = (*rules_of_programs(rules_for(submission)), *_rules_on_all())
    if submission.launches or submission.scripts:  # which may call others that have launches
        rules += _rules_on_launch_lines()
    if may_be_estimated:
        rules += _rules_on_estimates()
    findings_of_rules = in_file_order(list(_bounded(rules, submission)))
    if submission.has("DeepSpeed config"):
        from .by_release import told_by_release  # saves start-up time without a config

        with guarded("the releases that findings depend on", submission):
            return tuple(told_by_release(findings_of_rules, rules, submission, _bounded))
    return findings_of_rules


def _may_be_estimated(submission: Submission) -> bool:
    """Return whether the rules on estimates have anything to judge.

    They need a run of Megatron's, machines, sizes of parallelism, or a spec or plan.
    """
    if submission.of_kind("Megatron arguments"):
        return True
    if submission.cluster and configs_of(submission):
        return True
    if says_layout(submission):
        return True
    has_plan = submission.job is not None or bool(submission.plan_files)
    return has_plan and submission.has(*_ESTIMATED)


def _with_stated_arguments(submission: Submission) -> Submission:
    """Return the submission with the arguments that only a job spec makes known.

    They stand on launch lines that don't show which program they are for.
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
    """Return the findings of each rule, at most the first `MOST_FINDINGS` of a file."""
    for rule, of_rule in findings_by_rule(rules, submission):
        try:
            yield from _bounded_of_rule(rule, of_rule, submission)
        except Exception as error:  # a fault of the rule; the others go on
            note(error, f"rule {rule.id}", path_read(rule, submission))


def _bounded_of_rule(
    rule: Rule, findings: Iterator[Finding], submission: Submission
) -> Iterator[Finding]:
    """Return the findings of a rule, at most the first `MOST_FINDINGS` of a file.

    After as many for each document the rule itself is stopped: findings that are dropped take as
    much time as those that are kept.
    """
    judged = _without_repeats(_notes_where_uncertain(rule, findings, submission))
    yield from bounded(islice(judged, MOST_FINDINGS * (1 + len(submission.documents))))


def _notes_where_uncertain(
    rule: Rule, findings: Iterator[Finding], submission: Submission
) -> Iterator[Finding]:
    """Return a rule's findings, those that aren't certain lowered to notes.

    A finding isn't certain where the release isn't known exactly, or where nothing is known to use
    what would fail. Findings that don't hold for the release are left out.
    """
    for finding in findings:
        is_note = finding.severity is Severity.NOTE
        is_uncertain = not is_note and _is_unused(rule, finding, submission)
        judged_by = ""
        if rule.since or rule.before:
            release = release_of_deepspeed(submission, finding.where.path)
            if not rule.holds_for(release.version):
                continue
            is_uncertain = is_uncertain or not release.certain(rule.holds_for)
            judged_by = f"; judged by {release}" if release.where else ""

        if is_uncertain:
            finding = replace(finding, severity=Severity.NOTE)
        if judged_by:
            finding = replace(finding, message=finding.message + judged_by)
        yield finding


def _is_unused(rule: Rule, finding: Finding, submission: Submission) -> bool:
    """Return whether nothing is known to use what a finding is about, as it stands.

    That is a library's copy, a text without a command, arguments of a program that isn't here, or
    a config that no program is known to read unchanged.
    """
    path = finding.where.path
    if is_of_copy(path) or _is_without_commands(path, submission):
        return True
    if _is_on_assumed_arguments(rule, submission):
        return True
    if path not in unclaimed(submission) or rule.id == _OF_TEXT:
        return False

    configs = [config for config in configs_of(submission) if config.path == path]
    # DeepSpeed reads no YAML: a program makes a config of it.
    if configs and path.endswith((".yaml", ".yml")):
        return True
    if _is_on_slip(finding):  # a slip is one whatever the program does
        return False
    if not is_named_in_project(path):
        return True
    return bool(configs) and _may_be_completed(rule, configs)


def _is_without_commands(path: str, submission: Submission) -> bool:
    """Return whether a file is a script of directives alone."""
    texts = (script.shell for script in submission.scripts if script.path == path)
    return any(text.directives and not text.commands for text in texts)


def _is_on_assumed_arguments(rule: Rule, submission: Submission) -> bool:
    """Return whether a rule is on arguments that are the Trainer's only by assumption.

    The program that reads them isn't here.
    """
    if rule.reads[:1] != ("training arguments",):
        return False
    arguments = submission.of_kind("training arguments")
    return bool(arguments) and all(file.assumed for file in arguments)


def _is_on_slip(finding: Finding) -> bool:
    """Return whether a finding is on a mistyped word, for which its hint has the right one."""
    meant = re.match(r"did you mean `?(\w+)", finding.hint or "")
    if meant is None:
        return False
    return any(is_slip(word, meant[1]) for word in re.findall(r"\w+", finding.message))


def _may_be_completed(rule: Rule, configs: Iterable[Config]) -> bool:
    """Return whether a program may change a config before what the rule finds can fail.

    A program may complete the config before it makes an engine with it. The Trainer takes the file
    as it is, and a file with an "auto" is written for the Trainer.
    """
    return rule.when in ("init", "training") and not any(map(has_auto, configs))


@lru_cache(maxsize=4)
def unclaimed(submission: Submission) -> frozenset[str]:
    """Return the paths of configs and files of arguments that no document names.

    The configs are DeepSpeed's and accelerate's.
    """
    arguments = submission.of_kind("training arguments")
    files = (
        *submission.of_kind("accelerate config"),
        *(file for file in arguments if file.launch is None),
    )
    configs = (config.path for config in configs_of(submission) if config.unclaimed)
    return frozenset((*configs, *(file.path for file in files if submission.is_alone(file))))


def _without_repeats(findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings, each place and message once, however many ways lead to it."""
    reported = set[tuple[object, ...]]()
    for finding in findings:
        key = (finding.where.path, finding.where.line, finding.where.column, finding.message)
        if key not in reported:
            reported.add(key)
            yield finding
