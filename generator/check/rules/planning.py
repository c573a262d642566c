"""The rules of planning, applied to what files say of a run: a constraint is written once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any, Final

from ...facts.facts import Facts
from ...findings import Violations
from ...programs.deepspeed.facts import config_facts
from ...programs.job_rules import PLANNING_RULES
from ...programs.megatron.facts import MegatronFacts, megatron_facts
from ...programs.megatron.rules.rule import READS, at
from ...programs.megatron.run import GLOBAL, MICRO, PIPELINE
from ...programs.subjects import Subject, subject
from ...rule import InFiles, Rule
from ...rules.layout.pipeline import micro_batches_fill_pipeline
from ...rules.run import violations_of

#: The facts of files, by the kind that a rule names.
_KINDS: Final[Mapping[str, Subject[Any]]] = {
    "Megatron arguments": subject(*READS)(megatron_facts),
    "DeepSpeed config": subject("DeepSpeed config")(config_facts),
}


@cache
def _facts_of(*kinds: str) -> Subject[Facts]:
    """The facts of these kinds of files, as the subject of rules."""
    reads = tuple(name for kind in kinds for name in _KINDS[kind].reads)
    return Subject(reads, lambda submission: chain.from_iterable(_KINDS[kind](submission) for kind in kinds))


def _in_files(rule: Rule, in_files: InFiles) -> Rule:
    """The same rule on files: its id, severity, source and text."""

    def check(facts: Facts) -> Violations:
        run = facts.run if isinstance(facts, MegatronFacts) else None
        if in_files.only and not facts.job.framework.runs(*in_files.only):
            return
        if run is not None and (run.has_any(*in_files.unless) or {one.word for one in run.strays} & {*in_files.unless}):
            return
        cut = in_files.cut and run is not None and run.beside.cuts_pipeline
        if cut and run is not None and (run.model_parallel or 0) > (run.gpus or 0):
            return
        for violation in violations_of(rule, facts):
            yield replace(violation, severity=in_files.severity)
        if rule is micro_batches_fill_pipeline and run is not None:
            batch, micro, stages = run.global_batch, run.micro_batch, run.pipeline
            if not batch or not micro or not stages or (run.gpus and run.model_parallel):
                return
            if (most := max(batch // micro, 1)) < stages:
                waits = round(100 * (stages - 1) / (stages + most - 1))
                given = f"{GLOBAL} {batch}, {MICRO} {micro} and {PIPELINE} {stages}"
                message = f"every stage waits {waits}% of the step or more with {given}: at most {most} micro-batches"
                hint = f"use {GLOBAL} {stages * micro} for every replica, or a smaller pipeline"
                yield at(run, run.first_of(GLOBAL, PIPELINE), message, hint, severity=in_files.severity)

    facts = _facts_of(*in_files.kinds)
    return replace(rule, checks="files", reads=facts.reads, check=check, subjects=facts.subjects, also=())


RULES: Final = tuple(_in_files(rule, rule.in_files) for rule in PLANNING_RULES if rule.in_files is not None)
