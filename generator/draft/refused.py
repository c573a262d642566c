"""Plan a draft, and take out of it what a spec or `dsgen generate` refuses, naming each thing."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..check.validate import check_rendered
from ..findings import Finding, InvalidJob, Severity
from ..job.arguments import grouped
from ..job.load import load_with_findings, spec_secrets
from ..job.overrides import plain_source
from ..job.records import Job
from ..numerals import read_whole
from ..programs.deepspeed.write import FILE_NAME
from ..programs.frameworks import FRAMEWORKS
from ..programs.job_rules import check_job
from ..render import render
from ..search import Infeasible, Plan, estimate, search
from ..text.source import Source, escape
from ..text.text import UnreadableText
from ..text.wording import walk
from .draft import SECRET, Draft

#: Sections of the spec of which keys may be left out.
_PRUNED_SECTIONS: Final = frozenset(
    {"name", "training", "data", "output", "deepspeed_config", "launch", "layout"}
)
#: Paths in them that have to stay.
_NEVER_PRUNED: Final = frozenset(
    {"training", "training.global_batch", "layout", "launch", "launch.target"}
)
_ARGUMENTS: Final = "/launch/arguments/"
_MOST_ROUNDS: Final = 5  # of pruning: what is taken out may show what else is refused


class Outcome(NamedTuple):
    """A spec's plan, or what is wrong with it; and how it differs from the files."""

    plan: Plan | None = None
    findings: tuple[Finding, ...] = ()
    infeasible: Infeasible | None = None
    added: tuple[str, ...] = ()  #: options that the launch file has and the files did not
    unwritten: str = ""  #: why dsgen can't write the launch; empty: it can
    of_launch: tuple[Finding, ...] = ()  #: of a launch that dsgen can't write: its errors


def _checked(spec: Mapping[str, Any]) -> tuple[Job, tuple[Finding, ...]]:
    """The job of a spec with its findings; the search says what is wrong with its layout.

    Raises `InvalidJob`.
    """
    job, findings = load_with_findings(spec, FRAMEWORKS)
    findings = (*findings, *check_job(job))
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise InvalidJob(findings)
    return job, findings


def take_out_secrets(draft: Draft) -> None:
    """Take out what looks like a secret, is named like one, or has one's value from the files."""
    pointers = {secret.pointer for secret in spec_secrets(_source(draft))}
    for pointer, value in walk("", draft.spec):
        if isinstance(value, str) and draft.hide(value) != value:
            pointers.add(pointer)
    # Items of a list go from its end, so that the numbers of those before it stay.
    for pointer in sorted(pointers, key=_order, reverse=True):
        is_argument = pointer.startswith(_ARGUMENTS)
        if not is_argument or not _drop_argument(draft, pointer, SECRET):
            _take_out(draft, _keys(pointer), SECRET)


def _source(draft: Draft) -> Source:
    """The draft's spec as the source of a job.

    A config may be nested deeper, or be longer, than a spec may be: such sections go, one by one,
    until the spec can be read.
    """
    while True:
        try:
            return plain_source(draft.spec)
        except UnreadableText as problem:
            keys = _keys(problem.finding.where.pointer)[:2]
            _take_out(draft, keys, problem.finding.message)
            draft.drop(keys)


def prune(draft: Draft) -> Job | None:
    """Take out of the draft what a spec refuses, and name it; options go over as they are.

    Returns the job that is left; None where it is refused still.
    """
    take_out_secrets(draft)
    for _ in range(_MOST_ROUNDS):
        try:
            job, _ = _checked(draft.spec)
            return job
        except InvalidJob as invalid:
            before = copy.deepcopy(draft.spec)
            from_end = sorted(
                invalid.findings, key=lambda each: _order(each.where.pointer), reverse=True
            )
            for finding in from_end:
                keys = _keys(finding.where.pointer)
                if finding.severity is Severity.ERROR and keys[0] in _PRUNED_SECTIONS:
                    _take_out(draft, keys, f"{finding.message} [{finding.rule}]")
            if draft.spec == before:
                break
    return None


def _keys(pointer: str) -> list[str]:
    """The keys of a JSON pointer."""
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer[1:].split("/")]


def _order(pointer: str) -> list[tuple[int, str]]:
    """The keys of a place, by which items of a list are sorted by their numbers."""
    keys = pointer.split("/")
    indices = map(read_whole, keys)
    return [(-1 if index is None else index, key) for index, key in zip(indices, keys, strict=True)]


def _take_out(draft: Draft, keys: list[str], why: str) -> None:
    """Take a key out of the draft, else the nearest thing around it that the draft has.

    A tokenizer goes as a whole, and isn't named: its options are carried over.
    """
    while keys and draft.get(keys) is None:
        keys = keys[:-1]
    path, where, config = ".".join(keys), draft.found.where, draft.found.config
    if not keys or path in _NEVER_PRUNED:
        return
    if keys[0] == "deepspeed_config" and config is not None:
        pointer = "/" + "/".join(map(escape, keys[1:]))
        draft.leave(".".join(keys[1:]), config.locate(pointer), why)
    elif "tokenizer" not in keys:
        draft.leave(path, where, why)
    draft.drop("data.tokenizer" if "tokenizer" in keys else keys)


def planned(spec: Mapping[str, Any]) -> Outcome:
    """The best plan of a spec, else its layout as it is; or what is wrong with it."""
    try:
        job, findings = _checked(spec)
    except InvalidJob as invalid:
        return Outcome(findings=invalid.findings)
    answer = search(job, top=1, explain=False)
    if isinstance(answer, Infeasible):
        return Outcome(plan=estimate(job), findings=findings, infeasible=answer)
    return Outcome(plan=answer.plans[0], findings=findings)


def planned_draft(draft: Draft) -> Outcome:
    """The best plan of the spec, without its secrets."""
    take_out_secrets(draft)
    return planned(draft.spec)


def replanned_without_refused(draft: Draft, added: tuple[str, ...]) -> Outcome:
    """Plan the draft again; what `dsgen generate` would refuse is taken out of it, and named.

    `added` are the options of the plan's launch that the files don't have.
    """
    config, outcome = draft.found.config, planned_draft(draft)
    if outcome.plan is None:
        return outcome
    errors: list[Finding] = []
    for finding in check_rendered(render(outcome.plan), outcome.plan.job):
        if finding.severity is not Severity.ERROR:
            continue
        pointer, why = finding.where.pointer, f"{finding.message} [{finding.rule}]"
        keys = ["deepspeed_config", *_keys(pointer)]
        is_argument = pointer.startswith(_ARGUMENTS)
        if finding.where.path == FILE_NAME and draft.get(keys) is not None:
            draft.drop(keys)
            where = config.locate(pointer) if config else finding.where
            draft.leave(".".join(keys[1:]), where, why)
        elif not is_argument or not _drop_argument(draft, pointer, why):
            errors.append(finding)
    return outcome._replace(findings=(*outcome.findings, *errors), added=added)


def _drop_argument(draft: Draft, pointer: str, why: str) -> bool:
    """Take an option with its values out of the arguments, and name it.

    `pointer` is the place of one of its words. Returns whether there is such an option.
    """
    words: list[str] = draft.get("launch.arguments") or []
    place = read_whole(pointer.removeprefix(_ARGUMENTS))
    if place is None:
        return False
    first = 0  # the place of a group's first word
    for group in grouped(words):
        behind = first + len(group)
        if place < behind:
            given = next((option for option in draft.options if option.words == group), None)
            where = given.where if given else draft.found.where
            draft.leave(group[0] if why == SECRET else " ".join(group), where, why)
            draft.drop("launch.arguments")
            draft.set("launch.arguments", [*words[:first], *words[behind:]])
            return True
        first = behind
    return False
